"""An index on disk: which files there are, and how a change becomes visible all at once.

    INDEX/
      index.json              names the files below; replacing it is the moment a change takes place
      items-<n>.parquet       a manifest of the images, with the row of each in the vector file
      vectors-<n>.f32         float32 rows, appended to; rows past index.json's count are ignored
      engine-<n>.faiss        the engine's own file, where it has one
      model/                  the model that made the vectors, so that new images can be embedded

Files are written and flushed first, then ``index.json`` is replaced, then the old files go. A reader that
has the old files open keeps reading them. Nothing here is a pickle.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from happier.errors import SearchError
from happier.search.engine import Vectors

FORMAT = 1
HEAD = "index.json"


@dataclass(frozen=True)
class Head:
    """What ``index.json`` says.

    Attributes:
        uid: random name of the index; with the generation it names one state of it.
        generation: counts the changes.
        rows: rows of the vector file that count.
        dim: length of a vector.
        fingerprint: of the model's weights.
        root: folder that the images' relative paths are against.
        engine: name of the engine.
        options: the engine's options as given when the index was built.
        settings: what the engine needs to be opened again.
        items, vectors: file names.
        model: name of the model's folder, or None.
    """

    uid: str
    generation: int
    rows: int
    dim: int
    fingerprint: str
    root: str
    engine: str
    options: dict[str, Any]
    settings: dict[str, Any]
    items: str
    vectors: str
    model: str | None
    format: int = field(default=FORMAT)


def read_head(directory: Path) -> Head:
    """Read and check ``index.json``.

    Raises:
        SearchError: not an index, or one of another format.
    """
    path = directory / HEAD
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise SearchError(
            f"no index at {directory}; build one with `happier index RUN MANIFEST -o {directory}`"
        ) from None
    except (OSError, ValueError) as error:
        raise SearchError(f"cannot read {path}: {error}") from error
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise SearchError(f"{path} is not of format {FORMAT}; build the index again with this version")
    try:
        head = Head(**content)
    except TypeError as error:
        raise SearchError(f"{path} is damaged: {error}") from error
    for name in (head.items, head.vectors, head.model or "model", head.settings.get("file", "engine")):
        # Names, never paths: an index from elsewhere must not point outside itself.
        if Path(name).name != name or name in (".", ".."):
            raise SearchError(f"{path} names the file {name!r}, which is not a plain name inside the index")
    return head


def write_head(directory: Path, head: Head) -> None:
    """Replace ``index.json``: the commit."""
    handle, name = tempfile.mkstemp(dir=directory, prefix=f".{HEAD}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(asdict(head), file, indent=2, ensure_ascii=False)
            file.flush()
            os.fsync(file.fileno())
        Path(name).chmod(0o644)
        Path(name).replace(directory / HEAD)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    sync(directory)


def open_vectors(directory: Path, head: Head) -> Vectors:
    """The vector file as a read-only array ``[rows, D]`` that is paged in as it is used.

    Raises:
        SearchError: the file is missing or too short.
    """
    path = directory / head.vectors
    try:
        return np.memmap(path, dtype=np.float32, mode="r", shape=(head.rows, head.dim))
    except (OSError, ValueError) as error:
        raise SearchError(
            f"{path} is missing or shorter than {head.rows} rows: build the index again"
        ) from error


def append_vectors(path: Path, vectors: Vectors, *, after: int) -> None:
    """Write rows behind the first ``after`` rows; what an interrupted addition left there is cut off.

    Raises:
        SearchError: the file has fewer rows than it should.
    """
    start = after * vectors.shape[1] * 4
    with path.open("r+b" if after else "wb") as file:
        if os.fstat(file.fileno()).st_size < start:
            raise SearchError(f"{path} has fewer than {after} rows: build the index again")
        file.truncate(start)
        file.seek(start)
        step = max(1, (16 << 20) // (4 * vectors.shape[1]))
        for first in range(0, len(vectors), step):
            file.write(np.ascontiguousarray(vectors[first : first + step], dtype="<f4").data)
        file.flush()
        os.fsync(file.fileno())


def sync(path: Path) -> None:
    """Flush a file or a folder's entries to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def remove_stale(directory: Path, head: Head) -> None:
    """Remove the files of earlier states."""
    keep = {head.items, head.vectors, head.settings.get("file"), HEAD}
    for path in directory.iterdir():
        ours = path.name.startswith(("items-", "vectors-", "engine-", f".{HEAD}."))
        if ours and path.name not in keep and path.is_file():
            path.unlink(missing_ok=True)


@contextmanager
def new_directory(path: Path, *, overwrite: bool) -> Iterator[Path]:
    """Yield a folder to fill that becomes ``path`` when the block ends without an error.

    Raises:
        SearchError: something is already there and may not be replaced, or the place cannot be written to.
    """
    check_target(path, overwrite=overwrite)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part"))
    except OSError as error:
        raise SearchError(f"cannot write {path}: {error.strerror}") from error
    try:
        part.chmod(0o755)
        yield part
        for file in part.rglob("*"):
            sync(file)
        sync(part)
        old = part.with_suffix(".old")
        if path.exists():
            path.rename(old)
        try:
            part.rename(path)
        except OSError:
            if old.exists():
                old.rename(path)
            raise
        sync(path.parent)
        shutil.rmtree(old, ignore_errors=True)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def check_target(path: Path, *, overwrite: bool) -> None:
    """See that an index may be written here.

    Raises:
        SearchError: something is already there and may not be replaced.
    """
    if not path.exists() and not path.is_symlink():
        return
    empty = path.is_dir() and not any(path.iterdir())
    # Only ever replace what is an index: a mistyped path must not cost anybody a folder.
    if not empty and not (overwrite and (path / HEAD).is_file()):
        hint = "--overwrite replaces an index" if (path / HEAD).is_file() else "it is not an index"
        raise SearchError(f"{path} is already there; {hint}")
