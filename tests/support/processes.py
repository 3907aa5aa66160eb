"""Processes of a test: forks of itself, and fresh ones, which have imported everything and computed nothing.

A new interpreter takes seconds to import torch, and a fork of the test has whatever the test computed. So
fresh processes are forked from a server, which `multiprocessing` starts when the first one is needed.
"""

import multiprocessing
import os
import signal
import socket
import sys
import tempfile
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

FRESH = multiprocessing.get_context("forkserver")
# What training and the other commands import, some of it only when it is used.
FRESH.set_forkserver_preload(
    [
        "happier.cli",
        "happier.training.loop",
        "happier.training.compose",
        "happier.runs.comparison",
        "happier.losses._kernel",
        "torchvision.transforms.v2",
        "timm.models",
        "PIL.Image",
        "pyarrow.parquet",
        "safetensors.torch",
        "huggingface_hub",
    ]
)


class Outcome(NamedTuple):
    """How a process ended; a signal counts as its negative number."""

    code: int
    out: str
    err: str


def fork(function, *arguments):
    """Start ``function`` in a fork of this process; its exit code is 0 unless it raises."""
    child = os.fork()
    if child:
        return child
    try:
        function(*arguments)
    except BaseException:  # noqa: BLE001 - whatever it is, the fork ends here
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def exit_code(child):
    """Wait for a fork; a signal counts as its negative number."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def kill_self():
    os.kill(os.getpid(), signal.SIGKILL)


class Gate:
    """One process waits until another opens it."""

    def __init__(self):
        self.reader, self.writer = os.pipe()

    def open(self):
        os.write(self.writer, b"x")

    def wait(self):
        assert os.read(self.reader, 1) == b"x"


def run_command(*words, output=None):
    """Run the command line in a fork of the test, patches included; ``output`` replaces the standard output.

    Nothing may have been computed in this process, whose threads no fork has.
    """
    with tempfile.TemporaryDirectory() as folder:
        out, err = Path(folder) / "out", Path(folder) / "err"
        child = os.fork()
        if child == 0:
            code = 1
            try:
                _redirect(output or out, err)
                code = _command_code(words)
            finally:
                os._exit(code)
        return Outcome(exit_code(child), "" if output else out.read_text(errors="replace"), err.read_text())


class FreshProcess:
    """A function of an importable module that runs in a fresh process.

    Args:
        function: what to run.
        arguments: of the function.
        cwd: working directory.
        environment: variables in addition to those of this process.
    """

    def __init__(
        self,
        function: Callable[..., object],
        *arguments: object,
        cwd: Path | None = None,
        environment: dict[str, str] | None = None,
    ) -> None:
        self._folder = tempfile.TemporaryDirectory()
        place, variables = Path(self._folder.name), {**os.environ, **(environment or {})}
        self._process = FRESH.Process(
            target=_become, args=(function, arguments, cwd or Path.cwd(), variables, place)
        )
        self._process.start()

    def wait(self) -> Outcome:
        """Wait for its end."""
        self._process.join()
        code = self._process.exitcode
        assert code is not None
        self._process.close()
        with self._folder as place:
            texts = [(Path(place) / name).read_text(errors="replace") for name in ("out", "err")]
        return Outcome(code, *texts)


def run_fresh(function: Callable[..., object], *arguments: object, **options: Any) -> Outcome:
    """The outcome of a `FreshProcess`."""
    return FreshProcess(function, *arguments, **options).wait()


def run_fresh_command(*words, **options):
    """The outcome of the command line in a `FreshProcess`."""
    return run_fresh(command, [str(word) for word in words], **options)


def run_ranks(function, *arguments, ranks=2, **options):
    """The outcome of each of several `FreshProcess`, started as torchrun starts its ranks."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    shared = {"TORCHELASTIC_RUN_ID": "test", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    shared |= {"WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks), "GROUP_RANK": "0"}
    own = [{**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(ranks)]
    started = [FreshProcess(function, *arguments, environment=each, **options) for each in own]
    return [process.wait() for process in started]


def script(text, *arguments):
    """Run the text of a script."""
    sys.argv = ["script", *map(str, arguments)]
    exec(compile(text, "script", "exec"), {"__name__": "__main__"})


def command(words):
    """Run the command line, and end as it does."""
    sys.exit(_command_code(words))


def _become(function, arguments, cwd, environment, place):
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(cwd)
    _redirect(place / "out", place / "err")
    function(*arguments)


def _redirect(out, err):
    for descriptor, place in ((1, out), (2, err)):
        if not isinstance(place, int):
            place = os.open(place, os.O_WRONLY | os.O_CREAT, 0o600)
        os.dup2(place, descriptor)
    # What pytest put in their place belongs to the test.
    sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, closefd=False)  # noqa: SIM115


def _command_code(words):
    import happier.cli

    sys.argv = ["happier", *map(str, words)]
    return exit_code_of(happier.cli.main)


def exit_code_of(function: Callable[[], object]) -> int:
    """Run a function and return the exit code that Python would end with; it prints what Python would."""
    code = 1
    try:
        function()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # noqa: BLE001 - what Python itself prints
        traceback.print_exc()
    with suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    return code
