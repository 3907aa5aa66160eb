"""Reading image files: every mode becomes upright RGB, every broken file an error with its path."""

import io
import os
import struct
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import EpsImagePlugin, Image

import happier.data.image
from happier.data import decode_image, read_image
from happier.data.image import LARGEST_BYTES, content_hash
from happier.errors import ImageError


def same(image, tensor):
    return np.array_equal(np.asarray(image), tensor.permute(1, 2, 0).numpy())


@pytest.mark.parametrize(
    ("name", "mode", "options"),
    [
        ("a.jpg", "RGB", {}),
        ("a.jpg", "RGB", {"progressive": True, "quality": 95}),
        ("grey.jpg", "L", {}),
        ("cmyk.jpg", "CMYK", {}),
        ("a.png", "RGB", {}),
        ("grey.png", "L", {}),
        ("bits.png", "1", {}),
        ("palette.png", "P", {}),
        ("palette.gif", "P", {}),
        ("a.webp", "RGB", {}),
        ("a.bmp", "RGB", {}),
        ("a.tif", "CMYK", {}),
        ("ein Bild ß, 図.png", "RGB", {}),
    ],
)
def test_every_mode_becomes_rgb(tmp_path, make_image, name, mode, options):
    path = make_image(tmp_path / name, mode=mode, **options)
    image = read_image(path)
    assert (image.mode, image.size) == ("RGB", (40, 30))
    tensor = decode_image(path)
    assert (tensor.dtype, tuple(tensor.shape)) == (torch.uint8, (3, 30, 40))
    assert same(image, tensor), "the fast decoder gives the same pixels"
    reference = read_image(make_image(tmp_path / "reference.png", mode="L" if mode in ("L", "1") else "RGB"))
    if mode not in ("1", "P"):
        assert np.abs(np.asarray(image, int) - np.asarray(reference, int)).mean() < 12


@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_rotation(tmp_path, make_image, orientation):
    upright = Image.open(make_image(tmp_path / "upright.png"))
    exif = Image.Exif()
    exif[0x0112] = orientation
    path = tmp_path / "rotated.jpg"
    upright.save(path, exif=exif, quality=95)
    image = read_image(path)
    assert image.size == ((40, 30) if orientation < 5 else (30, 40))
    assert same(image, decode_image(path))
    back = {2: 0, 3: 3, 4: 1, 5: 5, 6: 4, 7: 6, 8: 2}
    expected = upright if orientation == 1 else upright.transpose(Image.Transpose(back[orientation]))
    assert np.abs(np.asarray(image, int) - np.asarray(expected, int)).mean() < 8


@pytest.mark.parametrize("mode", ["RGBA", "LA", "PA"])
def test_alpha_is_laid_on_white(tmp_path, mode):
    image = Image.new("RGBA", (4, 4), (255, 0, 0, 0))
    image.putpixel((0, 0), (0, 0, 0, 255))
    path = tmp_path / ("a.tif" if mode == "PA" else "a.png")
    image.convert("LA" if mode == "PA" else mode).save(path)
    read = read_image(path)
    assert read.getpixel((0, 0)) == (0, 0, 0)
    assert read.getpixel((1, 1)) == (255, 255, 255)


def test_transparent_palette_colour(tmp_path):
    image = Image.new("P", (2, 1), 0)
    image.putpalette([200, 0, 0, 0, 0, 200])
    image.putpixel((1, 0), 1)
    image.save(tmp_path / "a.png", transparency=0)
    read = read_image(tmp_path / "a.png")
    assert [read.getpixel((x, 0)) for x in range(2)] == [(255, 255, 255), (0, 0, 200)]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (np.array([[0, 32896, 65535]], np.uint16), [0, 128, 255]),
        (np.array([[0, 100, 255]], np.int32), [0, 100, 255]),
        (np.array([[0, 0.5, 1]], np.float32), [0, 128, 255]),
        (np.array([[0, 100, 255]], np.float32), [0, 100, 255]),
        (np.array([[np.nan, -5, 65535]], np.float32), [0, 0, 255]),
    ],
)
def test_16_bit_and_float_grey(tmp_path, values, expected):
    path = tmp_path / "deep.tif"
    Image.fromarray(values).save(path)
    assert np.asarray(read_image(path))[0, :, 1].tolist() == expected


