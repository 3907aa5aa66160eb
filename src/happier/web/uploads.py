"""Images that people search with: small copies and vectors, in memory, for a while."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable
from dataclasses import dataclass

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

VectorsByModel = dict[str, npt.NDArray[np.float32]]


@dataclass(frozen=True)
class Upload:
    """An uploaded image: a small copy and one vector per model."""

    key: str
    name: str
    thumbnail: bytes
    vectors: VectorsByModel


class Uploads:
    """The most recent uploads.

    Args:
        embed: the vectors of an image, one per model.
        limit: how many to keep.
    """

    def __init__(self, embed: Callable[[Image], VectorsByModel], limit: int = MAX_UPLOADS) -> None:
        self._embed = embed
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
            if (upload := self._kept.get(key)) is not None:
                return upload
            made = self._by_content.get(content)
        if made is None:
            image = images.decode(data, name="the upload", about=DECODED_SIZE)
            made = images.encode(image, DECODED_SIZE // 2), self._embed(image)
        upload = Upload(key, name, *made)
        with self._lock:
            self._kept[key], self._by_content[content] = upload, made
        return upload

    def get(self, key: str) -> Upload:
        """An image that was uploaded before.

        Raises:
            SearchError: it is no longer kept.
        """
        with self._lock:
            upload = self._kept.get(key)
        if upload is None:
            raise SearchError("this upload has expired; choose the image again")
        return upload
