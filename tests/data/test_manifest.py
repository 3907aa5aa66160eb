"""Manifests: what is read is what was written, all faults come at once, labels are paths."""

import os
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

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


@pytest.mark.parametrize("suffix", [".parquet", ".csv"])
def test_attributes_are_listed_in_a_cell(tmp_path, suffix):
    """Spaces, empty parts and repeats do not count; an empty cell is False throughout."""
    cells = ["red; round", "", "round;metal ; round;", None, " ; "]
    table = pd.DataFrame({"path": list("abcde"), "split": "train", "kind": "x", "attributes": cells})
    path = Manifest(table, levels=["kind"], root=tmp_path).write(tmp_path / f"m{suffix}")
    manifest = Manifest.read(path)
    assert manifest.levels == ("kind",), "attributes are no level"
    found, names = manifest.attributes()
    assert names == ("metal", "red", "round")
    assert [[names[a] for a in np.flatnonzero(row)] for row in found] == [
        ["red", "round"], [], ["metal", "round"], [], [],
    ]  # fmt: skip
    assert manifest.take([0]).attributes()[1] == ("red", "round")
    nothing, names = manifest.take([1]).attributes()
    assert (nothing.shape, names) == ((1, 0), ())


def test_no_column_of_attributes():
    table = pd.DataFrame({"path": ["a"], "split": "train", "kind": "x"})
    with pytest.raises(ManifestError, match="no column 'attributes', with cells such as 'red; round'"):
        Manifest(table, levels=["kind"], root=".").attributes()


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
    "split must be one of train, val, test, query, gallery, distractor: 2 row(s), row 1 "
    "'Train' (did you mean 'train'?); row 2 'tset' (did you mean 'test'?)": {"split": ["Train", "tset"]},
    "a path must be unique within its split: 1 row(s), row 2 'a.jpg' again in train": {"path": "a.jpg"},
    "id must not be empty where there is an id column: 1 row(s), row 1 a.jpg": {"id": ["", "x"]},
    "an id must be unique within its split: 1 row(s), row 2 'x' again in train": {"id": "x"},
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
    assert str(caught.value).count("\n  - ") == 1


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
    assert message.count("\n  - ") == 3
    assert "a path must be unique within its split: 29 row(s)" in message
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
    with pytest.raises(ManifestError, match=r"a column name must occur once, got \['kind'\]"):
        Manifest(frame, levels=["kind"], root="/")


def test_files_that_are_no_manifests(tmp_path):
    with pytest.raises(ManifestError, match=r"no manifest at .*; make one with `happier data import`"):
        Manifest.read(tmp_path / "none.parquet")
    (tmp_path / "text.parquet").write_text("hello")
    with pytest.raises(ManifestError, match=r"cannot read .*text.parquet as Parquet: "):
        Manifest.read(tmp_path / "text.parquet")
    (tmp_path / "binary.csv").write_bytes(b"\xff\xfe\x00\x80")
    with pytest.raises(ManifestError, match=r"cannot read .*binary.csv as CSV in UTF-8: "):
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
    with pytest.raises(DataError, match=r"cannot write .*: Not a directory .*; choose a place"):
        manifest.write(tmp_path / "file" / f"m{suffix}")
    (tmp_path / "locked").mkdir(mode=0o555)
    with as_mere_user(), pytest.raises(DataError, match="Permission denied; choose a place"):
        manifest.write(tmp_path / "locked" / f"m{suffix}")


def test_a_failed_write_leaves_the_old_file(tmp_path):
    manifest = Manifest(frame_of(), levels=["kind", "item"], root=tmp_path)
    path = manifest.write(tmp_path / "m.parquet")
    before = path.read_bytes()
    manifest.credits = object()  # cannot be stored
    with pytest.raises(ValidationError):
        manifest.write(path)
    assert path.read_bytes() == before
    assert [*tmp_path.iterdir()] == [path]


