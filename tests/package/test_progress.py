"""The progress bar: rate and remaining time on a terminal, nothing elsewhere."""

import io

import pytest
import rich.console

from happier.progress import ProgressBar


@pytest.fixture
def terminal(monkeypatch):
    """What a terminal of 100 columns is sent."""
    real, stream = rich.console.Console, io.StringIO()

    def console(**options):
        del options
        return real(file=stream, force_terminal=True, width=100, color_system=None)

    monkeypatch.setattr(rich.console, "Console", console)
    return stream


def test_a_terminal_sees_title_count_and_lines_above_the_bar(terminal):
    with ProgressBar("Embedding") as progress:
        progress(3, 8)
        progress.print("a [line] above")
    text = terminal.getvalue()
    assert "Embedding" in text
    assert "3/8" in text
    assert "a [line] above" in text


def test_a_stage_starts_the_bar_again(terminal):
    with ProgressBar("emoji") as progress:
        progress.stage("download", 2, 2)
        progress.stage("prepare [all]", 1, 5)
    text = terminal.getvalue()
    assert "prepare [all]" in text
    assert "1/5" in text


def test_a_note_stands_in_the_place_of_the_rate(terminal):
    with ProgressBar(unit="steps", done=5, total=10) as progress:
        progress.show(6, 10, title="epoch 2", note="loss 0.5")
    text = terminal.getvalue()
    assert "epoch 2" in text
    assert "6/10" in text
    assert "loss 0.5" in text


def test_nothing_is_shown_where_there_is_no_terminal(capsys):
    with ProgressBar("Embedding") as progress:
        progress(3, 8)
        progress.stage("download", 2, 2)
        progress.show(6, 10, title="epoch 2", note="loss 0.5")
        progress.print("a line")
    captured = capsys.readouterr()
    assert captured.err == captured.out == ""


def test_quiet_is_silent_on_a_terminal_too(terminal):
    with ProgressBar("Embedding", quiet=True) as progress:
        progress(3, 8)
    assert terminal.getvalue() == ""
