"""Image bytes in, small web images out; nothing of a file is ever passed on as it is.

Every image that leaves the server is decoded and encoded anew, so that neither scripts in an SVG nor the
place in a photograph's EXIF data reach the browser. Only raster formats are opened, and only up to a number
of pixels.
"""

from __future__ import annotations

import io
import warnings
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from threading import Lock

from PIL import Image, UnidentifiedImageError

from happier.data.image import as_rgb
from happier.errors import ImageError

MAX_PIXELS = 40_000_000
MAX_FILE_BYTES = 64 << 20
FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "AVIF", "PPM")


def decode(data: bytes, *, name: str, max_pixels: int = MAX_PIXELS, about: int | None = None) -> Image.Image:
    """An upright RGB image from a file's bytes; transparent parts become white.

    Args:
        data: the file.
        name: how errors call it.
        max_pixels: refuse larger ones before any pixel is decoded.
        about: a JPEG may be decoded at a fraction of its size, but not below this many pixels a side.

    Raises:
        ImageError: not an image of a known raster format, damaged, or too large.
    """
    try:
        with warnings.catch_warnings():
            # We have our own limit; PIL's would otherwise warn at half of its own.
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            opened = Image.open(io.BytesIO(data), formats=FORMATS)
            width, height = opened.size
            if width * height > max_pixels:
                raise ImageError(
                    f"{name} has {width} x {height} pixels, more than the {max_pixels:,} that are accepted"
                )
            if about is not None:
                opened.draft("RGB", (about, about))
            # As in training and indexing: the same picture must give the same vector.
            return as_rgb(opened)
    except UnidentifiedImageError as error:
        raise ImageError(f"{name} is not an image ({', '.join(FORMATS)})") from error
    except ImageError:
        raise
    # Decoders meet hostile bytes here, and raise almost anything on them.
    except Exception as error:
        raise ImageError(f"{name} cannot be decoded: it is damaged or cut short") from error


def encode(image: Image.Image, size: int) -> bytes:
    """A WebP of at most ``size`` pixels a side; small images keep their own size."""
    small = image.copy()
    small.thumbnail((size, size), Image.Resampling.LANCZOS)
    buffer = io.BytesIO()
    small.save(buffer, "WEBP", quality=88, method=2)
    return buffer.getvalue()


def read_inside(path: Path, roots: Sequence[Path]) -> bytes:
    """The bytes of a file that really lies inside one of the folders.

    Links are followed first and the place they lead to is what counts, so a link out of the folders is
    refused.

    Raises:
        ImageError: outside the folders, missing, not a plain file, or too large.
    """
    try:
        real = path.resolve(strict=True)
        if not any(real.is_relative_to(root) for root in roots):
            raise ImageError(
                f"the image {path.name} lies outside the index's image folder; "
                "start the server with --images FOLDER to allow its own"
            )
        if not real.is_file():
            raise ImageError(f"the image {path.name} is not a file")
        if real.stat().st_size > MAX_FILE_BYTES:
            raise ImageError(f"the image {path.name} has more than {MAX_FILE_BYTES >> 20} MiB")
        return real.read_bytes()
    except (OSError, ValueError, RuntimeError) as error:
        raise ImageError(f"the image {path.name} is gone or cannot be read") from error


class ByteCache:
    """The most recently used values, up to a number of bytes in all."""

    def __init__(self, max_bytes: int) -> None:
        self._max = max_bytes
        self._size = 0
        self._lock = Lock()
        self._values: OrderedDict[object, bytes] = OrderedDict()

    def get(self, key: object) -> bytes | None:
        """The value, now the most recent one; None where there is none."""
        with self._lock:
            value = self._values.get(key)
            if value is not None:
                self._values.move_to_end(key)
            return value

    def put(self, key: object, value: bytes) -> None:
        """Keep a value, dropping the oldest ones where it would be too much."""
        with self._lock:
            self._size += len(value) - len(self._values.pop(key, b""))
            self._values[key] = value
            while self._size > self._max:
                _, dropped = self._values.popitem(last=False)
                self._size -= len(dropped)