def test_repr_tells_the_splits(small_manifest):
    assert repr(small_manifest) == "Manifest('small', levels=['kind', 'item'], train 6, test 6)"


def with_metadata(path, stored):
    """The file with other metadata of ours."""
    table = pq.read_table(path)
    pq.write_table(table.replace_schema_metadata({b"happier": stored}), path)
    return path


@pytest.mark.parametrize(
    ("stored", "fault"),
    [
        (b"[1, 2]", "metadata: "),
        (b'"text"', "metadata: "),
        (b"{not json", "metadata: "),
        (b"\xff\xfe", "metadata: "),
        (b'{"levels": "kind"}', "levels: "),
        (b'{"levels": [1, 2]}', r"levels\.0: "),
        (b'{"root": 5}', "root: "),
        (b'{"root": null}', "root: "),
        (b'{"name": ["a"]}', "name: "),
        (b'{"credits": {}}', "credits: "),
    ],
)
def test_metadata_of_the_wrong_type(tmp_path, stored, fault):
    path = Manifest(frame_of(), levels=["kind", "item"], root=tmp_path).write(tmp_path / "m.parquet")
    with pytest.raises(ManifestError, match=rf"m\.parquet is damaged: {fault}"):
        Manifest.read(with_metadata(path, stored))


def test_metadata_of_a_later_version_is_ignored(tmp_path):
    path = Manifest(frame_of(), levels=["kind", "item"], root=tmp_path).write(tmp_path / "m.parquet")
    assert Manifest.read(with_metadata(path, b'{"levels": ["kind"], "more": 1}')).levels == ("kind",)


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        ([1.0, float("inf")], r"'kind' must be a finite number, got inf in row 2"),
        ([float("-inf"), float("inf")], r"got -inf in row 1, and in 1 more"),
        ([b"owl", b"\xff\xfe"], r"'kind' must be text in UTF-8 or a number, got b'\\xff\\xfe' in row 2"),
        (["owl", "emu\udcff"], r"got 'emu\\udcff' in row 2"),
        ([["owl"], ["emu"]], r"got \['owl'\] in row 1, and in 1 more"),
        ([{"a": 1}, None], r"got \{'a': 1\} in row 1"),
    ],
)
def test_labels_that_are_neither_text_nor_numbers(cells, message):
    kind = pd.Series(cells, dtype=object if isinstance(cells[0], str) else None)
    frame = frame_of().iloc[:2].assign(kind=kind)
    with pytest.raises(ManifestError, match=message):
        Manifest(frame, levels=["kind"], root="/")


def test_numbers_and_bytes_as_labels():
    def names(cells):
        return (
            Manifest(frame_of().iloc[:2].assign(kind=cells), levels=["kind"], root="/").table["kind"].tolist()
        )

    assert names([3.0, float("nan")]) == ["3", ""]
    assert names([b"owl", "emu"]) == ["owl", "emu"]
    assert names([1e300, 2.0]) == ["1e+300", "2.0"], "too large for a whole number"
    assert names([2.0**53, 1.0]) == ["9007199254740992", "1"]
    assert names([0.5, 1.0]) == ["0.5", "1.0"]
    assert names(pd.Categorical([1.0, 2.0])) == ["1", "2"]
    assert names([True, False]) == ["True", "False"]


def test_text_in_parquet_that_is_not_utf_8(tmp_path):
    labels = pa.array([b"owl", b"\xff\xfe"]).view(pa.string())
    columns = {"path": ["a.jpg", "b.jpg"], "split": ["train", "train"], "kind": labels}
    pq.write_table(pa.table(columns), tmp_path / "m.parquet")
    with pytest.raises(ManifestError, match=r"cannot read .*m\.parquet as Parquet: .*UTF8"):
        Manifest.read(tmp_path / "m.parquet")


def test_a_column_that_occurs_twice_in_a_csv(tmp_path):
    (tmp_path / "m.csv").write_text("path,split,kind,kind\na.jpg,train,k,l\n", encoding="utf-8")
    with pytest.raises(ManifestError, match=r"m\.csv: a column name must occur once, got \['kind'\]"):
        Manifest.read(tmp_path / "m.csv")


