"""Changes of one index that meet, that are killed, that readers watch: nothing is lost, nothing half done."""

from __future__ import annotations

import itertools
import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from happier.errors import SearchError
from happier.search import Index, extend_index, store
from happier.search.vector_file import BLOCK_ROWS, block_checksums
from tests.search.index_worker import MODEL, OPERATIONS, after, change, held, images, vector_of

CHANGES = [name for name in OPERATIONS if name != "build"]


class Worker:
    """A process that changes indexes."""

    def __init__(self):
        script = Path(__file__).with_name("index_worker.py")
        self._process = subprocess.Popen(
            [sys.executable, str(script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def order(self, **order):
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()

    def outcome(self):
        return json.loads(self._process.stdout.readline())

    def stop(self):
        self._process.stdin.close()
        assert self._process.wait() == 0
        self._process.stdout.close()


@pytest.fixture(scope="module")
def workers():
    both = Worker(), Worker()
    yield both
    for worker in both:
        worker.stop()


@pytest.mark.parametrize(("first", "second"), list(itertools.product(CHANGES, CHANGES)))
def test_two_changes_at_once_are_as_if_one_came_after_the_other(tmp_path, workers, first, second):
    directory = str(tmp_path / "index")
    change("build", directory)
    state = set(OPERATIONS["build"])
    workers[0].order(op=first, directory=directory, pause=str(tmp_path / "pause"))
    while not (tmp_path / "pause.inside").exists():
        time.sleep(0.01)
    workers[1].order(op=second, directory=directory)
    time.sleep(0.1)  # enough for a writer without a lock to read the old state
    (tmp_path / "pause.go").touch()
    assert "changed" in workers[0].outcome()
    state = after(state, first)
    outcome = workers[1].outcome()
    expected = after(state, second)
    if expected is None:
        assert "no image with the id" in outcome["refused"]
    assert held(directory) == (expected or state)
    assert names(directory) == named(directory)


def names(directory):
    return {path.name for path in Path(directory).iterdir()}


def named(directory):
    """The files that an index is made of, and nothing else."""
    head = store.read_head(Path(directory))
    file = head.settings.get("file")
    return {"index.json", ".lock", head.items, head.vectors, *([file] if file else [])}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("op", "engine"), [*((op, "flat") for op in OPERATIONS), ("add", "hnsw"), ("delete many", "hnsw")]
)
def test_a_killed_change_leaves_the_old_state_or_the_new(tmp_path, workers, op, engine):
    directory, kept = tmp_path / "index", tmp_path / "kept"
    state: set[int] = set()
    if op != "build":
        change("build", str(kept), engine)
        state = set(OPERATIONS["build"])
    for kill_at in itertools.count(1):
        shutil.rmtree(directory, ignore_errors=True)
        if op != "build":
            shutil.copytree(kept, directory)
        workers[0].order(op=op, directory=str(directory), kill_at=kill_at, engine=engine)
        if not workers[0].outcome()["killed"]:
            break
        new = set(OPERATIONS["build"]) if op == "build" else after(state, op)
        there = held(directory) if op != "build" or (directory / "index.json").exists() else set()
        assert there in (state, new)
        # The next command finds an index that it can change, and clears away what the kill left.
        if op in ("build", "overwrite"):
            Index.build(directory, *images(range(60)), fingerprint=MODEL, overwrite=True)
            assert held(directory) == set(range(60))
        else:
            Index.open(directory).add(*images([999]), fingerprint=MODEL)
            assert held(directory) == there | {999}
        assert names(directory) == named(directory)
        assert names(tmp_path) <= {"index", "kept"}
    assert kill_at > 5


def test_an_addition_takes_in_what_happened_while_its_images_were_embedded(tmp_path):
    directory = tmp_path / "index"
    change("build", str(directory))

    class Slow:
        fingerprint = MODEL

        def embed_manifest(self, manifest, out_dir, **_):
            self.asked = list(manifest.ids())
            change("add", str(directory))
            change("delete many", str(directory))
            self.vectors = np.stack([vector_of(int(one.removesuffix(".png"))) for one in self.asked])
            return self

    manifest, _ = images(range(90, 125))
    index, added = extend_index(Slow(), manifest, directory)
    assert (len(index), added) == (len(held(directory)), 5)
    assert held(directory) == (set(range(100)) | set(range(100, 125))) - set(range(5, 50))
    assert names(tmp_path) == {"index"}


def test_a_reader_keeps_its_vectors_through_every_change(tmp_path):
    """A file that shrank under it would end this process."""
    directory = str(tmp_path / "index")
    change("build", directory)
    change("add", directory)
    reader = Index.open(directory)
    expected = np.stack([vector_of(number) for number in range(120)])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "write_head", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            change("add more", directory)
    size = (Path(directory) / reader.head.vectors).stat().st_size
    for op in ("add more", "delete", "delete many", "overwrite"):
        np.testing.assert_array_equal(reader.vectors, expected)
        file = Path(directory) / reader.head.vectors
        assert not file.exists() or file.stat().st_size >= size
        change(op, directory)
    np.testing.assert_array_equal(reader.vectors, expected)
    assert [hits[0].id for hits in reader.search(expected, k=1)] == reader.ids


def test_the_index_stays_while_it_is_replaced(tmp_path, monkeypatch):
    directory = tmp_path / "index"
    change("build", str(directory))
    real = store.write_head
    seen = []

    def look(*arguments):
        seen.append(held(directory))
        real(*arguments)

    monkeypatch.setattr(store, "write_head", look)
    change("overwrite", str(directory))
    assert seen == [set(OPERATIONS["build"])]
    assert held(directory) == set(OPERATIONS["overwrite"])


def test_a_model_that_was_replaced_is_not_mistaken_for_a_damaged_one(tmp_path):
    class Encoder:
        fingerprint = MODEL

        def save_pretrained(self, folder):
            folder.mkdir()
            (folder / "model.json").write_text("{}")

    directory = tmp_path / "index"
    manifest, vectors = images(range(10))
    for overwrite in (False, True):
        built = Index.build(
            directory, manifest, vectors, fingerprint=MODEL, encoder=Encoder(), overwrite=overwrite
        )
        if not overwrite:
            reader = built
    with pytest.raises(SearchError, match="has been replaced since it was opened"):
        reader.encoder()
    assert names(directory) == {"index.json", ".lock", "items-2.parquet", "vectors-2.f32", "model-2"}


def test_leftovers_of_earlier_versions_go(tmp_path):
    directory = tmp_path / "index"
    change("build", str(directory))
    for name in (".index.ab12cd_4.old", ".index.ab12cd_5.vectors", ".index.ab12cd_6.part"):
        (tmp_path / name / "embeddings").mkdir(parents=True)
    (tmp_path / ".index2.ab12cd_6.old").mkdir()
    change("add", str(directory))
    assert names(tmp_path) == {"index", ".index2.ab12cd_6.old"}


def test_a_folder_of_something_else_is_left_alone(tmp_path):
    (tmp_path / "run" / "model").mkdir(parents=True)
    with pytest.raises(SearchError, match="is not an index"):
        change("build", str(tmp_path / "run"))
    (tmp_path / "file").write_text("text")
    with pytest.raises(SearchError, match="is not an index"):
        change("build", str(tmp_path / "file"))
    assert (tmp_path / "run" / "model").is_dir()
    with pytest.raises(SearchError, match="no index at"):
        change("add", str(tmp_path / "nothing"))
    for op in ("build", "add"):
        with pytest.raises(SearchError, match="File name too long"):
            change(op, str(tmp_path / ("n" * 300)))
    assert names(tmp_path) == {"run", "file"}


def test_block_checksums_are_those_of_a_whole_pass(monkeypatch):
    monkeypatch.setattr("happier.search.vector_file.BLOCK_ROWS", 4)
    assert BLOCK_ROWS == 65_536
    vectors = np.random.default_rng(0).standard_normal((11, 3)).astype(np.float32)
    whole = block_checksums(vectors)
    assert len(whole) == 3
    for rows in range(12):
        known = block_checksums(vectors[:rows])
        assert block_checksums(vectors, known=known, known_rows=rows) == whole


@pytest.mark.parametrize("content", ["[]", "{}", '{"engine": "milvus", "settings": 3}', "not JSON"])
def test_a_damaged_note_of_what_is_kept_elsewhere_stops_no_change(tmp_path, content):
    (tmp_path / "outside-1.json").write_text(content)
    for _ in range(2):
        store.IndexStore(tmp_path).note_outside("milvus", {"collection": "ours"})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["outside-1.json", "outside-2.json"]
    assert json.loads((tmp_path / "outside-2.json").read_text())["settings"] == {"collection": "ours"}
