"""Only regular files are read, up to a stated size."""

import os

import pytest

from happier.storage.regular_file import open_regular, read_regular


def test_reads_regular_files_and_follows_links(tmp_path):
    (tmp_path / "a").write_bytes(b"abc")
    (tmp_path / "link").symlink_to("a")
    assert read_regular(tmp_path / "link", largest=3) == b"abc"
    with open_regular(str(tmp_path / "a"), largest=3) as file:
        assert file.read() == b"abc"


def test_refuses_what_is_not_a_regular_file(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", "/dev/zero", "/dev/null"):
        with pytest.raises(OSError, match="not a regular file"):
            read_regular(path, largest=10)
    with pytest.raises(IsADirectoryError):
        read_regular(tmp_path, largest=10)
    with pytest.raises(FileNotFoundError):
        read_regular(tmp_path / "none", largest=10)
    with pytest.raises(OSError, match="null"):
        read_regular("a\0b", largest=10)


def test_refuses_what_is_too_large(tmp_path):
    (tmp_path / "a").write_bytes(bytes(11))
    with pytest.raises(OSError, match="larger than 10 bytes"):
        read_regular(tmp_path / "a", largest=10)
    with pytest.raises(OSError, match="larger than 10 bytes"):
        open_regular(tmp_path / "a", largest=10)
    # Its size is said to be 0.
    with pytest.raises(OSError, match="larger than 10 bytes"):
        read_regular("/proc/self/status", largest=10)


def test_a_name_that_is_replaced_while_it_is_opened(tmp_path, monkeypatch):
    path = tmp_path / "a"
    path.write_bytes(b"abc")
    real = os.open

    def swapped(name, flags, **options):
        path.unlink()
        os.mkfifo(path)
        return real(name, flags, **options)

    monkeypatch.setattr(os, "open", swapped)
    with pytest.raises(OSError, match="not a regular file"):
        read_regular(path, largest=10)
