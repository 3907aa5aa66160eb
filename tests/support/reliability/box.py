"""A directory that commands change, and a database where they use one: taken down, put back, looked at.

Every command runs in a fork of this process, which has imported everything and computed nothing.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import stat
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import xxhash
from processes import exit_code_of

from reliability.database import DatabaseBox

# A command that waits for what never comes ends by SIGALRM after this many seconds.
LONGEST = 1200


@dataclass(frozen=True)
class Outcome:
    """What a command left: exit code, standard output, standard error."""

    code: int
    out: str
    err: str

    @property
    def last_line(self) -> str:
        """Of standard error; a manifest's faults are listed below the line that says so."""
        lines = [line for line in self.err.rstrip().split("\n") if not line.startswith("  - ")]
        return lines[-1].strip() if lines else ""

    @property
    def refused(self) -> bool:
        """One line and exit code 2, after what it may have logged."""
        return self.code == 2 and self.last_line.startswith("happier: ") and "Traceback" not in self.err

    @property
    def fault(self) -> str:
        """What must never happen; empty where it did not."""
        if "Traceback" in self.err:
            return f"traceback: {self.last_line}"
        if self.code < 0:
            return f"ended by signal {-self.code}"
        if self.code == 2 and not self.last_line.startswith("happier: "):
            return f"exit code 2 with: {self.last_line}"
        return "" if self.code in (0, 2) else f"exit code {self.code}: {self.last_line}"


# A folder that `happier.storage.atomic` fills; the next writer removes it unread.
SCRATCH = re.compile(r"\.[0-9a-f]{8}\.part/")
Entry = tuple[str, int, int, str]  # kind, mode, time, digest or target of a link
IN_DATABASE = "database:"
MILVUS = "catalogue.db"


@dataclass(frozen=True)
class Snapshot:
    """Everything in a box at one moment."""

    entries: tuple[tuple[str, Entry], ...]

    @property
    def content(self) -> str:
        """Equal for snapshots that differ in times and random names only."""
        plain = sorted((normal(name), kind, data) for name, (kind, _, _, data) in self.entries)
        return xxhash.xxh3_128(repr(plain).encode()).hexdigest()

    @property
    def visible(self) -> str:
        """Equal for snapshots that differ only in the bytes of files in scratch folders, never read."""
        plain = sorted(
            (normal(name), kind, "" if SCRATCH.search(name) else data)
            for name, (kind, _, _, data) in self.entries
        )
        return xxhash.xxh3_128(repr(plain).encode()).hexdigest()

    @property
    def names(self) -> Counter[str]:
        """How many files of each name, without numbers of generations; locks stay for ever, uncounted.

        Of milvus-lite's database only its collections: the files in them are its own business.
        """
        return Counter(
            normal(name)
            for name, (kind, *_) in self.entries
            if kind != "folder"
            and not name.endswith("lock")
            and (MILVUS not in Path(name).parts or name.endswith("/schema.json"))
        )


def normal(name: str) -> str:
    """A name without what differs from run to run: random letters and numbers."""
    plain = re.sub(r"\.[0-9a-f]{8}\.part", ".#.part", name)
    return re.sub(r"\d+", "#", re.sub(r"happier_[0-9a-f]+", "happier_#", plain))


