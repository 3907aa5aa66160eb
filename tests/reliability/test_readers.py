"""Readers of stored files given anything: they answer, or raise one line of ours, and come to an end.

``FUZZ=2500 python -m pytest tests/reliability/test_readers.py`` tries more than `make test` does. What it
found is in the tests of each reader.
"""

import copy
import json
import os
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
from happier.data import Manifest
from happier.encoder.embeddings import Embeddings
from happier.errors import HappierError
from happier.fit.directory import FitDirectory, FitRecord
from happier.runs import RunDirectory
from happier.search import Index
from happier.storage.records import write_record
from happier.training.compose import compose
from happier.training.config import TrainConfig, differences, to_yaml

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
    rows = pd.DataFrame({"path": [f"{n}.png" for n in range(6)], "split": "test", "kind": "a", "item": "b"})
    place = tmp_path_factory.mktemp("index") / "index"
    vectors = np.eye(6, 8, dtype=np.float32)
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
        survives(lambda: Index.open(index).close())
    finally:
        head.write_bytes(content)


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
        survives(lambda: RunDirectory(model).read_fingerprint())
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