def test_16_bit_png(tmp_path):
    path = tmp_path / "deep.png"
    Image.fromarray(np.array([[0, 257, 65535]], np.uint16)).save(path)
    assert np.asarray(read_image(path))[0, :, 0].tolist() == [0, 1, 255]


def test_first_frame_of_an_animation(tmp_path):
    frames = [Image.new("RGB", (4, 4), colour) for colour in ("red", "blue")]
    frames[0].save(tmp_path / "a.gif", save_all=True, append_images=frames[1:])
    assert read_image(tmp_path / "a.gif").getpixel((0, 0)) == (255, 0, 0)


def test_large_jpeg_is_decoded_small(tmp_path, make_image):
    path = make_image(tmp_path / "large.jpg", size=(1600, 1200))
    assert tuple(decode_image(path, at_least=700).shape) == (3, 1200, 1600)
    assert tuple(decode_image(path, at_least=300).shape) == (3, 300, 400)
    assert tuple(decode_image(path, at_least=299).shape) == (3, 300, 400)
    assert tuple(decode_image(path, at_least=301).shape) == (3, 600, 800)
    assert tuple(decode_image(path, at_least=10).shape) == (3, 150, 200)
    rotated = tmp_path / "rotated.jpg"
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.open(path).save(rotated, exif=exif)
    assert tuple(decode_image(rotated, at_least=300).shape) == (3, 400, 300)


READERS = pytest.mark.parametrize("reader", [read_image, decode_image])


@READERS
def test_missing_file(tmp_path, reader):
    with pytest.raises(ImageError, match=r"nothing\.jpg: No such file"):
        reader(tmp_path / "nothing.jpg")
    with pytest.raises(ImageError, match="null"):
        reader("a\0b.jpg")
    with pytest.raises(ImageError, match="Is a directory"):
        reader(tmp_path)


@READERS
def test_empty_and_foreign_files(tmp_path, reader):
    (tmp_path / "empty.jpg").touch()
    with pytest.raises(ImageError, match=r"empty\.jpg: the file is empty"):
        reader(tmp_path / "empty.jpg")
    (tmp_path / "page.jpg").write_text("<html>not found</html>")
    with pytest.raises(ImageError, match=r"page\.jpg: not an image \(JPEG, PNG"):
        reader(tmp_path / "page.jpg")


@READERS
@pytest.mark.parametrize("name", ["cut.jpg", "cut.png", "cut.webp", "cut.gif", "cut.tif"])
def test_truncated_files(tmp_path, make_image, reader, name):
    path = make_image(tmp_path / name, size=(200, 200))
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(ImageError, match=name.replace(".", r"\.")):
        reader(path)


@READERS
@pytest.mark.parametrize("name", ["noise.jpg", "noise.png"])
def test_damaged_bytes_never_escape_as_another_error(tmp_path, make_image, reader, name):
    path = make_image(tmp_path / name, size=(64, 64))
    whole = path.read_bytes()
    rng = np.random.default_rng(0)
    for _ in range(60):
        data = bytearray(whole)
        for at in rng.integers(2, len(data), 8):
            data[at] = rng.integers(256)
        path.write_bytes(data)
        try:
            reader(path)
        except ImageError as error:
            assert name in str(error)


