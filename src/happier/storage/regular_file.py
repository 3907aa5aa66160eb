"""Regular files only: a pipe or a device under a file's name neither blocks a reader nor fills the memory."""

from __future__ import annotations

import errno
import os
import stat
import sys
from pathlib import Path
from typing import BinaryIO

__all__ = ["open_regular", "read_regular"]


def open_regular(path: Path | str, *, largest: int = sys.maxsize) -> BinaryIO:
    """Open a regular file for reading; links are followed.

    Args:
        path: the file.
        largest: the most bytes that it may have; by default any number.

    Raises:
        OSError: it cannot be opened, is not a regular file, or is larger; ``strerror`` says which.
    """
    try:
        # Before it is opened, since opening a device may set it in motion ...
        _check(Path(path).stat(), largest)
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except ValueError as error:  # a NUL character, or text that cannot be a file name
        raise OSError(errno.EINVAL, str(error)) from error
    try:
        # ... and of what was opened, since the name may lead elsewhere by now.
        _check(os.fstat(handle), largest)
        return os.fdopen(handle, "rb")
    except BaseException:
        os.close(handle)
        raise


def read_regular(path: Path | str, *, largest: int) -> bytes:
    """All bytes of a regular file.

    Raises:
        OSError: as `open_regular`.
    """
    with open_regular(path, largest=largest) as file:
        data = file.read(largest + 1)
    if len(data) > largest:  # it grew, or has no known size (/proc)
        raise _too_large(largest)
    return data


def _check(status: os.stat_result, largest: int) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "not a regular file")
    if status.st_size > largest:
        raise _too_large(largest)


def _too_large(largest: int) -> OSError:
    size = f"{largest >> 20} MiB" if largest >= 1 << 20 else f"{largest} bytes"
    return OSError(errno.EFBIG, f"larger than {size}")