def test_a_csv_whose_rows_are_longer_than_its_header(tmp_path):
    """pandas on its own takes the first column for an index, and every label for its neighbour's."""
    (tmp_path / "m.csv").write_text("path,split,kind\na.jpg,train,k,l\nb.jpg,train,k,m\n", encoding="utf-8")
    with pytest.raises(ManifestError, match=r"m\.csv as CSV in UTF-8: .*Expected 3 fields in line 2, saw 4"):
        Manifest.read(tmp_path / "m.csv")


def test_a_column_without_a_name_is_no_level(tmp_path):
    (tmp_path / "m.csv").write_text(",path,split,kind\n0,a.jpg,train,k\n", encoding="utf-8")
    with pytest.raises(ManifestError, match=r"column 1 has no name"):
        Manifest.read(tmp_path / "m.csv")
    assert Manifest.read(tmp_path / "m.csv", levels=["kind"]).class_paths() == ["k"]


def test_the_index_of_a_data_frame_is_no_level(tmp_path):
    frame_of().drop(columns="item").iloc[[1, 0]].to_parquet(tmp_path / "m.parquet")
    assert Manifest.read(tmp_path / "m.parquet").levels == ("kind",)
    frame_of().set_index("path").to_parquet(tmp_path / "m.parquet")
    assert Manifest.read(tmp_path / "m.parquet").levels == ("kind", "item")


def test_special_files_and_long_names(tmp_path):
    os.mkfifo(tmp_path / "pipe.parquet")
    os.mkfifo(tmp_path / "pipe.csv")
    for name in ("pipe.parquet", "pipe.csv"):
        with pytest.raises(ManifestError, match=f"{name} as .*: not a regular file"):
            Manifest.read(tmp_path / name)
    with pytest.raises(ManifestError, match="File name too long"):
        Manifest.read(tmp_path / f"{'x' * 300}.csv")
    manifest = Manifest(frame_of(), levels=["kind", "item"], root=tmp_path)
    with pytest.raises(DataError, match="File name too long"):
        manifest.write(tmp_path / f"{'x' * 300}.csv")
    with pytest.raises(DataError, match="it is a directory"):
        manifest.write(tmp_path)


def test_every_flipped_byte_of_a_parquet_file_is_found(tmp_path):
    """An error, or the same table: never other labels."""
    manifest = Manifest(frame_of(), levels=["kind", "item"], root=tmp_path, name="n", credits="c")
    path = manifest.write(tmp_path / "m.parquet")
    whole = path.read_bytes()
    kept = 0
    for place in range(0, len(whole), 5):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0x10]) + whole[place + 1 :])
        try:
            read = Manifest.read(path)
        except ManifestError:
            continue
        kept += 1
        assert read.table["path"].tolist() == manifest.table["path"].tolist()
        assert read.class_paths() == manifest.class_paths()
    assert kept < len(whole) / 5


def test_values_that_parquet_cannot_hold(tmp_path):
    manifest = Manifest(frame_of().assign(extra=[object()] * len(frame_of())), levels=["kind"], root=tmp_path)
    with pytest.raises(ManifestError, match=r"cannot write .*m\.parquet: .*column extra"):
        manifest.write(tmp_path / "m.parquet")
    assert not [*tmp_path.iterdir()]


def test_a_manifest_does_not_replace_one_of_its_images(tmp_path):
    image = tmp_path / "a.png"
    image.write_bytes(b"pixels")
    manifest = Manifest(
        pd.DataFrame({"path": ["a.png"], "split": "test", "kind": "x"}), levels=["kind"], root=tmp_path
    )
    (tmp_path / "link").symlink_to(image)
    for name in ("a.png", "link"):
        with pytest.raises(DataError, match="is one of the images"):
            manifest.write(tmp_path / name)
    assert image.read_bytes() == b"pixels"
