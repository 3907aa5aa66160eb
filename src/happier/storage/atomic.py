"""Files and folders that appear whole or not at all, also after a kill or a power cut.

What is written goes first into a scratch folder beside its target, is flushed to the disk, and is then
renamed over the target: a reader sees the old content or the new. The writer holds a system lock on its
scratch folder, which ends with its process; so the next writer of the same target can tell what killed
processes left behind, and removes it.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import secrets
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from happier.storage.disk_errors import disk_errors

__all__ = [
    "LOCK_FILE",
    "atomic_file",
    "atomic_folder",
    "is_leftover",
    "make_folder",
    "remove",
    "remove_leftovers",
    "reserve",
    "scratch_folder",
    "sync",
]

LOCK_FILE = ".lock"
_SUFFIX = ".part"
_ASIDE = ".aside"
# The longest name of most file systems is 255 bytes; ours add some 25 to their target's.
_LONGEST_NAME = 200
# How long a pipe may take to find its reader.
_READER_SECONDS = 5.0
# Above this, flushing the whole file system at once is faster than flushing each file.
_MANY_FILES = 256


@contextmanager
def atomic_file(path: Path | str) -> Iterator[Path]:
    """Yield a path to write to; it takes the place of ``path`` only when the block ends without an error.

    The path has the target's name, in a folder of its own. Where ``path`` is a link, its target is replaced;
    a device gets the content, and so does a pipe that somebody reads.

    Raises:
        DataError: the file cannot be written there.
    """
    path = Path(path)
    with disk_errors(path):
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, "it is a directory")
        if _is_stream(path):
            with tempfile.TemporaryDirectory() as folder:
                part = Path(folder) / "content"
                yield part
                with part.open("rb") as source, _open_stream(path) as target:
                    shutil.copyfileobj(source, target)
            return
        path = _target(path)
        with scratch_folder(path) as folder_beside:
            part = folder_beside / path.name
            yield part
            sync(part)
            part.replace(path)
            sync(path.parent)


@contextmanager
def atomic_folder(path: Path | str, *, replace: bool = False) -> Iterator[Path]:
    """Yield an empty folder to fill; it becomes ``path`` only when the block ends without an error.

    A folder that holds nothing but its lock counts as missing. A lock is kept: who holds that of the old
    folder holds that of the new one.

    Args:
        path: the folder to make.
        replace: take the place of an existing folder, in one step where the file system can exchange two
            names. Otherwise the folder that another process finished first is kept, and ours is dropped.

    Raises:
        DataError: the folder cannot be written there.
    """
    path = Path(path)
    with disk_errors(path):
        path = _target(path)
        if path.exists() and not path.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, "it is a file")
        with scratch_folder(path) as part:
            yield part
            _sync_all(part)
            _move_into_place(part, path, replace=replace)
            sync(path.parent)


def _move_into_place(part: Path, path: Path, *, replace: bool) -> None:
    while True:
        if path.is_dir():
            if not replace and not _is_vacant(path):
                return
            _keep_lock(path, part)
            try:
                _exchange(part, path)
                return
            except FileNotFoundError:
                if path.is_dir():
                    raise
                continue  # removed by somebody else in this moment
        try:
            part.rename(path)
            return
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            # made by somebody else in this moment


def _is_vacant(folder: Path) -> bool:
    return all(entry.name == LOCK_FILE for entry in folder.iterdir())


def _keep_lock(old: Path, new: Path) -> None:
    """The same lock file in both folders: a holder or waiter keeps it across the exchange."""
    lock = new / LOCK_FILE
    with suppress(FileNotFoundError):
        if lock.exists():
            if lock.samefile(old / LOCK_FILE):
                return
            lock.unlink()
        os.link(old / LOCK_FILE, lock)


@contextmanager
def scratch_folder(path: Path | str) -> Iterator[Path]:
    """Yield an empty folder beside ``path``, on the same disk; it is gone when the block ends.

    Raises:
        DataError: it cannot be made there.
    """
    path = Path(path)
    with disk_errors(path):
        make_folder(path.parent)
        remove_leftovers(path)
        part, handle = _new_folder(path)
    owner = os.getpid()
    try:
        yield part
    finally:
        if os.getpid() == owner:  # a fork of the writer that ends leaves the writer's work alone
            remove(part)
        os.close(handle)


def make_folder(path: Path) -> None:
    """Make a folder and those above it, where they are missing.

    Raises:
        OSError: it cannot be made; a file in its place is named.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path)) from None


def _new_folder(path: Path) -> tuple[Path, int]:
    """A folder beside ``path`` of this writer alone, and the descriptor that holds its lock."""
    while True:
        part = path.parent / f"{_prefix(path)}{secrets.token_hex(4)}{_SUFFIX}"
        try:
            part.mkdir()
        except FileExistsError:
            continue
        try:
            handle = os.open(part, os.O_RDONLY | os.O_DIRECTORY)
        except FileNotFoundError:
            continue
        fcntl.flock(handle, fcntl.LOCK_EX)
        # Between the two steps it looks like a leftover, and somebody may have removed it.
        with suppress(FileNotFoundError):
            if os.path.samestat(part.stat(), os.fstat(handle)):
                return part, handle
        os.close(handle)


