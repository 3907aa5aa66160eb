"""Readers of stored files given anything: they answer, or raise one line of ours, and come to an end.

``FUZZ=2500 python -m pytest tests/reliability/test_readers.py`` tries more than `make test` does. What it
found is in the tests of each reader.
"""

import copy
import json
import os
from contextlib import closing
from pathlib import Path

import hypothesis.strategies as st
import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from noisy_images import encoder, manifest  # noqa: F401 - fixtures

from happier import Encoder
from happier.curation.corrections import Correction, CorrectionsFile, apply_corrections
from happier.curation.taxonomy import make_taxonomy
from happier.data import Manifest
from happier.data.taxonomies.class_paths import with_taxonomy
from happier.encoder.embeddings import Embeddings
from happier.errors import HappierError
from happier.fit.directory import FitDirectory, FitRecord
from happier.runs import RunDirectory
from happier.search import Index
from happier.search.index_json import read_head
from happier.storage.records import _values_checksum, write_record
from happier.training.compose import compose
from happier.training.config import TrainConfig, differences, to_yaml
from happier.web.thumbnails import ThumbnailStore
from happier.web.tokens import find_token, read_tokens

EXAMPLES = int(os.environ.get("FUZZ", "15"))
fuzz = settings(
    max_examples=EXAMPLES,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)

ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.sampled_from(["", "x", "../x", "a\0b", "nan", "${run}", "???", "${oc.env:HOME}", "\ud800", "x" * 300]),
    st.text(max_size=8),
)
JSON = st.recursive(
    ODD,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


def places(value, path=()):
    """Every place in a document."""
    yield path
    if isinstance(value, dict):
        for key in value:
            yield from places(value[key], (*path, key))
    elif isinstance(value, list):
        for number, one in enumerate(value[:3]):
            yield from places(one, (*path, number))


def changed(document, path, value):
    """A copy with another value in one place, or without it where the value is `places`."""
    if not path:
        return value
    found = copy.deepcopy(document)
    inner = found
    for key in path[:-1]:
        inner = inner[key]
    if value is places:
        del inner[path[-1]]
    else:
        inner[path[-1]] = value
    return found


@st.composite
def changes(draw, document):
    """A document with one or two places changed or removed."""
    found = document
    for _ in range(draw(st.integers(1, 2))):
        path = draw(st.sampled_from(sorted(places(found), key=repr)))
        found = changed(found, path, draw(st.just(places) if path and draw(st.booleans()) else JSON))
    return found


def cut_and_flipped(content: bytes):
    """The same bytes, cut short, with some replaced, or with some put in."""
    at = st.integers(0, max(0, len(content) - 1))
    return st.one_of(
        at.map(lambda place: content[:place]),
        st.tuples(at, st.binary(min_size=1, max_size=6)).map(
            lambda one: content[: one[0]] + one[1] + content[one[0] + len(one[1]) :]
        ),
        st.tuples(
            at,
            st.sampled_from(
                [
                    b"[" * 40,
                    b"{",
                    b"&a ",
                    b"*a",
                    b"!!python/object:x ",
                    b"<<: ",
                    b"\x00",
                    b"\xff",
                    b": ",
                    b"- ",
                    b"? ",
                    b"|\n",
                    b"1e999",
                    b".nan",
                    b"\n\n---\n",
                    b"%TAG ! x\n",
                ]
            ),
        ).map(lambda one: content[: one[0]] + one[1] + content[one[0] :]),
        st.binary(max_size=60),
    )


def survives(read) -> None:
    """The reader gives something, or one line."""
    try:
        read()
    except HappierError as error:
        text = str(error).replace("\n  - ", " ")  # a manifest lists its faults
        assert "\n" not in text
        assert len(text) < 2000


def dump(value) -> bytes:
    return json.dumps(value).encode("utf-8", "surrogatepass")


@pytest.fixture(scope="module")
def config():
    return compose(["recipe=small", "run=runs/x", "data.manifest=m.parquet"])


CONFIG = to_yaml(compose(["recipe=small", "run=runs/x", "data.manifest=m.parquet"]))
CONFIG_VALUES = yaml.safe_load(CONFIG)


def read_configuration(folder: Path, content: bytes, config: TrainConfig) -> None:
    from dataclasses import asdict

    run = RunDirectory(folder)
    run.config_file.write_bytes(content)
    survives(lambda: differences(run.read_config(), asdict(config)))


@fuzz
@given(content=cut_and_flipped(CONFIG.encode()))
def test_any_bytes_as_a_configuration(tmp_path, config, content):
    read_configuration(tmp_path, content, config)


@fuzz
@given(value=changes(CONFIG_VALUES))
def test_any_values_in_a_configuration(tmp_path, config, value):
    try:
        content = yaml.safe_dump(value, allow_unicode=True).encode("utf-8", "surrogatepass")
    except (yaml.YAMLError, ValueError):
        content = dump(value)
    read_configuration(tmp_path, content, config)


LINE = {"kind": "evaluation", "step": 3, "epoch": 1, "split": "val", "best": True, "metrics": {"H-AP": 0.5}}


@fuzz
@given(content=cut_and_flipped(dump(LINE) + b"\n" + dump(LINE) + b"\n"))
def test_any_bytes_as_a_history(tmp_path, content):
    run = RunDirectory(tmp_path)
    run.metrics_file.write_bytes(content)
    survives(lambda: [(line["kind"], line["step"], line.get("metrics")) for line in run.read_history()])


@fuzz
@given(value=changes(LINE))
def test_any_values_in_a_history(tmp_path, value):
    run = RunDirectory(tmp_path)
    run.metrics_file.write_bytes(dump(value) + b"\n" + dump(LINE) + b"\n")
    survives(lambda: [line["step"] + 1 for line in run.read_history()])


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    names = [(f"{n}.png", "test", f"k{n % 2}", f"i{n % 4}") for n in range(12)]
    rows = pd.DataFrame(names, columns=["path", "split", "kind", "item"])
    place = tmp_path_factory.mktemp("index") / "index"
    vectors = np.eye(12, 16, dtype=np.float32)
    Index.build(
        place, Manifest(rows, levels=["kind", "item"], root="/"), vectors, fingerprint="a" * 64
    ).close()
    return place


@fuzz
@given(data=st.data())
def test_any_values_in_an_index(index, data):
    head = index / "index.json"
    content = head.read_bytes()
    values = json.loads(content)
    del values["checksum"]
    try:
        value = data.draw(st.one_of(changes(values).map(dump), cut_and_flipped(content)))
        head.write_bytes(value)
        survives(lambda: identified(index))
    finally:
        head.write_bytes(content)


def identified(place) -> None:
    """Open an index and name its first image; whatever its calibration, that gives probabilities."""
    index = Index.open(place)
    try:
        found = index.identify_id(index.ids[0])
        assert all(0 <= step.probability <= 1 for step in found.steps)
    finally:
        index.close()


@fuzz
@given(data=st.data())
def test_any_numbers_in_a_calibration(index, data):
    """With the checksum that belongs to them, as in an index from elsewhere."""
    head = index / "index.json"
    content = head.read_bytes()
    kept = read_head(index)
    values = json.loads(content)["calibration"]
    wrong = data.draw(changes(values))
    try:
        write_json({**json.loads(content), "calibration": wrong}, head)
        survives(lambda: identified(index))
    finally:
        head.write_bytes(content)
    assert read_head(index) == kept


def write_json(values, path) -> None:
    """An index.json whose checksum is right."""
    del values["checksum"]
    try:
        values["checksum"] = _values_checksum(values)
    except (TypeError, ValueError):
        values["checksum"] = "0" * 32
    path.write_bytes(dump(values))


CORRECTIONS = b"id,label,decision,class\n1.png,k1/i1,wrong,k0/i0\n,k1/i3,right,\n"


@fuzz
@given(content=cut_and_flipped(CORRECTIONS))
def test_any_bytes_as_corrections(index, tmp_path, content):
    file = tmp_path / "corrections.csv"
    file.write_bytes(content)
    with closing(Index.open(index)) as opened:
        survives(lambda: apply_corrections(opened.items, CorrectionsFile(file).read()))
        survives(lambda: CorrectionsFile(file).record(Correction("2.png", "k0/i2", "right")))


TOKENS = b'[anna]\ntoken = "0123456789abcdef-anna"\nrole = "write"\nexpires = 2099-01-31\n'
TOML = [b"[a.b]\n", b"token = 1\n", b"expires = 1e999\n", b"expires = 2099-01-31T00:00:00\n", b"\xff"]


@fuzz
@given(content=st.one_of(cut_and_flipped(TOKENS), st.sampled_from(TOML).map(lambda line: TOKENS + line)))
def test_any_bytes_as_tokens(tmp_path, content):
    file = tmp_path / "tokens.toml"
    file.write_bytes(content)
    survives(lambda: [find_token(read_tokens(file), "0123456789abcdef-anna")])


@fuzz
@given(data=st.data())
def test_any_bytes_as_thumbnails(tmp_path, data):
    """A cache: what is damaged is missing, and never another picture."""
    file = tmp_path / "thumbnails.sqlite"
    for left in tmp_path.glob("thumbnails.sqlite*"):
        left.unlink()
    store = ThumbnailStore(file)
    store.put("a", b"picture")
    store.close()
    file.write_bytes(data.draw(cut_and_flipped(file.read_bytes())))
    for _ in range(2):
        store = ThumbnailStore(file)
        assert store.get("a") in (b"picture", None)
        store.put("a", b"picture")
        assert store.get("a") in (b"picture", None)
        store.close()


TREE = b"item,kind\ni0,a\ni1,a\ni2,b\ni3,b\n"


@fuzz
@given(content=cut_and_flipped(TREE))
def test_any_bytes_as_a_table_of_a_taxonomy(tmp_path, content):
    file = tmp_path / "tree.csv"
    file.write_bytes(content)
    names = [(f"{n}.png", "test", f"i{n % 4}") for n in range(8)]
    flat = Manifest(pd.DataFrame(names, columns=["path", "split", "item"]), levels=["item"], root="/")
    survives(
        lambda: with_taxonomy(flat, make_taxonomy(flat, "table", file, choices=tmp_path / "choices.csv"))
    )


@pytest.fixture
def model(encoder, tmp_path):  # noqa: F811
    encoder.save_pretrained(tmp_path / "model")
    return tmp_path / "model"


@fuzz
@given(data=st.data())
def test_any_values_in_the_settings_of_a_model(model, data):
    file = model / "model.json"
    content = file.read_bytes()
    values = json.loads(content)
    del values["checksum"]
    try:
        file.write_bytes(data.draw(st.one_of(changes(values).map(dump), cut_and_flipped(content))))
        survives(lambda: Encoder.from_pretrained(model))
    finally:
        file.write_bytes(content)


@fuzz
@given(data=st.data())
def test_any_metadata_of_a_manifest(manifest, data):  # noqa: F811
    place = Path(manifest.root) / "fuzzed.parquet"
    manifest.write(place)
    table = pq.read_table(place)
    key = next(name for name in table.schema.metadata if b"happier" in name)
    values = json.loads(table.schema.metadata[key])
    text = data.draw(st.one_of(changes(values).map(dump), cut_and_flipped(table.schema.metadata[key])))
    pq.write_table(table.replace_schema_metadata({key: text}), place)
    survives(lambda: Manifest.read(place).files())


@fuzz
@given(data=st.data())
def test_any_values_in_the_head_of_embeddings(encoder, manifest, tmp_path, data):  # noqa: F811
    place = tmp_path / "embeddings"
    if not place.exists():
        encoder.embed_manifest(manifest, place)
    file = place / data.draw(st.sampled_from(["embeddings.json", "images-1.parquet", "items-1.parquet"]))
    content = file.read_bytes()
    try:
        damaged = cut_and_flipped(content)
        if file.suffix == ".json":
            values = json.loads(content)
            values.pop("checksum", None)
            damaged = st.one_of(changes(values).map(dump), damaged)
        file.write_bytes(data.draw(damaged))
        survives(lambda: Embeddings.read(place))
    finally:
        file.write_bytes(content)


@fuzz
@given(data=st.data())
def test_any_values_in_the_record_of_a_fit(tmp_path, data):
    directory = FitDirectory(tmp_path)
    write_record(FitRecord(images="a", left_out={"unreadable": 1}), directory.record_file)
    content = directory.record_file.read_bytes()
    directory.record_file.write_bytes(
        data.draw(st.one_of(changes(json.loads(content)).map(dump), cut_and_flipped(content)))
    )
    found = directory.read()
    assert found.images in ("", "a")
