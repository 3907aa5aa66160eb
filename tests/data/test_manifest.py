"""Manifests: what is read is what was written, all faults come at once, labels are paths."""

import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from happier.data import Manifest
from happier.errors import DataError, ManifestError

NAMES = st.text(st.characters(exclude_categories=("C", "Z")), min_size=1, max_size=6).filter(
    lambda t: t != "-1"
)


@st.composite
def tables(draw):
    """Rows with known labels down to some level, and unknown ones below."""
    depth = draw(st.integers(1, 4))
    pool = draw(st.lists(NAMES, min_size=1, max_size=3, unique=True))
    rows = []
    for number in range(draw(st.integers(1, 12))):
        known = draw(st.integers(0, depth))
        labels = [draw(st.sampled_from(pool)) for _ in range(known)] + [""] * (depth - known)
        split = draw(st.sampled_from(["train", "val", "test", "query", "gallery", "distractor"]))
        folder = draw(NAMES.filter(lambda t: "/" not in t and t not in (".", "..")))
        rows.append((f"{folder} ä/{number}.jpg", split, *labels))
    levels = [f"level {n}" for n in range(depth)]
    return pd.DataFrame(rows, columns=["path", "split", *levels]), levels


@settings(max_examples=40)
@given(table=tables(), suffix=st.sampled_from([".parquet", ".csv"]))
def test_read_is_what_was_written(tmp_path_factory, table, suffix):
    frame, levels = table
    folder = tmp_path_factory.mktemp("manifest")
    manifest = Manifest(frame, levels=levels, root=folder, name="n", credits="c")
    read = Manifest.read(manifest.write(folder / f"a b{suffix}"))
    pd.testing.assert_frame_equal(read.table, manifest.table)
    assert read.levels == tuple(levels)
    assert read.files() == manifest.files()
    assert np.array_equal(read.labels(), manifest.labels())
    assert read.class_paths() == manifest.class_paths()
    assert [*folder.iterdir()] == [folder / f"a b{suffix}"], "no temporary file is left"
    if suffix == ".parquet":
        assert (read.name, read.credits) == ("n", "c")


@settings(max_examples=40)
@given(table=tables(), seed=st.integers(0, 1000))
def test_labels_are_paths(table, seed):
    frame, levels = table
    manifest = Manifest(frame, levels=levels, root="/")
    codes, rows = manifest.labels(), frame[levels].to_numpy().tolist()
    for first in range(len(rows)):
        for second in range(len(rows)):
            for level in range(len(levels)):
                known = rows[first][level] != "" and rows[second][level] != ""
                same = known and rows[first][: level + 1] == rows[second][: level + 1]
                equal = codes[first, level] == codes[second, level] and codes[first, level] != -1
                assert same == equal
    order = np.random.default_rng(seed).permutation(len(frame))
    shuffled = Manifest(frame.iloc[order], levels=levels, root="/")
    assert np.array_equal(shuffled.labels(), codes[order]), "codes do not depend on the order of rows"
    tree = manifest.taxonomy()
    assert tree.level_names == tuple(levels)


@settings(max_examples=40)
@given(table=tables())
def test_selections_keep_the_codes_of_the_whole(table):
    frame, levels = table
    manifest = Manifest(frame, levels=levels, root="/")
    assert sum(manifest.splits.values()) == len(manifest)
    for split, rows in manifest.splits.items():
        part = manifest.select(split)
        assert len(part) == rows
        assert set(part.table["split"]) == {split}
        assert np.array_equal(part.labels(), manifest.labels()[frame["split"] == split])
        dense = part.taxonomy()
        assert manifest.split_classes[split] == dense.num_classes
        for level, number in enumerate(dense.num_classes):
            assert set(dense.codes[:, level].tolist()) - {-1} == set(range(number))
    assert len(manifest.select(tuple(manifest.splits))) == len(manifest)


def frame_of(**columns):
    return pd.DataFrame(
        {"path": ["a.jpg", "b.jpg"], "split": "train", "kind": "k", "item": ["1", "2"], **columns}
    )


def test_whole_numbers_are_names():
    for values in ([1, 2], [1.0, 2.0], ["1", "2"]):
        assert Manifest(frame_of(item=values), levels=["kind", "item"], root="/").class_paths() == [
            "k/1",
            "k/2",
        ]
    gap = Manifest(frame_of(item=[3.0, None]), levels=["kind", "item"], root="/")
    assert gap.class_paths() == ["k/3", "k"]
    assert gap.labels().tolist() == [[0, 0], [0, -1]]


def test_words_like_na_are_names(tmp_path):
    (tmp_path / "m.csv").write_text("path,split,kind\na.jpg,train,NA\nb.jpg,train,null\nc.jpg,train,\n")
    assert Manifest.read(tmp_path / "m.csv").class_paths() == ["NA", "null", ""]


