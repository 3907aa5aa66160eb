"""Image bytes in, small web images out; no file is ever passed on unchanged.

Every image that leaves the server is decoded and re-encoded, so that neither scripts in an SVG nor the
location in a photograph's EXIF data reach the browser. Only raster formats are opened, up to a number of
pixels.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from PIL import Image, UnidentifiedImageError

from happier.data.image import FORMATS, as_rgb, open_image
from happier.errors import ImageError
from happier.storage.regular_file import containing_file, read_regular

MAX_PIXELS = 40_000_000
MAX_FILE_BYTES = 64 << 20


def decode(data: bytes, *, name: str, max_pixels: int = MAX_PIXELS, about: int | None = None) -> Image.Image:
    """An upright RGB image from a file's bytes; transparent parts become white.

    Args:
        data: the file.
        name: for error messages.
        max_pixels: refuse larger ones before any pixel is decoded.
        about: a JPEG may be decoded at a fraction of its size, but not below this many pixels a side.

    Raises:
        ImageError: not an image of a known raster format, damaged, or too large.
    """
    try:
        with warnings.catch_warnings():
            # We have our own limit; PIL's would otherwise warn at half of its own.
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            opened = open_image(data)
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
    # On hostile bytes decoders can raise almost anything.
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
    """The bytes of a file that is inside one of the folders.

    Raises:
        ImageError: outside the folders, missing, not a plain file, or too large.
    """
    with _readable(path):
        return read_regular(file_inside(path, roots), largest=MAX_FILE_BYTES)


def file_inside(path: Path, roots: Sequence[Path]) -> Path:
    """A file that is inside one of the folders, without links on its way.

    Links are resolved first, so a link that leads out of the folders is refused.

    Raises:
        ImageError: outside the folders, or missing.
    """
    with _readable(path):
        holder = containing_file(path)
        real = holder.resolve(strict=True)
        if not any(real.is_relative_to(root) for root in roots):
            raise ImageError(
                f"the image {path.name} is outside the index's image folder; "
                "start the server with --images FOLDER to allow another"
            )
        return Path(f"{real}{str(path)[len(str(holder)) :]}")


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError, RuntimeError) as error:
        reason = f": {error.strerror}" if isinstance(error, OSError) else ""
        raise ImageError(f"the image {path.name} is missing or cannot be read{reason}") from error
