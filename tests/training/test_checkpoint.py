"""Checkpoints: whole or not there, never trusted."""

import logging
import os
import resource

import pytest
import torch

from happier.errors import CheckpointError
from happier.training.checkpoint import Checkpoints, read_checkpoint
from happier.training.log import _reopen


@pytest.fixture
def checkpoints(tmp_path):
    return Checkpoints(tmp_path / "checkpoint")


def _state(value):
    return {"step": value, "weights": {"w": torch.full((1000,), float(value))}, "names": ["a", None, 1.5]}


def test_the_newest_comes_back(checkpoints):
    assert checkpoints.load() is None
    for value in (1, 2, 3):
        checkpoints.save(_state(value), best=value == 2)
    assert checkpoints.load()["step"] == 3
    assert read_checkpoint(checkpoints.previous)["step"] == 2
    assert read_checkpoint(checkpoints.best)["step"] == 2
    assert torch.equal(checkpoints.load()["weights"]["w"], torch.full((1000,), 3.0))


@pytest.mark.parametrize("damage", ["cut", "empty", "flip", "garbage"])
def test_a_damaged_one_gives_way_to_the_one_before_and_says_so(checkpoints, damage, caplog):
    checkpoints.save(_state(1))
    checkpoints.save(_state(2))
    content = bytearray(checkpoints.last.read_bytes())
    if damage == "cut":
        content = content[: len(content) // 2]
    elif damage == "empty":
        content = b""
    elif damage == "garbage":
        content = b"x" * 100
    else:
        # In the middle of the tensor's bytes, where the format itself notices nothing.
        place = content.index(torch.full((4,), 2.0).numpy().tobytes()) + 64
        content[place] ^= 1
    checkpoints.last.write_bytes(bytes(content))
    with caplog.at_level(logging.WARNING):
        assert checkpoints.load()["step"] == 1
    assert "is damaged" in caplog.text
    assert "last.ckpt" in caplog.text


def test_when_all_are_damaged_it_is_an_error(checkpoints):
    checkpoints.save(_state(1))
    checkpoints.save(_state(2))
    checkpoints.last.write_bytes(b"x")
    checkpoints.previous.write_bytes(b"x")
    with pytest.raises(CheckpointError, match="no checkpoint of the run can be used"):
        checkpoints.load()


def test_a_full_disk_leaves_the_one_before(checkpoints):
    checkpoints.save(_state(1))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        with pytest.raises(CheckpointError, match=r"cannot write .* intact"):
            checkpoints.save(_state(2))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert checkpoints.load()["step"] == 1
    assert sorted(path.name for path in checkpoints.directory.iterdir()) == ["last.ckpt"]


class _RunsCode:
    def __reduce__(self):
        return print, ("code from a file ran",)


def test_loading_never_runs_code(checkpoints, capsys):
    checkpoints.directory.mkdir()
    torch.save({"format": 1, "digest": "", "evil": _RunsCode()}, checkpoints.last)
    with pytest.raises(CheckpointError):
        checkpoints.load()
    assert capsys.readouterr().out == ""


def test_what_killed_writers_left_is_removed(checkpoints):
    checkpoints.save(_state(1))
    (checkpoints.directory / ".last.ckpt.abc.part").write_bytes(b"half")
    checkpoints.clean()
    assert sorted(path.name for path in checkpoints.directory.iterdir()) == ["last.ckpt"]


def test_a_pipe_in_place_of_the_figures_is_one_line(tmp_path):
    os.mkfifo(tmp_path / "metrics.jsonl")
    with pytest.raises(CheckpointError, match=r"metrics\.jsonl.*regular file; remove it"):
        _reopen(tmp_path / "metrics.jsonl", 0)
