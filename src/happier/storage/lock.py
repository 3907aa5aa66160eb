"""One writer at a time for everything on disk that changes.

A lock is a file ``.lock`` inside the directory that it guards, or ``.NAME.lock`` beside a single file. The
system releases it when its process ends, however that ends; the file itself stays and says who held it last.
Readers take no lock: writers never change a file that a reader may have open.
"""

from __future__ import annotations

import logging
import os
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from happier.errors import BusyError
from happier.storage.atomic import LOCK_FILE, make_folder
from happier.storage.disk_errors import disk_errors

__all__ = ["LOCK_FILE", "locked", "locked_file"]

log = logging.getLogger(__name__)


class _Held:
    """The lock of one directory in this process: its threads take turns, one thread may take it again."""

    def __init__(self, path: Path) -> None:
        self.threads = threading.RLock()
        self.file = FileLock(path, thread_local=False)
        self.depth = 0
        self.forked = False


_held: dict[Path, _Held] = {}
_registry = threading.Lock()


def _forget_after_fork() -> None:
    """A fork holds none of its parent's locks, and none of the threads that hold them exist in it."""
    global _registry
    _registry = threading.Lock()
    for held in _held.values():
        held.forked = True
    _held.clear()


os.register_at_fork(after_in_child=_forget_after_fork)


@contextmanager
def locked(directory: Path | str, *, wait: bool = True) -> Iterator[None]:
    """Hold the lock of a directory, which is made where it is missing.

    A thread that holds the lock may take it again. A lock goes with its folder when `atomic_folder` replaces
    that.

    Args:
        directory: what is about to be changed.
        wait: wait for another writer, after saying for whom; else fail at once.

    Raises:
        BusyError: another writer is at work, and ``wait`` is off.
        DataError: the lock cannot be written there.
    """
    directory = Path(directory)
    with disk_errors(directory):
        make_folder(directory)
        lock = directory.resolve() / LOCK_FILE
    with _holding(lock, directory, wait=wait):
        yield


@contextmanager
def locked_file(path: Path | str) -> Iterator[None]:
    """Hold the lock of one file that is read, changed and written back; waits for another writer.

    Raises:
        DataError: the lock cannot be written there.
    """
    path = Path(path)
    with disk_errors(path):
        target = path.resolve()
        make_folder(target.parent)
    with _holding(target.with_name(f".{target.name}{LOCK_FILE}"), path, wait=True):
        yield


@contextmanager
def _holding(path: Path, target: Path, *, wait: bool) -> Iterator[None]:
    with disk_errors(target):
        with _registry:
            held = _held.setdefault(path, _Held(path))
        if not held.threads.acquire(blocking=False):
            if not wait:
                raise BusyError(f"{target} is being changed by another thread of this process")
            log.warning("waiting for another thread, which is changing %s", target)
            held.threads.acquire()
        try:
            if held.depth == 0:
                _acquire(held.file, target, path, wait=wait)
            held.depth += 1
        except BaseException:
            held.threads.release()
            raise
    try:
        yield
    finally:
        if not held.forked:  # else this is a fork of the holder, which still holds it
            held.depth -= 1
            if held.depth == 0:
                held.file.release()
            held.threads.release()


def _acquire(lock: FileLock, target: Path, path: Path, *, wait: bool) -> None:
    try:
        lock.acquire(timeout=0)
    except Timeout:
        owner = _owner(path)
        if not wait:
            raise BusyError(f"{target} is being changed by {owner}; try again when it has finished") from None
        log.warning("waiting for %s, which is changing %s", owner, target)
        lock.acquire(poll_interval=0.05)
    # Only a courtesy to those who wait: on a full disk the lock holds all the same.
    with suppress(OSError):
        text = f"process {os.getpid()} on {socket.gethostname()}: {' '.join(sys.argv)[:200]}\n"
        path.write_text(text, encoding="utf-8", errors="replace")


def _owner(path: Path) -> str:
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            return " ".join(file.read(400).split()) or "another process"
    except OSError:
        return "another process"
