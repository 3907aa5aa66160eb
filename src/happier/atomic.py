"""Files and folders that appear whole or not at all."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from happier.errors import DataError


@contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """Yield a path to write to; it takes the place of ``path`` only when the block ends without an error.

    Raises:
        DataError: the folder cannot be made or written to.
    """
    path = Path(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
        os.close(handle)
    except OSError as error:
        raise DataError(
            f"cannot write {path}: {error.strerror}; choose a place that you may write to"
        ) from error
    part = Path(name)
    try:
        yield part
        # mkstemp makes files private; a manifest is as readable as any other new file.
        part.chmod(0o666 & ~_umask())
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


@contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """Yield an empty folder to fill; it becomes ``path`` only when the block ends without an error.

    Where another process finished the same folder first, that one is kept and ours is dropped.

    Raises:
        DataError: the parent folder cannot be made or written to.
    """
    path = Path(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part"))
    except OSError as error:
        raise DataError(
            f"cannot write {path}: {error.strerror}; choose a place that you may write to"
        ) from error
    try:
        yield part
        part.chmod(0o777 & ~_umask())
        try:
            part.rename(path)
        except OSError:
            if not path.is_dir():
                raise
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
