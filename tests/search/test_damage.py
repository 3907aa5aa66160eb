"""Damaged files of an index: one line that names the file, never a traceback, never another answer."""

from __future__ import annotations

import json
import os

import numpy as np
import pandas as pd
import pytest
from processes import run_fresh_command

from happier.errors import HappierError, OptionError, SearchError
from happier.search import Index, measure_recall
from happier.search.options import parse_options
from tests.search.index_worker import MODEL, held, images, rewrite_head

ROWS = 400


@pytest.fixture(params=["flat", "hnsw", "ivfpq"])
def directory(request, tmp_path):
    manifest, vectors = images(range(ROWS))
    Index.build(tmp_path / "index", manifest, vectors, fingerprint=MODEL, engine=request.param)
    return tmp_path / "index"


def one_line(error):
    text = str(error.value)
    assert "\n" not in text
    assert len(text) < 500
    return text


def files(directory):
    return [path for path in sorted(directory.iterdir()) if path.name != ".lock"]


def test_flipped_bits_are_noticed(directory):
    generator = np.random.default_rng(0)
    for path in files(directory):
        whole = path.read_bytes()
        for at in generator.integers(0, len(whole), 20):
            damaged = bytearray(whole)
            damaged[at] ^= 1 << int(generator.integers(8))
            path.write_bytes(damaged)
            with pytest.raises(SearchError, match=path.name) as error:
                Index.open(directory)
            one_line(error)
        path.write_bytes(whole)
    assert held(directory) == set(range(ROWS))


@pytest.mark.parametrize("content", [b"", b"text", b"\xff\xfe\x00", b"[1, 2]", b"null"])
def test_replaced_and_shortened_files_are_noticed(directory, content):
    for path in files(directory):
        whole = path.read_bytes()
        for damaged in (content, whole[: len(whole) // 2], whole[:-1]):
            path.write_bytes(damaged)
            if path.name == "index.json" and damaged == whole[:-1]:
                continue  # the final newline
            with pytest.raises(SearchError) as error:
                Index.open(directory)
            assert str(directory) in one_line(error)
        path.unlink()
        with pytest.raises(SearchError) as error:
            Index.open(directory)
        one_line(error)
        path.mkdir()
        with pytest.raises(SearchError) as error:
            Index.open(directory)
        one_line(error)
        path.rmdir()
        path.write_bytes(whole)
    assert held(directory) == set(range(ROWS))


WRONG = [None, True, -1, 0, 1.5, 2**62, "", "text", "../x", "a\0b", [], [1], {}, {"file": 3}, {"a": None}]


def test_a_pipe_in_place_of_a_file_is_not_waited_for(directory):
    """Opening one as a file waits until somebody writes to it."""
    for path in files(directory):
        content = path.read_bytes()
        path.unlink()
        os.mkfifo(path)
        with pytest.raises(SearchError) as error:
            Index.open(directory)
        assert path.name in one_line(error)
        path.unlink()
        path.write_bytes(content)
    Index.open(directory).close()


def test_wrong_values_in_the_head_are_noticed(directory):
    path = directory / "index.json"
    head = json.loads(path.read_text())
    del head["checksum"]
    free = {"uid", "fingerprint", "root", "options", "generation"}  # any text, any table, any number will do
    for name in head:
        for value in WRONG:
            same_type = type(value) is type(head[name]) and name in free
            if same_type or value == head[name] or (name in ("recall", "calibration") and value is None):
                continue
            rewrite_head(directory, {**head, name: value})
            with pytest.raises(HappierError, match=f"index.json|{head['items']}") as error:
                Index.open(directory)
            one_line(error)
        if name in ("format", "recall", "calibration", "checksums", "vector_checksums"):
            continue
        rewrite_head(directory, {key: one for key, one in head.items() if key != name})
        with pytest.raises(SearchError, match=f"index.json is damaged: {name}: Field required"):
            Index.open(directory)
    rewrite_head(directory, {**head, "more": 1})
    with pytest.raises(SearchError, match="more: Extra inputs"):
        Index.open(directory)


def test_wrong_engine_settings_are_noticed(directory):
    path = directory / "index.json"
    head = json.loads(path.read_text())
    if head["engine"] == "flat":
        return
    for settings in (
        {},
        {"file": head["settings"]["file"]},
        {**head["settings"], "search_options": {"x": 1}},
    ):
        rewrite_head(directory, {**head, "settings": settings})
        with pytest.raises(SearchError, match="damaged"):
            Index.open(directory)


def test_a_table_of_images_without_checksum_is_checked_all_the_same(tmp_path):
    directory = tmp_path / "index"
    manifest, vectors = images(range(10))
    index = Index.build(directory, manifest, vectors, fingerprint=MODEL)
    path = directory / "index.json"
    head = {**json.loads(path.read_text()), "format": 1}
    del head["checksums"], head["vector_checksums"]
    rewrite_head(directory, head)
    assert held(directory) == set(range(10))
    file = directory / index.head.items
    table = pd.read_parquet(file)
    for positions in (range(1, 11), [0] * 10, [-1, *range(9)], ["a"] * 10):
        table.assign(position=list(positions)).to_parquet(file)
        with pytest.raises(SearchError, match="damaged"):
            Index.open(directory)
    for broken in (table.drop(columns="position"), table.drop(columns="path"), table[:0]):
        broken.to_parquet(file)
        with pytest.raises(SearchError, match="damaged") as error:
            Index.open(directory)
        one_line(error)


@pytest.mark.parametrize(
    ("engine", "options"),
    [
        ("ivfpq", {"lists": ROWS + 1}),
        ("ivfpq", {"lists": 10**9}),
        ("ivfpq", {"code_bytes": 5}),
        ("ivfpq", {"code_bytes": 1000}),
        ("ivfpq", {"candidates": 10**9}),
        ("hnsw", {"neighbours": 10**8}),
        ("hnsw", {"neighbours": 1}),
        ("hnsw", {"build_effort": 10**12}),
        ("hnsw", {"effort": True}),
        ("hnsw", {"effort": "9" * 5000}),
        ("milvus", {"uri": "x.db", "index_type": "NOPE"}),
        ("milvus", {"uri": 3}),
        ("flat", {"effort": 1}),
    ],
)
def test_options_out_of_range_are_refused(tmp_path, engine, options):
    manifest, vectors = images(range(ROWS))
    with pytest.raises(OptionError):
        Index.build(tmp_path / "index", manifest, vectors, fingerprint=MODEL, engine=engine, options=options)
    assert not (tmp_path / "index").exists()


def test_a_number_of_too_many_digits_stays_text():
    assert parse_options(["effort=" + "9" * 5000]) == {"effort": "9" * 5000}


def test_negative_seeds_are_refused(tmp_path):
    index = Index.build(tmp_path / "index", *images(range(10)), fingerprint=MODEL)
    with pytest.raises(OptionError, match="seed must be 0 or more"):
        measure_recall(index, seed=-5)


def test_the_command_line_says_it_in_one_line(tmp_path):
    Index.build(tmp_path / "index", *images(range(10)), fingerprint=MODEL)
    (tmp_path / "index" / "index.json").write_text('{"format": 2, "rows": "many"}')
    done = run_fresh_command("unindex", tmp_path / "index", "3.png")
    assert done.code == 2
    assert done.out == ""
    assert len(done.err.splitlines()) == 1
    assert "index.json is damaged" in done.err
