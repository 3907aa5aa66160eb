"""What identifies an image's content: regular files only, read while nobody changes them."""

import os

import pytest

from happier.errors import ImageError
from happier.vectors import image_content as module
from happier.vectors.image_content import image_content


def test_the_same_bytes_have_the_same_hash(tmp_path):
    for name, data in (("a", b"one"), ("b", b"one"), ("c", b"two")):
        (tmp_path / name).write_bytes(data)
    first, second, third = (image_content(tmp_path / name) for name in "abc")
    assert first.hash == second.hash != third.hash
    assert first.is_current(tmp_path / "a")
    (tmp_path / "a").write_bytes(b"longer")
    assert not first.is_current(tmp_path / "a")


def test_a_device_a_pipe_and_a_folder_are_no_images(tmp_path):
    (tmp_path / "null.jpg").symlink_to("/dev/null")  # first: reading it would end at once
    os.mkfifo(tmp_path / "pipe.jpg")
    (tmp_path / "folder.jpg").mkdir()
    for name in ("null.jpg", "pipe.jpg", "folder.jpg"):
        with pytest.raises(ImageError, match=rf"{name}: it is not a regular file"):
            image_content(tmp_path / name)
    with pytest.raises(ImageError, match="No such file"):
        image_content(tmp_path / "none.jpg")
    with pytest.raises(ImageError, match="cannot read the image"):
        image_content("a\0b.jpg")


def test_a_file_that_changes_while_it_is_read_is_named(tmp_path, monkeypatch):
    path = tmp_path / "growing.jpg"
    path.write_bytes(b"x")
    real = module.file_checksum

    def checksum(file):
        found = real(file)
        path.write_bytes(path.read_bytes() + b"x")
        return found

    monkeypatch.setattr(module, "file_checksum", checksum)
    with pytest.raises(ImageError, match=r"growing\.jpg: it is being changed"):
        image_content(path)