def test_slash_in_a_name_is_escaped():
    manifest = Manifest(frame_of(item=["top/shirt", "2"]), levels=["kind", "item"], root="/")
    assert manifest.class_paths() == [r"k/top\/shirt", "k/2"]


def test_ids_are_the_id_column_or_the_path():
    levels = ["kind", "item"]
    assert Manifest(frame_of(), levels=levels, root="/").ids().tolist() == ["a.jpg", "b.jpg"]
    assert Manifest(frame_of(id=[7, 8]), levels=levels, root="/").ids().tolist() == ["7", "8"]


def test_roots(tmp_path):
    manifest = Manifest(frame_of(), levels=["kind", "item"], root=tmp_path / "data")
    inside = Manifest.read(manifest.write(tmp_path / "m.parquet"))
    assert inside.files()[0] == tmp_path / "data" / "a.jpg"
    (tmp_path / "m.parquet").rename(tmp_path.parent / "moved.parquet")
    moved = Manifest.read(tmp_path.parent / "moved.parquet")
    assert moved.files()[0] == tmp_path.parent / "data" / "a.jpg", "a root inside moves along"
    outside = Manifest.read(manifest.write(tmp_path / "elsewhere" / "m.parquet"))
    assert outside.files()[0] == tmp_path / "data" / "a.jpg"
    table = Manifest.read(manifest.write(tmp_path / "elsewhere" / "m.csv"))
    assert os.path.normpath(table.files()[0]) == str(tmp_path / "data" / "a.jpg")
    assert Manifest.read(tmp_path / "elsewhere" / "m.parquet", root="/x").files()[0] == Path("/x/a.jpg")
    absolute = Manifest(frame_of(path=["/y/a.jpg", "b.jpg"]), levels=["kind"], root="/x")
    assert absolute.files() == [Path("/y/a.jpg"), Path("/x/b.jpg")]


def test_levels_may_be_named(tmp_path):
    frame_of().to_csv(tmp_path / "m.csv", index=False)
    assert Manifest.read(tmp_path / "m.csv").levels == ("kind", "item")
    assert Manifest.read(tmp_path / "m.csv", levels=["item"]).levels == ("item",)


def test_other_columns(tmp_path):
    manifest = Manifest(frame_of(artist=["x", "y"]), levels=["kind", "item"], root=tmp_path)
    kept = Manifest.read(manifest.write(tmp_path / "m.parquet"))
    assert kept.table["artist"].tolist() == ["x", "y"]
    turned = Manifest(manifest.table, levels=["item", "kind"], root=tmp_path)
    assert Manifest.read(turned.write(tmp_path / "m.csv")).levels == ("item", "kind")
    plain = Manifest.read(manifest.write(tmp_path / "m.csv"))
    assert plain.levels == ("kind", "item"), "a column of a CSV that is not ours would be read as a level"


def test_test_sets():
    manifest = Manifest(
        frame_of(split=["query", "gallery"], set=["fine", "coarse"]), levels=["kind", "item"], root="/"
    )
    assert len(manifest.select(("query", "gallery"), test_set="fine")) == 1
    with pytest.raises(ManifestError, match="no rows of query are in the set 'coarse'; it has coarse, fine"):
        manifest.select("query", test_set="coarse")
    with pytest.raises(ManifestError, match="it has no sets"):
        Manifest(frame_of(), levels=["kind"], root="/").select("train", test_set="fine")


FAULTS = {
    "path must not be empty: 1 row(s), row 2": {"path": ["a.jpg", ""]},
    "split must be one of train, val, test, query, gallery, distractor: 2 row(s), row 1 'Train' (train?); "
    "row 2 'tset' (test?)": {"split": ["Train", "tset"]},
    "a path must stand once in its split: 1 row(s), row 2 'a.jpg' again in train": {"path": "a.jpg"},
    "id must not be empty where there is an id column: 1 row(s), row 1 a.jpg": {"id": ["", "x"]},
    "an id must stand once in its split: 1 row(s), row 2 'x' again in train": {"id": "x"},
    "kind is unknown where its cell is empty, not -1: 1 row(s), row 2 b.jpg": {"kind": ["k", -1]},
    "item must be empty where kind is (a label below an unknown one): 1 row(s), row 1 'a.jpg'": {
        "kind": ["", "k"]
    },
    "path must not hold a NUL character: 1 row(s), row 1 'a\\x00.jpg'": {"path": ["a\0.jpg", "b.jpg"]},
}