@READERS
def test_decompression_bombs_are_refused(tmp_path, reader):
    png = io.BytesIO()
    Image.new("1", (8, 8)).save(png, "PNG")
    data = bytearray(png.getvalue())
    data[16:24] = struct.pack(">II", 60_000, 60_000)
    import zlib

    data[29:33] = struct.pack(">I", zlib.crc32(data[12:29]))
    (tmp_path / "bomb.png").write_bytes(data)
    with pytest.raises(ImageError, match=r"bomb\.png: it has more than 89,478,485 pixels"):
        reader(tmp_path / "bomb.png")
    jpeg = io.BytesIO()
    Image.new("L", (8, 8)).save(jpeg, "JPEG")
    data = bytearray(jpeg.getvalue())
    at = data.index(b"\xff\xc0") + 5
    data[at : at + 4] = struct.pack(">HH", 65_000, 65_000)
    (tmp_path / "bomb.jpg").write_bytes(data)
    with pytest.raises(ImageError, match=r"bomb\.jpg: it has more than"):
        reader(tmp_path / "bomb.jpg")


@pytest.mark.parametrize("read", [read_image, decode_image, content_hash])
def test_only_named_raster_formats_are_opened(tmp_path, make_image, read, monkeypatch):
    """PIL would start Ghostscript for PostScript, whatever the file is called."""
    monkeypatch.setattr(
        EpsImagePlugin, "Ghostscript", lambda *_, **__: pytest.fail("Ghostscript was started")
    )
    path = tmp_path / "a.jpg"
    make_image(tmp_path / "a.eps").rename(path)
    with Image.open(path) as opened:
        assert opened.format == "EPS", "a valid file of that format"
    with pytest.raises(ImageError, match=r"a\.jpg: not an image \(JPEG, PNG"):
        read(path)


def test_all_image_files_are_opened_in_one_place():
    source = Path(happier.data.image.__file__).parents[1]
    places = [
        path.relative_to(source).as_posix()
        for path in source.rglob("*.py")
        if "Image.open(" in path.read_text()
    ]
    assert places == ["data/image.py"]


@pytest.mark.parametrize("read", [read_image, decode_image, content_hash])
def test_special_files_neither_block_nor_fill_the_memory(tmp_path, read):
    pipe, link = tmp_path / "pipe.jpg", tmp_path / "link.jpg"
    os.mkfifo(pipe)
    link.symlink_to("/dev/zero")
    for path in (pipe, link):
        with pytest.raises(ImageError, match=f"{path.name}: not a regular file"):
            read(path)
    with pytest.raises(ImageError, match="Is a directory"):
        read(tmp_path)
    with pytest.raises(ImageError, match="File name too long"):
        read(tmp_path / ("x" * 300))


def test_files_above_the_limit_are_not_read(tmp_path):
    path = tmp_path / "large.png"
    with path.open("wb") as file:
        file.truncate(LARGEST_BYTES + 1)
    with pytest.raises(ImageError, match=r"large\.png: larger than 512 MiB"):
        read_image(path)


def test_float_images_with_undefined_pixels(tmp_path):
    """Found by fuzzing: a signalling NaN warns, and a warning may be an error."""
    pixels = np.full((4, 5), 0.5, dtype=np.float32)
    pixels.view(np.uint32)[0, :3] = 0x7FA00000, 0x7F800000, 0xFF800000
    Image.fromarray(pixels).save(tmp_path / "a.tif")
    image = read_image(tmp_path / "a.tif")
    assert image.size == (5, 4)
    assert np.asarray(image)[0, 0].tolist() == [0, 0, 0]


def test_damaged_exif_data(tmp_path, make_image):
    """Found by fuzzing: PIL warns of EXIF data that is cut short, and a warning may be an error."""
    exif = b"Exif\0\0MM\0*\0\0\0\x08\0\x05\x01\x12\0\x03\0\0\0\x01"
    path = make_image(tmp_path / "a.jpg", exif=exif)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert read_image(path).size == (40, 30)
        warnings.simplefilter("error")
        with pytest.raises(ImageError, match=r"a\.jpg: .*EXIF"):
            read_image(path)
