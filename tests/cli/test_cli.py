"""The command line as a whole: help for everything, one-line errors."""

import subprocess
import sys
from pathlib import Path

import pytest
import typer.main
from processes import run_fresh_command

import happier
from happier.cli import app


def commands(group, prefix=()):
    for name, command in group.commands.items():
        yield (*prefix, name)
        if hasattr(command, "commands"):
            yield from commands(command, (*prefix, name))


ALL = sorted(commands(typer.main.get_command(app)))


def test_version():
    script = Path(sys.executable).with_name("happier")
    done = subprocess.run([script, "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == f"happier {happier.__version__}"


def test_the_contracts_commands_exist():
    wanted = {
        "demo", "fit", "train", "evaluate", "embed", "report", "index", "search", "serve", "bench", "data",
        "export",
    }  # fmt: skip
    assert wanted <= {path[0] for path in ALL}
    assert {("data", name) for name in ("list", "fetch", "import", "check", "split")} <= set(ALL)
    assert {("bench", name) for name in ("loss", "evaluation", "data", "train", "search", "serve")} <= set(
        ALL
    )


@pytest.mark.parametrize("path", ALL, ids=" ".join)
def test_every_command_explains_itself(path):
    from typer.testing import CliRunner

    done = CliRunner().invoke(app, [*path, "--help"], env={"COLUMNS": "120"})
    assert done.exit_code == 0, done.output
    assert "Usage" in done.output


@pytest.mark.parametrize(
    "arguments",
    [
        ("evaluate", "nowhere"),
        ("report", "nowhere"),
        ("search", "nowhere", "nothing.jpg"),
        ("data", "check", "nowhere.parquet"),
        ("data", "fetch", "nosuchset"),
        ("train", "recipe=nosuch"),
        ("search", "index", "image.png", "-k", "0"),
        ("search", "--nosuch"),
        ("search",),
        ("nosuch",),
        ("report", "run", "--seed", "-1"),
        ("data", "split", "x.parquet", "--seed", "abc"),
    ],
    ids=" ".join,
)
def test_a_wrong_argument_is_one_line_and_exit_code_2(arguments, tmp_path):
    done = run_fresh_command(*arguments, cwd=tmp_path)
    assert done.code == 2, done.err
    assert len(done.err.splitlines()) == 1
    assert list(tmp_path.iterdir()) == [], "a failed command left something behind"
