"""One image file of any kind -> upright RGB pixels, or an error that names its path.

Only regular files of at most `LARGEST_BYTES` are read, and only the raster formats `FORMATS` are opened: PIL
on its own would hand PostScript to an interpreter, whatever the file's name.
"""

from __future__ import annotations

import hashlib
import io
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image, ImageOps, UnidentifiedImageError
from torch import Tensor

from happier.errors import ImageError
from happier.storage.regular_file import read_regular

try:  # deprecated in torchvision: without it PIL decodes the same pixels, more slowly
    from torchvision.io import ImageReadMode, decode_jpeg
except ImportError:
    decode_jpeg = None

FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "AVIF", "PPM", "JPEG2000")
"""Raster formats, as PIL names them; a format that is not named is not opened."""
LARGEST_BYTES = 512 << 20
"""Size of the largest image file that is read."""

_ALPHA_MODES = {"RGBA", "LA", "PA", "RGBa", "La"}


def read_image(path: Path | str) -> Image.Image:
    """Read an image as upright 8-bit RGB.

    EXIF rotation is applied; transparent pixels are composited on white; grey, palette, CMYK, 16-bit and
    float images are converted; of an animation the first frame is used.

    Raises:
        ImageError: the file is missing, not a regular file, not in one of the `FORMATS`, damaged, or larger
            than `LARGEST_BYTES` or ``PIL.Image.MAX_IMAGE_PIXELS``.
    """
    opened = _open(path, _read_bytes(path))
    try:
        return as_rgb(opened)
    # Decoders raise almost anything on damaged bytes.
    except Exception as error:
        raise _broken(path, error) from error


def decode_image(path: Path | str, *, at_least: int | None = None) -> Tensor:
    """Read an image as an upright uint8 tensor ``[3, H, W]``: the pixels of `read_image`, faster for JPEG.

    Args:
        path: the file.
        at_least: a JPEG may be decoded at half, a quarter or an eighth of its size, as long as its shorter
            side stays at least this; much faster for large photographs.

    Raises:
        ImageError: as `read_image`.
    """
    return _decode(path, _read_bytes(path), at_least)


def content_hash(path: Path | str) -> str:
    """Decode an image in full and return a hash of its file's content.

    Raises:
        ImageError: as `read_image`.
    """
    data = _read_bytes(path)
    _decode(path, data, None)
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def _decode(path: Path | str, data: bytes, at_least: int | None) -> Tensor:
    opened = _open(path, data)
    try:
        if opened.format == "JPEG" and opened.mode in ("RGB", "L"):
            factor = min(opened.size) // at_least if at_least else 1
            if factor < 2 and decode_jpeg is not None:
                raw = torch.frombuffer(bytearray(data), dtype=torch.uint8)
                decoded: Tensor = decode_jpeg(raw, mode=ImageReadMode.RGB, apply_exif_orientation=True)
                return decoded
            scale = max(power for power in (1, 2, 4, 8) if power <= max(factor, 1))
            width, height = opened.size
            opened.draft(opened.mode, (width // scale, height // scale))
        pixels = np.array(as_rgb(opened))
    # Decoders raise almost anything on damaged bytes.
    except Exception as error:
        raise _broken(path, error) from error
    return torch.from_numpy(pixels).permute(2, 0, 1).contiguous()


def _read_bytes(path: Path | str) -> bytes:
    try:
        data = read_regular(path, largest=LARGEST_BYTES)
    except OSError as error:
        raise ImageError(f"cannot read the image {path}: {error.strerror}") from error
    if not data:
        raise ImageError(f"cannot read the image {path}: the file is empty")
    return data


def open_image(data: bytes) -> Image.Image:
    """Open an image of one of the raster `FORMATS` from a file's bytes; no pixel is decoded yet.

    Raises:
        PIL.UnidentifiedImageError: it has another format. On damaged bytes decoders raise almost anything.
    """
    return Image.open(io.BytesIO(data), formats=FORMATS)


def _open(path: Path | str, data: bytes) -> Image.Image:
    try:
        opened = open_image(data)
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise _too_large(path) from error
    except UnidentifiedImageError as error:
        raise ImageError(f"cannot read the image {path}: not an image ({', '.join(FORMATS)})") from error
    # Decoders raise almost anything on damaged bytes.
    except Exception as error:
        raise _broken(path, error) from error
    limit = Image.MAX_IMAGE_PIXELS
    if limit is not None and opened.width * opened.height > limit:
        raise _too_large(path)
    return opened


def _too_large(path: Path | str) -> ImageError:
    return ImageError(
        f"cannot read the image {path}: it has more than {Image.MAX_IMAGE_PIXELS:,} pixels, as decompression "
        "bombs do; scale it down, or raise PIL.Image.MAX_IMAGE_PIXELS if you trust it"
    )


def _broken(path: Path | str, error: BaseException) -> ImageError:
    reason = " ".join(str(error).split()) or type(error).__name__
    return ImageError(f"cannot read the image {path}: {reason}")


def as_rgb(opened: Image.Image) -> Image.Image:
    """An opened image upright and in RGB: alpha on white, 16 bits and floats scaled to 8 bits."""
    opened.load()
    image = ImageOps.exif_transpose(opened)
    if image.mode in _ALPHA_MODES or "transparency" in image.info:
        return on_white(image)
    if image.mode.startswith(("I", "F")):
        return Image.fromarray(_to_8_bit(np.asarray(image)), "L").convert("RGB")
    return image.convert("RGB")


def on_white(image: Image.Image) -> Image.Image:
    """An image in RGB, its transparent parts composited on white."""
    layer = image.convert("RGBA")
    white = Image.new("RGBA", layer.size, (255, 255, 255, 255))
    return Image.alpha_composite(white, layer).convert("RGB")


def _to_8_bit(values: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    """Grey values of 16 bits (0..65535) or floats (0..1, else taken as 0..255 or 0..65535) as 8 bits."""
    with np.errstate(invalid="ignore"):  # a signalling NaN warns when it is converted
        grey = np.nan_to_num(values.astype(np.float64))
    if values.dtype.kind == "f" and grey.max(initial=0.0) <= 1.0:
        grey = grey * 255
    elif values.dtype.itemsize == 2 or grey.max(initial=0.0) > 255:
        grey = grey / 257  # 65535 / 257 = 255
    return np.clip(np.rint(grey), 0, 255).astype(np.uint8)
