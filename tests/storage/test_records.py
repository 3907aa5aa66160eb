"""Checksums and small files: whatever a damaged file holds is one line."""

import os
from contextlib import suppress
from pathlib import Path

import hypothesis.strategies as st
import numpy as np
import pytest
import xxhash
from hypothesis import HealthCheck, given, settings

from happier.errors import CheckpointError, DataError, SearchError
from happier.storage import records
from happier.storage.checksum import checksum, file_checksum
from happier.storage.records import Record, read_json, read_record, to_json, write_json


class Inner(Record):
    score: float
    name: str | None = None


class Head(Record):
    count: int
    inner: Inner
    sizes: tuple[int, ...] = ()


GOOD = {"count": 3, "inner": {"score": 0.5}, "sizes": [1, 2]}


# Checksums


@pytest.mark.parametrize("shape", [(), (0,), (0, 4), (1,), (3, 5), (2, 3, 4)])
@pytest.mark.parametrize("kind", ["f4", "f8", "i8", "u1", "?", "f2"])
def test_an_arrays_checksum_is_that_of_its_bytes(shape, kind):
    array = np.random.default_rng(0).integers(0, 2, shape).astype(kind)
    assert checksum(array) == xxhash.xxh3_128(array.tobytes()).hexdigest()


def test_the_order_in_memory_does_not_matter():
    array = np.arange(60, dtype=np.float32).reshape(6, 10)
    for view in (array[::2], array.T, array[:, 3:], array[::-1], np.asfortranarray(array)):
        assert checksum(view) == checksum(np.array(view, order="C"))


def test_pieces_make_no_difference(tmp_path, monkeypatch):
    array = np.random.default_rng(0).random(10_000).astype(np.float32)
    whole = checksum(array)
    array.tofile(tmp_path / "x")
    mapped = np.memmap(tmp_path / "x", np.float32, "r")
    monkeypatch.setattr("happier.storage.checksum._PIECE", 1237)
    assert checksum(array) == checksum(mapped) == file_checksum(tmp_path / "x") == whole


def test_every_bit_counts():
    array = np.random.default_rng(0).random(50).astype(np.float32)
    seen = {checksum(array)}
    for position in range(array.nbytes):
        for bit in range(8):
            changed = array.copy()
            changed.view(np.uint8)[position] ^= 1 << bit
            seen.add(checksum(changed))
    assert len(seen) == 1 + array.nbytes * 8


# Records


def test_a_record_goes_and_comes_back(tmp_path):
    write_json(GOOD, tmp_path / "x.json")
    head = read_record(tmp_path / "x.json", Head)
    assert head == Head(count=3, inner=Inner(score=0.5), sizes=(1, 2))
    assert read_json(tmp_path / "x.json") == GOOD


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "EOF"),
        (b"\xff\xfe", "Invalid JSON"),
        (b"[]", "object"),
        (b"null", "object"),
        (b'{"count": 3}', "inner: Field required"),
        (b'{"count": "3", "inner": {"score": 1}}', "count: .*integer"),
        (b'{"count": 3.5, "inner": {"score": 1}}', "count: .*integer"),
        (b'{"count": true, "inner": {"score": 1}}', "count: .*integer"),
        (b'{"count": 3, "inner": {"score": NaN}}', "inner.score: .*finite|Invalid JSON"),
        (b'{"count": 3, "inner": {"score": 1e999}}', "inner.score: .*finite"),
        (b'{"count": 3, "inner": {"score": 1}, "x\\ny": 1}', r"x\?y: Extra inputs"),
        (b'{"count": 3, "inner": {"score": 1}, "sizes": [1, "2"]}', "sizes.1: .*integer"),
        (b"[" * 100_000, "recursion"),
        (b'{"count": 3, "inner": {"score": 1}, "' + b"x" * 5000 + b'": 1}', r"x\.\.\.$"),
    ],
)
def test_a_damaged_record_is_one_line(tmp_path, text, message):
    path = tmp_path / "x.json"
    path.write_bytes(text)
    with pytest.raises(SearchError, match=f"{path} is damaged: .*({message})") as caught:
        read_record(path, Head, error=SearchError)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 500


def test_a_file_that_cannot_be_read(tmp_path, monkeypatch):
    for reader in (read_json, lambda path, **more: read_record(path, Head, **more)):
        with pytest.raises(CheckpointError, match=r"cannot read .*: No such file or directory; make it anew"):
            reader(tmp_path / "none", hint="make it anew")
        with pytest.raises(CheckpointError, match="Is a directory"):
            reader(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(CheckpointError, match="not a regular file"):
        read_json(tmp_path / "pipe")  # and does not wait for somebody to write into it
    with pytest.raises(OSError, match="not a regular file"):
        file_checksum(tmp_path / "pipe")
    monkeypatch.setattr(records, "LARGEST_BYTES", 10)
    (tmp_path / "large").write_text(" " * 11)
    with pytest.raises(CheckpointError, match="larger than"):
        read_json(tmp_path / "large")


def test_descriptors_are_given_back(tmp_path):
    (tmp_path / "x").write_text("nonsense")
    for path in (tmp_path, tmp_path / "x", tmp_path / "none"):
        for _ in range(20):
            with pytest.raises(CheckpointError):
                read_json(path)
    assert not open_files_below(tmp_path)
    with (tmp_path / "x").open():
        assert open_files_below(tmp_path) == [tmp_path / "x"]


def open_files_below(folder):
    """Files of a folder that this process has open; other threads may open and close theirs meanwhile."""
    targets = []
    for one in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):
            targets.append(one.readlink())
    return [target for target in targets if target.is_relative_to(folder)]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=300)
@given(st.binary(max_size=60) | st.text(max_size=40).map(lambda text: text.encode(errors="replace")))
def test_any_bytes_are_a_record_or_an_error(tmp_path, content):
    (tmp_path / "x").write_bytes(content)
    for reader in (read_json, lambda path: read_record(path, Head)):
        said = ""
        try:
            reader(tmp_path / "x")
        except CheckpointError as error:
            said = str(error)
        assert "\n" not in said


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=200)
@given(st.integers(0, 70), st.integers(0, 7))
def test_a_flipped_bit_is_never_another_type(tmp_path, place, bit):
    text = bytearray(to_json(GOOD).encode())
    text[place % len(text)] ^= 1 << bit
    (tmp_path / "x").write_bytes(text)
    try:
        head = read_record(tmp_path / "x", Head)
    except CheckpointError:
        return
    assert type(head.count) is int
    assert type(head.inner.score) is float


# Writing


def test_undefined_numbers_are_null(tmp_path):
    write_json(
        {"a": float("nan"), "b": [np.float32("inf"), np.float64(0.5)], "c": np.arange(2)}, tmp_path / "x"
    )
    assert read_json(tmp_path / "x") == {"a": None, "b": [None, 0.5], "c": [0, 1]}


def test_a_name_that_is_not_unicode(tmp_path):
    (tmp_path / "x").write_text("{}")
    with pytest.raises(DataError, match="not valid UTF-8"):
        write_json({"path": os.fsdecode(b"\xff.jpg")}, tmp_path / "x")
    assert read_json(tmp_path / "x") == {}
    with pytest.raises(TypeError):
        to_json({"x": object()})
