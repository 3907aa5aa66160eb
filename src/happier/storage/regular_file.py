"""Regular files only: a pipe or a device under a file's name neither blocks a reader nor fills the memory.

    shards/train-000.tar@1536+20480     the 20,480 bytes from byte 1,536 on of a file that holds many images

A part of a tar or Arrow file is read as if it were a file of its own.
"""

from __future__ import annotations

import errno
import io
import os
import re
import stat
import sys
from pathlib import Path
from typing import BinaryIO

__all__ = ["containing_file", "open_regular", "part_of_file", "read_regular"]

_PART = re.compile(r"(?P<file>.+\.(?:tar|arrow))@(?P<start>\d{1,18})\+(?P<length>\d{1,18})", re.DOTALL)


def part_of_file(file: str, start: int, length: int) -> str:
    """The name of a part of a tar or Arrow file.

    >>> part_of_file("train-000.tar", 1536, 20480)
    'train-000.tar@1536+20480'
    """
    name = f"{file}@{start}+{length}"
    assert _PART.fullmatch(name)
    return name


def containing_file(path: Path | str) -> Path:
    """The file that has these bytes: the path itself, or the file that it names a part of.

    >>> containing_file("train-000.tar@1536+20480").name, containing_file("a.jpg").name
    ('train-000.tar', 'a.jpg')
    """
    part = _PART.fullmatch(str(path))
    return Path(path) if part is None else Path(part["file"])


def open_regular(path: Path | str, *, largest: int = sys.maxsize) -> BinaryIO:
    """Open a regular file, or a part of one, for reading; links are followed.

    Args:
        path: the file.
        largest: the most bytes that it may have; by default any number.

    Raises:
        OSError: it cannot be opened, is not a regular file, or is larger; ``strerror`` says which.
    """
    if part := _PART.fullmatch(str(path)):
        return _open_part(part["file"], int(part["start"]), int(part["length"]), largest)
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


def _open_part(file: str, start: int, length: int, largest: int) -> BinaryIO:
    if length > largest:
        raise _too_large(largest)
    with open_regular(file) as whole:
        if start + length > os.fstat(whole.fileno()).st_size:
            raise OSError(errno.EINVAL, f"{file} ends before byte {start + length}; import it again")
        data = os.pread(whole.fileno(), length, start)
    if len(data) < length:
        raise OSError(errno.EIO, f"{file} was cut short while it was read")
    return io.BytesIO(data)


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
