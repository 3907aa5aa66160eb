"""One place turns what a disk refuses into one line: full, read-only, a name too long, not a directory.

Libraries that raise exceptions of their own for a full disk (torch, faiss, numpy, safetensors) are recognised
by the text of those.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from happier.errors import DataError

__all__ = ["disk_errors", "disk_fault"]

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
# Kinds of OSError that are about something else than a disk.
_NO_DISK = (ConnectionError, TimeoutError, ChildProcessError, ProcessLookupError, BlockingIOError)
# How libraries that do not raise OSError say that a file could not be written: the system's own words, or
# those of torch and numpy.
_FULL_WORDS = (
    os.strerror(errno.ENOSPC),
    os.strerror(errno.EDQUOT),
    os.strerror(errno.EFBIG),
    "PytorchStreamWriter failed writing",
    "file write failed",
    "iostream error",
    " requested and ",
    "unexpected pos",
)
_OTHER_WORDS = (os.strerror(errno.EROFS), os.strerror(errno.EIO))


@contextmanager
def disk_errors(path: Path | str, *, error: type[Exception] = DataError, hint: str = "") -> Iterator[None]:
    """Turn a full, read-only or otherwise unusable disk into an error that names the place.

    Args:
        path: what is being written.
        error: the class to raise.
        hint: what to do about it; by default by the kind of the fault.

    Raises:
        error: raised instead of the system's own error, or of a library's (`disk_fault`).
    """
    try:
        yield
    except Exception as cause:
        fault = disk_fault(cause, path)
        if fault is None:
            raise
        raise error(f"cannot write {path}: {fault[0]}; {hint or fault[1]}") from cause


def disk_fault(cause: BaseException, path: Path | str = "") -> tuple[str, str] | None:
    """What happened and what to do about it, where an exception says that a file cannot be read or written.

    torch, faiss, safetensors and others have exceptions of their own for a full disk: those are recognised by
    their text. Anything else is a bug of ours and gives None.

    Args:
        cause: what was raised.
        path: what was being written; another file that the exception names becomes part of the message.
    """
    if isinstance(cause, OSError) and cause.errno is not None:
        if isinstance(cause, _NO_DISK):
            return None
        what = cause.strerror or os.strerror(cause.errno)
        named = cause.filename2 or cause.filename
        if isinstance(named, (str, bytes)) and path:
            other = os.fsdecode(named)
            if other != str(path) and ".part" not in other:
                what += f" ({other})"
        return what, _advice(full=cause.errno in _FULL)
    text = str(cause)
    if any(words in text for words in _FULL_WORDS):
        return os.strerror(errno.ENOSPC), _advice(full=True)
    if any(words in text for words in _OTHER_WORDS):
        return text.strip().partition("\n")[0][:200], _advice(full=False)
    return None


def _advice(*, full: bool) -> str:
    return "free some space, then run it again" if full else "choose a place that you may write to"