def remove_leftovers(path: Path | str) -> None:
    """Remove what killed writers of ``path`` left beside it; what a living one is writing stays."""
    path = Path(path)
    _restore(path)
    try:
        entries = list(path.parent.iterdir())
    except OSError:  # not there, or not ours to look into
        return
    for entry in entries:
        if is_leftover(entry, path):
            _remove_leftover(entry)


def is_leftover(entry: Path, path: Path) -> bool:
    """Whether the name of ``entry``, which is beside ``path``, is that of a scratch folder of its writer."""
    return entry.name.startswith(_prefix(path)) and entry.name.endswith(_SUFFIX)


def _remove_leftover(left: Path) -> None:
    try:
        handle = os.open(left, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        remove(left)
    except OSError:  # held by a living process, or not ours to remove
        return
    finally:
        os.close(handle)


def remove(path: Path) -> None:
    """Remove a file, or a folder with everything in it, where it is there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def reserve(path: Path, size: int) -> None:
    """Make a file of ``size`` bytes whose space is really there: a full disk shows now, not as a crash later.

    Raises:
        OSError: there is not enough space.
    """
    with path.open("wb") as file:
        if not size:
            return
        try:
            os.posix_fallocate(file.fileno(), 0, size)
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS):
                raise
            zeros = bytes(1 << 20)
            for start in range(0, size, len(zeros)):
                file.write(zeros[: size - start])


def sync(path: Path) -> None:
    """Flush a file, or a folder's entries, to the disk."""
    try:
        handle = os.open(path, os.O_RDONLY)
    except PermissionError:
        if path.is_dir():  # one may write into a folder without being allowed to list it
            return
        raise
    try:
        os.fsync(handle)
    except OSError as error:
        # A file system that cannot flush a folder.
        if error.errno not in (errno.EINVAL, errno.EBADF, errno.EOPNOTSUPP) or not path.is_dir():
            raise
    finally:
        os.close(handle)


def _sync_all(folder: Path) -> None:
    """Flush a folder with everything in it."""
    found = [folder]
    for parent, folders, files in os.walk(folder):
        found.extend(Path(parent) / name for name in folders)
        found.extend(Path(parent) / name for name in files)
    if len(found) > _MANY_FILES and _sync_file_system(folder):
        return
    for entry in found:
        if stat.S_IFMT(entry.lstat().st_mode) in (stat.S_IFREG, stat.S_IFDIR):
            sync(entry)


def _sync_file_system(folder: Path) -> bool:
    syncfs = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
    if syncfs is None:
        return False
    handle = os.open(folder, os.O_RDONLY)
    try:
        if syncfs(handle) == 0:
            return True
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    finally:
        os.close(handle)


def _exchange(new: Path, old: Path) -> None:
    """Swap the names of two folders, in one step where the system can, else by way of a third name."""
    at_cwd, exchange = -100, 2
    renameat2 = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if renameat2 is not None:
        if renameat2(at_cwd, os.fsencode(new), at_cwd, os.fsencode(old), exchange) == 0:
            return
        if ctypes.get_errno() not in (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(new), None, str(old))
    aside = _aside(old)
    old.rename(aside)
    try:
        new.rename(old)
    except OSError:
        aside.rename(old)
        raise
    aside.rename(new)


def _aside(path: Path) -> Path:
    return path.parent / f"{_prefix(path)}{_ASIDE[1:]}"


def _restore(path: Path) -> None:
    """Finish an exchange in three steps that was killed: put the old folder back, or drop it."""
    aside = _aside(path)
    if aside.is_dir():
        if path.exists():
            remove(aside)
        else:
            with suppress(OSError):
                aside.rename(path)


def _prefix(path: Path) -> str:
    return "." + os.fsencode(path.name)[:_LONGEST_NAME].decode(errors="ignore") + "."


def _target(path: Path) -> Path:
    return path.resolve() if path.is_symlink() else path


def _open_stream(path: Path) -> BinaryIO:
    """Open a device or a pipe to write to.

    Raises:
        OSError: it cannot be opened, or nobody reads the pipe: a file of ours that became one must not block.
    """
    end = time.monotonic() + _READER_SECONDS
    while True:
        try:
            handle = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
            if time.monotonic() > end:
                raise OSError(errno.ENXIO, "it is a pipe without a reader") from None
            time.sleep(0.02)
            continue
        os.set_blocking(handle, True)
        return os.fdopen(handle, "wb")


def _is_stream(path: Path) -> bool:
    """Whether this is no file but a device, a pipe, or this process's own output."""
    if str(path) in ("/dev/stdout", "/dev/stderr") or str(path.parent.resolve()).startswith("/proc/"):
        return True
    try:
        return not stat.S_ISREG(path.stat().st_mode)
    except OSError:
        return False