@pytest.mark.parametrize("message", FAULTS)
def test_each_fault_has_its_message(message):
    with pytest.raises(ManifestError) as caught:
        Manifest(frame_of(**FAULTS[message]), levels=["kind", "item"], root="/")
    assert str(caught.value).endswith(f"  - {message}")
    assert "1 kind(s) of fault" in str(caught.value)


def test_the_same_image_may_be_query_and_gallery():
    frame = frame_of(path="a.jpg", id="x", split=["query", "gallery"])
    assert len(Manifest(frame, levels=["kind", "item"], root="/")) == 2


def test_all_faults_at_once(tmp_path):
    rows = [(f"{n % 30}.jpg", "train" if n else "none", "" if n == 3 else "k", "i") for n in range(60)]
    pd.DataFrame(rows, columns=["path", "split", "kind", "item"]).to_csv(tmp_path / "m.csv", index=False)
    with pytest.raises(ManifestError) as caught:
        Manifest.read(tmp_path / "m.csv")
    message = str(caught.value)
    assert str(tmp_path / "m.csv") in message
    assert "3 kind(s) of fault" in message
    assert "a path must stand once in its split: 29 row(s)" in message
    assert "and 19 more" in message
    assert message.count("again in train") == 10


@pytest.mark.parametrize(
    ("frame", "levels", "message"),
    [
        (
            frame_of().drop(columns="path"),
            ["kind"],
            "the column 'path' is missing; the columns are split, kind, item",
        ),
        (frame_of().drop(columns="split"), ["kind"], "the column 'split' is missing"),
        (frame_of(), [], "there must be at least one label column"),
        (frame_of(), ["kind", "colour"], "the label column 'colour' is missing"),
        (frame_of(), ["split"], "a level cannot be named 'split'"),
        (frame_of(), ["kind", "kind"], "level names must differ, got kind, kind"),
        (frame_of().iloc[:0], ["kind"], "the table must have at least one row, got none"),
    ],
)
def test_faults_of_columns(frame, levels, message):
    with pytest.raises(ManifestError, match=message):
        Manifest(frame, levels=levels, root="/")


def test_columns_must_be_unique():
    frame = pd.concat([frame_of(), frame_of()[["kind"]]], axis=1)
    with pytest.raises(ManifestError, match=r"a column name must stand once, got \['kind'\]"):
        Manifest(frame, levels=["kind"], root="/")


def test_files_that_are_no_manifests(tmp_path):
    with pytest.raises(ManifestError, match=r"no manifest at .*; make one with `happier data import`"):
        Manifest.read(tmp_path / "none.parquet")
    (tmp_path / "text.parquet").write_text("hello")
    with pytest.raises(ManifestError, match=r"cannot read .*text.parquet as a manifest \(Parquet or .csv\)"):
        Manifest.read(tmp_path / "text.parquet")
    (tmp_path / "binary.csv").write_bytes(b"\xff\xfe\x00\x80")
    with pytest.raises(ManifestError, match=r"cannot read .*binary.csv as a manifest"):
        Manifest.read(tmp_path / "binary.csv")
    (tmp_path / "empty.csv").touch()
    with pytest.raises(ManifestError, match=r"cannot read .*empty.csv"):
        Manifest.read(tmp_path / "empty.csv")
    with pytest.raises(ManifestError):
        Manifest.read(tmp_path)


def test_byte_order_mark_of_spreadsheets(tmp_path):
    (tmp_path / "m.csv").write_text("path,split,kind\na.jpg,train,k\n", encoding="utf-8-sig")
    assert Manifest.read(tmp_path / "m.csv").levels == ("kind",)


@pytest.mark.parametrize("suffix", [".parquet", ".csv"])
def test_read_only_target(tmp_path, suffix, as_mere_user):
    manifest = Manifest(frame_of(), levels=["kind", "item"], root=tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(DataError, match=r"cannot write .*: (File exists|Not a directory); choose a place"):
        manifest.write(tmp_path / "file" / f"m{suffix}")
    (tmp_path / "locked").mkdir(mode=0o555)
    with as_mere_user(), pytest.raises(DataError, match="Permission denied; choose a place"):
        manifest.write(tmp_path / "locked" / f"m{suffix}")


def test_a_failed_write_leaves_the_old_file(tmp_path):
    manifest = Manifest(frame_of(), levels=["kind", "item"], root=tmp_path)
    path = manifest.write(tmp_path / "m.parquet")
    before = path.read_bytes()
    manifest.credits = object()  # cannot be stored
    with pytest.raises(TypeError):
        manifest.write(path)
    assert path.read_bytes() == before
    assert [*tmp_path.iterdir()] == [path]


def test_repr_tells_the_splits(small_manifest):
    assert repr(small_manifest) == "Manifest('small', levels=['kind', 'item'], train 6, test 6)"