class Box:
    """A directory whose content is put in place, changed by commands, and compared.

    Attributes:
        database: belongs to the content, where the commands at hand use it.
    """

    def __init__(self, root: Path) -> None:
        self.database: DatabaseBox | None = None
        self.root = root.resolve()
        self.path = self.root / "box"
        self._blobs = self.root / "blobs"
        self.path.mkdir(parents=True, exist_ok=True)
        self._blobs.mkdir(exist_ok=True)

    def take(self, torn: tuple[str, int, bytes] | None = None) -> Snapshot:
        """Read everything; ``torn`` is half of a write (path, place, bytes) to pretend that it was made."""
        entries = []
        for folder, folders, files in os.walk(self.path):
            for name in folders + files:
                path = Path(folder) / name
                try:
                    entries.append((str(path.relative_to(self.path)), self._entry(path, torn)))
                except FileNotFoundError:  # removed by another process, which is not stopped
                    continue
        if self.database is not None:
            found = self.database.take()
            entries += [(IN_DATABASE + name, ("table", 0, 0, self._keep(found[name]))) for name in found]
        return Snapshot(tuple(sorted(entries)))

    def _entry(self, path: Path, torn: tuple[str, int, bytes] | None) -> Entry:
        status = path.lstat()
        mode, time = stat.S_IMODE(status.st_mode), status.st_mtime_ns
        if stat.S_ISLNK(status.st_mode):
            return "link", mode, time, str(path.readlink())
        if stat.S_ISDIR(status.st_mode):
            return "folder", mode, time, ""
        if not stat.S_ISREG(status.st_mode):
            return "special", mode, time, ""
        data = path.read_bytes()
        if torn is not None and torn[0] == str(path):
            _, place, piece = torn
            data = data[:place].ljust(place, b"\0") + piece + data[place + len(piece) :]
        return "file", mode, time, self._keep(data)

    def _keep(self, data: bytes) -> str:
        digest = xxhash.xxh3_128(data).hexdigest()
        blob = self._blobs / digest
        if not blob.exists():
            blob.write_bytes(data)
        return digest

    def put(self, snapshot: Snapshot) -> None:
        """Make the box what it was then."""
        for entry in self.path.iterdir():
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry)
            else:
                entry.unlink()
        if self.database is not None:
            self.database.put(
                {
                    name.removeprefix(IN_DATABASE): (self._blobs / data).read_bytes()
                    for name, (kind, _, _, data) in snapshot.entries
                    if kind == "table"
                }
            )
        for name, (kind, mode, time, data) in snapshot.entries:
            path = self.path / name
            if kind == "folder":
                path.mkdir(exist_ok=True)
            elif kind == "link":
                path.symlink_to(data)
                continue
            elif kind == "file":
                shutil.copyfile(self._blobs / data, path)
            else:
                continue
            path.chmod(mode)
            os.utime(path, ns=(time, time))

    def call(self, function: Callable[[], Any]) -> Any:
        """The value (as JSON) of a function that runs in a fork; an error of ours is a text."""
        outcome = self.fork(lambda: print(json.dumps(value_or_error(function))))
        if outcome.code:
            return f"fault: {outcome.last_line or outcome.code}"
        return json.loads(outcome.out.rpartition("\n")[0].rpartition("\n")[2])

    def run(self, *words: object) -> Outcome:
        """A command, in a fork."""
        return self.fork(lambda: run_words(words))

    def fork(self, function: Callable[[], object]) -> Outcome:
        """Any function, in a fork."""
        started = self.start(function)
        return started.wait()

    def start(self, function: Callable[[], object]) -> Started:
        """Any function, in a fork that is not waited for."""
        folder = tempfile.mkdtemp(dir=self.root)
        child = os.fork()
        if child == 0:
            self.become(function, Path(folder))
        return Started(child, Path(folder))

    def become(self, function: Callable[[], object], folder: Path) -> None:
        """In a fork: run a function as a process of its own would, and end."""
        code = 1
        try:
            signal.alarm(LONGEST)
            redirect(folder)
            os.chdir(self.root)
            code = exit_code_of(function)
        finally:
            os._exit(code)


@dataclass(frozen=True)
class Started:
    """A fork that is at work."""

    child: int
    folder: Path

    def said(self) -> str:
        return read(self.folder / "err")

    def wait(self) -> Outcome:
        return self.ended(os.waitstatus_to_exitcode(os.waitpid(self.child, 0)[1]))

    def poll(self) -> Outcome | None:
        found, status = os.waitpid(self.child, os.WNOHANG)
        return self.ended(os.waitstatus_to_exitcode(status)) if found else None

    def ended(self, code: int) -> Outcome:
        outcome = Outcome(code, read(self.folder / "out"), read(self.folder / "err"))
        shutil.rmtree(self.folder, ignore_errors=True)
        return outcome


def redirect(folder: Path) -> None:
    """Let the standard output and error of this process go into files."""
    for descriptor, name in ((1, "out"), (2, "err")):
        handle = os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(handle, descriptor)
    sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, closefd=False)  # noqa: SIM115


def run_words(words: tuple[object, ...]) -> None:
    """The command line, in this process; or a function in its place, whose errors it prints as it does."""
    import happier.cli

    first, *rest = words
    if callable(first):
        happier.cli.app = lambda **_: first(*rest)  # type: ignore[assignment]
    else:
        sys.argv = ["happier", *map(str, words)]
    happier.cli.main()


def name_of(words: tuple[object, ...]) -> str:
    """What to call a command or a function."""
    return str(getattr(words[0], "__name__", words[0]))


def value_or_error(function: Callable[[], Any]) -> Any:
    """What a function gives; an error of ours as a text."""
    from happier.errors import HappierError

    try:
        return function()
    except HappierError as error:
        return f"error: {error}"


def read(path: Path) -> str:
    return path.read_text(errors="replace") if path.exists() else ""
