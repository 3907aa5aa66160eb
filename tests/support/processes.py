"""Forks of a test that run one function and are waited for."""

import os
import signal
import sys
import tempfile
import traceback
from pathlib import Path


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
    """Run the command line in a fork, as its own process would: exit code, standard output, standard error.

    Everything is imported once, here; and nothing is computed in this process, whose threads no fork has.
    """
    import happier.cli

    with tempfile.TemporaryDirectory() as folder:
        out, err = Path(folder) / "out", Path(folder) / "err"
        child = os.fork()
        if child == 0:
            _become_command(words, output or out, err, happier.cli.main)
        code = exit_code(child)
        return code, "" if output else out.read_text(errors="replace"), err.read_text(errors="replace")


def _become_command(words, out, err, main):
    code = 1
    try:
        for descriptor, place in ((1, out), (2, err)):
            if not isinstance(place, int):
                place = os.open(place, os.O_WRONLY | os.O_CREAT, 0o600)
            os.dup2(place, descriptor)
        # What pytest put in their place belongs to the test.
        sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
        sys.stderr = open(2, "w", buffering=1, closefd=False)  # noqa: SIM115
        sys.argv = ["happier", *map(str, words)]
        try:
            main()
            code = 0
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
        except BaseException:  # noqa: BLE001 - what Python itself prints
            traceback.print_exc()
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)
