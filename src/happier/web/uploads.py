"""Images that people search with: small copies and vectors, in memory, for a while."""

from __future__ import annotations

import hashlib
import re
import tempfile
import threading
import zipfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from cachetools import LRUCache
from PIL.Image import Image
from starlette.formparsers import MultiPartParser

from happier.errors import SearchError
from happier.web import images

MAX_UPLOADS = 128
# A JPEG is decoded at no fewer pixels a side; the stored copy has half of that.
DECODED_SIZE = 1024
# Starlette would write files above 1 MiB to the disk. Here they stay in memory; `BodyMiddleware` bounds them.
MultiPartParser.spool_max_size = 1 << 40

_VECTOR = "vector-"
_KEY = re.compile("[0-9a-f]{32}")
# By the model's fingerprint.
VectorsByModel = dict[str, npt.NDArray[np.float32]]


@dataclass(frozen=True)
class Upload:
    """An uploaded image: a small copy and one vector per model."""

    key: str
    name: str
    thumbnail: bytes
    vectors: VectorsByModel

    def vector(self, fingerprint: str) -> npt.NDArray[np.float32]:
        """Its vector by one model.

        Raises:
            SearchError: the model came later than the upload.
        """
        if fingerprint not in self.vectors:
            raise SearchError("the index has another model by now; choose the image again")
        return self.vectors[fingerprint]


class Uploads:
    """The most recent uploads.

    Args:
        embed: the vectors of an image, one per model.
        limit: how many to keep.
        models: fingerprints of the models that are searched with now.
        folder: in which several processes share them; None keeps them in this one.
    """

    def __init__(
        self,
        embed: Callable[[Image], VectorsByModel],
        limit: int = MAX_UPLOADS,
        *,
        models: Callable[[], Iterable[str]] = tuple,
        folder: Path | None = None,
    ) -> None:
        self._embed, self._limit, self._models = embed, limit, models
        self._folder = folder
        self._kept: LRUCache[str, Upload] = LRUCache(limit)
        self._by_content: LRUCache[bytes, tuple[bytes, VectorsByModel]] = LRUCache(limit)
        self._lock = threading.Lock()

    def add(self, data: bytes, name: str) -> Upload:
        """Add an image.

        The key depends on the bytes and on the name: the same file gets the same address, and the name that
        another user gave to the same image is not disclosed.

        Raises:
            ImageError: not an image, damaged, or too large.
            SearchError: an index has no model.
        """
        content = hashlib.sha256(data).digest()
        key = hashlib.sha256(content + name.encode(errors="surrogateescape")).hexdigest()[:32]
        with self._lock:
            if (upload := self._kept.get(key)) is not None and self._fits(upload.vectors):
                return upload
            made = self._by_content.get(content)
        if made is not None and not self._fits(made[1]):
            made = None
        if made is None:
            image = images.decode(data, name="the upload", about=DECODED_SIZE)
            made = images.encode(image, DECODED_SIZE // 2), self._embed(image)
        upload = Upload(key, name, *made)
        with self._lock:
            self._kept[key], self._by_content[content] = upload, made
        if self._folder is not None:
            self._share(upload, self._folder)
        return upload

    def _fits(self, vectors: VectorsByModel) -> bool:
        return all(model in vectors for model in self._models())

    def get(self, key: str) -> Upload:
        """An image that was uploaded before.

        Raises:
            SearchError: it is no longer kept.
        """
        with self._lock:
            upload = self._kept.get(key)
        if upload is None and self._folder is not None and _KEY.fullmatch(key):
            upload = _read_shared(self._folder / f"{key}.npz")
            if upload is not None:
                with self._lock:
                    self._kept[key] = upload
        if upload is None:
            raise SearchError("this upload has expired; choose the image again")
        return upload

    def _share(self, upload: Upload, folder: Path) -> None:
        """Write an upload for the other processes, and remove the oldest."""
        with tempfile.NamedTemporaryFile(dir=folder, suffix=".part", delete=False) as part:
            np.savez(
                part,
                allow_pickle=False,
                name=np.frombuffer(upload.name.encode(errors="surrogateescape"), np.uint8),
                thumbnail=np.frombuffer(upload.thumbnail, np.uint8),
                **{f"{_VECTOR}{one}": vector for one, vector in upload.vectors.items()},
            )
        Path(part.name).replace(folder / f"{upload.key}.npz")
        shared = sorted(folder.glob("*.npz"), key=_made)
        for old in shared[: -self._limit]:
            old.unlink(missing_ok=True)


def _made(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:  # another process removed it
        return 0


def _read_shared(path: Path) -> Upload | None:
    try:
        with np.load(path, allow_pickle=False) as file:
            vectors = {
                name.removeprefix(_VECTOR): file[name] for name in file.files if name.startswith(_VECTOR)
            }
            name = file["name"].tobytes().decode(errors="surrogateescape")
            return Upload(path.stem, name, file["thumbnail"].tobytes(), vectors)
    except (OSError, ValueError, KeyError, zipfile.BadZipFile):  # gone, or not whole
        return None
