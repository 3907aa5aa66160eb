"""The index: exact search, branches, changes that happen wholly or not at all, one model only."""

from __future__ import annotations

import importlib
import json

import faiss
import numpy as np
import pytest
import torch

from happier.errors import InputError, OptionError, SearchError
from happier.search import Index, measure_recall, store
from tests.search.index_worker import rewrite_head

MODEL = "a" * 64


def build(directory, catalogue, **options):
    return Index.build(directory, catalogue.manifest, catalogue.vectors, fingerprint=MODEL, **options)


def engine_options(name, tmp_path):
    uri = str(tmp_path / "milvus.db") if name == "milvus" and not name.uri else name.uri
    return {"uri": uri} if uri else {}


class EngineName(str):
    """The name of an engine, and the address of its server where it has one."""

    uri = ""


def slow_search(catalogue, query, k, *, rows=None, exclude=None):
    """The definition: score everything, sort, take k."""
    rows = range(len(catalogue.vectors)) if rows is None else rows
    scored = [(-float(np.dot(catalogue.vectors[row], query)), row) for row in rows if row != exclude]
    return [row for _, row in sorted(scored)[:k]]


@pytest.fixture(
    params=["flat", "hnsw", "ivfpq", "milvus", "pgvector", pytest.param("server", marks=pytest.mark.slow)]
)
def engine(request):
    if request.param not in ("server", "pgvector"):
        return EngineName(request.param)
    name = EngineName("milvus" if request.param == "server" else "pgvector")
    fixture = "milvus_server" if request.param == "server" else "postgres"
    name.uri = request.getfixturevalue(fixture).uri
    return name


def test_flat_search_is_the_definition(tmp_path, catalogue, new_catalogue):
    index = build(tmp_path / "index", catalogue)
    queries = new_catalogue(40, seed=5).vectors
    for query, hits in zip(queries, index.search(queries, k=25), strict=True):
        assert [hit.row for hit in hits] == slow_search(catalogue, query, 25)
        assert hits[0].score == pytest.approx(float(catalogue.vectors[hits[0].row] @ query), abs=1e-6)


def test_a_query_of_the_index_is_left_out_by_identity(tmp_path, catalogue):
    vectors = catalogue.vectors.copy()
    vectors[1] = vectors[0]  # a duplicate is not the query
    index = Index.build(tmp_path / "index", catalogue.manifest, vectors, fingerprint=MODEL)
    assert index.search_id(index.ids[0], k=3)[0].row == 1
    assert index.search_id(index.ids[1], k=3)[0].row == 0


def test_every_engine_stays_inside_the_branch(tmp_path, catalogue, engine, monkeypatch):
    monkeypatch.setattr("happier.search.faiss_engine.SCAN_ROWS", 0)
    monkeypatch.setattr("happier.search.milvus_engine.SCAN_ROWS", 0)
    monkeypatch.setattr("happier.search.pgvector_engine.SCAN_ROWS", 0)
    index = build(tmp_path / "index", catalogue, engine=engine, options=engine_options(engine, tmp_path))
    paths = catalogue.manifest.class_paths()
    for within in ("kind 1", paths[0], "/kind 2/", r"kind 0/group\/1"):
        wanted = {row for row, path in enumerate(paths) if (path + "/").startswith(within.strip("/") + "/")}
        hits = index.search(catalogue.vectors[:3], k=1000, within=within)
        for found in hits:
            rows = {hit.row for hit in found}
            assert rows <= wanted
            assert len(rows) >= 0.9 * len(wanted)
    index.close()


def test_engines_find_the_nearest(tmp_path, new_catalogue, engine):
    catalogue = new_catalogue(3000)
    index = build(tmp_path / "index", catalogue, engine=engine, options=engine_options(engine, tmp_path))
    assert measure_recall(index, queries=100) >= 0.95
    # Scores are exact whatever the engine, and fall.
    for hits, query in zip(index.search(catalogue.vectors[:5], k=10), catalogue.vectors[:5], strict=True):
        scores = [hit.score for hit in hits]
        assert scores == sorted(scores, reverse=True)
        assert scores == pytest.approx([float(catalogue.vectors[hit.row] @ query) for hit in hits], abs=1e-5)
    index.close()


def test_engines_work_beside_faiss_for_tensors(tmp_path, new_catalogue, engine):
    """pytorch-metric-learning imports it, and it takes the search parameters from every FAISS index."""
    importlib.import_module("faiss.contrib.torch_utils")
    catalogue = new_catalogue(400)
    index = build(tmp_path / "index", catalogue, engine=engine, options=engine_options(engine, tmp_path))
    assert measure_recall(index, queries=50) >= 0.95
    index.close()
    plain = faiss.IndexFlatIP(4)
    plain.add(torch.eye(4))
    scores, rows = plain.search(torch.eye(4), 1)
    assert isinstance(rows, torch.Tensor)
    assert rows[:, 0].tolist() == [0, 1, 2, 3]
    assert scores[:, 0].tolist() == [1, 1, 1, 1]


def test_add_and_delete_equal_a_fresh_build(tmp_path, catalogue, engine):
    options = engine_options(engine, tmp_path)
    index = build(tmp_path / "index", catalogue.part(np.arange(500)), engine=engine, options=options)
    index.add(catalogue.part(np.arange(500, 700)).manifest, catalogue.vectors[500:], fingerprint=MODEL)
    gone = np.arange(0, 700, 9)
    assert index.delete([index.ids[row] for row in gone]) == len(gone)
    left = np.setdiff1d(np.arange(700), gone)
    expected = catalogue.part(left)
    for current in (index, Index.open(tmp_path / "index")):
        assert current.ids == [str(one) for one in expected.manifest.ids()]
        np.testing.assert_array_equal(current.vectors, expected.vectors)
        hits = current.search(catalogue.vectors[:20], k=5)
        assert not {hit.id for found in hits for hit in found} & {
            catalogue.manifest.ids()[row] for row in gone
        }
        if engine == "flat":
            for found, query in zip(hits, catalogue.vectors, strict=False):
                assert [hit.row for hit in found] == slow_search(expected, query, 5)
        current.close()


def test_a_graph_of_full_precision_still_opens(tmp_path, catalogue):
    """Indexes of before the graph kept half-precision vectors."""
    faiss = pytest.importorskip("faiss")
    index = build(tmp_path / "index", catalogue.part(np.arange(500)), engine="hnsw")
    graph = faiss.IndexHNSWFlat(32, 24, faiss.METRIC_INNER_PRODUCT)
    graph.add(catalogue.vectors[:500])
    faiss.write_index(graph, str(tmp_path / "index" / index.head.settings["file"]))
    path = tmp_path / "index" / "index.json"
    head = json.loads(path.read_text())
    head["format"] = 1  # without checksums
    del head["checksums"], head["vector_checksums"]
    head["settings"]["search_options"] = {"effort": 96}
    rewrite_head(tmp_path / "index", head)
    old = Index.open(tmp_path / "index")
    assert measure_recall(old, queries=50) >= 0.95
    old.add(catalogue.part(np.arange(500, 700)).manifest, catalogue.vectors[500:], fingerprint=MODEL)
    assert old.search(catalogue.vectors[600:601], k=1)[0][0].row == 600


def test_a_graph_that_began_with_one_image_finds_those_added_later(tmp_path, new_catalogue):
    catalogue = new_catalogue(2000)
    index = build(tmp_path / "index", catalogue.part(np.arange(1)), engine="hnsw")
    rest = catalogue.part(np.arange(1, 2000))
    index.add(rest.manifest, rest.vectors, fingerprint=MODEL)
    assert measure_recall(index, queries=100) >= 0.95


def test_milvus_builds_the_structure_it_is_told_to(tmp_path, catalogue):
    from pymilvus import MilvusClient

    options = engine_options(EngineName("milvus"), tmp_path)
    index = build(tmp_path / "index", catalogue, engine="milvus", options=options)
    client = MilvusClient(options["uri"])
    collection = index.head.settings["collection"]
    (name,) = client.list_indexes(collection)
    told = str(client.describe_index(collection, name))
    assert "efConstruction" in told
    client.close()
    index.close()


def test_deleting_many_rewrites_the_vectors(tmp_path, catalogue, engine):
    options = engine_options(engine, tmp_path)
    index = build(tmp_path / "index", catalogue, engine=engine, options=options)
    index.delete(index.ids[:300])
    assert index.head.rows == 400
    assert (tmp_path / "index" / index.head.vectors).stat().st_size == 400 * 32 * 4
    assert len([path for path in (tmp_path / "index").iterdir() if path.name.startswith("vectors-")]) == 1
    assert index.search_id(index.ids[0], k=400)
    index.close()


def test_ids_branches_and_labels_follow_the_manifest(tmp_path, catalogue):
    index = build(tmp_path / "index", catalogue)
    assert index.levels == catalogue.manifest.levels
    assert index.class_paths == catalogue.manifest.class_paths()
    np.testing.assert_array_equal(index.labels, catalogue.manifest.labels())
    assert index.row(index.ids[7]) == 7
    with pytest.raises(SearchError, match="no image with the id 'nobody'"):
        index.row("nobody")
    with pytest.raises(SearchError, match=r"no branch 'kind 9'; it begins with kind 0, kind 1"):
        index.scope("kind 9")
    with pytest.raises(SearchError, match="no branch"):
        index.scope("\udcff")  # bytes of a command line that are no text
    with pytest.raises(SearchError, match=r"no branch 'kind 0/x'; 'kind 0' has group/0, group/1"):
        index.scope("kind 0/x")
    with pytest.raises(SearchError, match="it has 3 levels"):
        index.scope(catalogue.manifest.class_paths()[0] + "/deeper")


def test_another_model_is_refused(tmp_path, catalogue):
    index = build(tmp_path / "index", catalogue.part(np.arange(100)))
    more = catalogue.part(np.arange(100, 120))
    with pytest.raises(SearchError, match="two models cannot be compared"):
        index.add(more.manifest, more.vectors, fingerprint="b" * 64)
    assert len(Index.open(tmp_path / "index")) == 100


def test_a_failed_build_leaves_nothing(tmp_path, catalogue):
    def broken(self, directory):
        raise RuntimeError("disk full")

    class Encoder:
        fingerprint = MODEL
        save_pretrained = broken

    with pytest.raises(RuntimeError, match="disk full"):
        build(tmp_path / "index", catalogue, encoder=Encoder())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("moment", ["write_vectors", "write_head"])
def test_an_interrupted_addition_changes_nothing(tmp_path, catalogue, engine, moment, monkeypatch):
    options = engine_options(engine, tmp_path)
    first, second = catalogue.part(np.arange(400)), catalogue.part(np.arange(400, 500))
    index = build(tmp_path / "index", first, engine=engine, options=options)
    real = getattr(store, moment)

    def interrupt(*arguments, **more):
        if moment == "write_vectors":
            real(*arguments, **more)  # the rows are on disk, the commit never came
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(store, moment, interrupt)
        with pytest.raises(KeyboardInterrupt):
            index.add(second.manifest, second.vectors, fingerprint=MODEL)
    index.close()
    again = Index.open(tmp_path / "index")
    assert len(again) == 400
    assert all(hit.row < 400 for hits in again.search(second.vectors[:5], k=20) for hit in hits)
    assert again.add(second.manifest, second.vectors, fingerprint=MODEL) == 100
    assert again.search(second.vectors[:1], k=1)[0][0].row == 400
    np.testing.assert_array_equal(again.vectors, catalogue.vectors[:500])
    again.close()


def test_a_reader_keeps_its_state_while_the_index_changes(tmp_path, catalogue):
    reader = build(tmp_path / "index", catalogue)
    before = [hit.id for hit in reader.search(catalogue.vectors[:1], k=10)[0]]
    writer = Index.open(tmp_path / "index")
    writer.delete(before[:3])
    writer.delete(writer.ids[:400])
    assert [hit.id for hit in reader.search(catalogue.vectors[:1], k=10)[0]] == before


def test_what_is_there_is_not_overwritten_by_mistake(tmp_path, catalogue):
    build(tmp_path / "index", catalogue)
    with pytest.raises(SearchError, match="use --overwrite"):
        build(tmp_path / "index", catalogue)
    smaller = build(tmp_path / "index", catalogue.part(np.arange(50)), overwrite=True)
    assert len(smaller) == 50
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "one.png").touch()
    with pytest.raises(SearchError, match="is not an index"):
        build(tmp_path / "photos", catalogue, overwrite=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["index", "photos"]


def test_additions_are_checked(tmp_path, catalogue):
    index = build(tmp_path / "index", catalogue.part(np.arange(100)))
    more = catalogue.part(np.arange(90, 110))
    with pytest.raises(SearchError, match="10 of these images are already in the index"):
        index.add(more.manifest, more.vectors, fingerprint=MODEL)
    with pytest.raises(InputError, match="20 images, 3 vectors"):
        index.add(more.manifest, more.vectors[:3], fingerprint=MODEL)
    with pytest.raises(InputError, match="32 dimensions"):
        index.search(np.ones((1, 1), dtype=np.float32))
    with pytest.raises(InputError, match="unit length; row 1"):
        index.search(np.stack([catalogue.vectors[0], 3 * catalogue.vectors[0]]))
    with pytest.raises(InputError, match="unit length"):
        index.search(np.full((1, 32), np.nan, dtype=np.float32))
    with pytest.raises(SearchError, match="at least one image"):
        index.delete(index.ids)
    with pytest.raises(SearchError, match="has no model"):
        index.search_images(["x.png"])


def test_images_of_another_folder_keep_their_place(tmp_path, catalogue, new_catalogue):
    index = build(tmp_path / "index", catalogue.part(np.arange(10)))
    more = new_catalogue(5, prefix="new-")
    more.manifest.root = tmp_path / "elsewhere"
    index.add(more.manifest, more.vectors, fingerprint=MODEL)
    assert str(index.items.files()[0]) == "/images/00000.png"
    assert index.items.files()[10] == tmp_path / "elsewhere" / "new-00000.png"


def test_options_and_engines_are_checked(tmp_path, catalogue):
    with pytest.raises(OptionError, match="engine must be one of flat, hnsw"):
        build(tmp_path / "index", catalogue, engine="annoy")
    with pytest.raises(OptionError, match="no option 'effrt'; it has: neighbours"):
        build(tmp_path / "index", catalogue, engine="hnsw", options={"effrt": 3})
    with pytest.raises(OptionError, match="from 1 to 1,000,000, got 0"):
        build(tmp_path / "index", catalogue, engine="hnsw", options={"effort": 0})
    with pytest.raises(OptionError, match="needs a uri"):
        build(tmp_path / "index", catalogue, engine="milvus")
    with pytest.raises(SearchError, match="256 vectors or more"):
        build(tmp_path / "index", catalogue.part(np.arange(20)), engine="ivfpq")
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_index_says_so(tmp_path, catalogue):
    with pytest.raises(SearchError, match="no index at"):
        Index.open(tmp_path)
    index = build(tmp_path / "index", catalogue)
    head = json.loads((tmp_path / "index" / "index.json").read_text())
    path = tmp_path / "index" / "index.json"
    rewrite_head(tmp_path / "index", {**head, "vectors": "../../etc/passwd"})
    with pytest.raises(SearchError, match="vectors: String should match pattern"):
        Index.open(tmp_path / "index")
    rewrite_head(tmp_path / "index", {**head, "format": 99})
    with pytest.raises(SearchError, match="not of format"):
        Index.open(tmp_path / "index")
    path.write_text("{")
    with pytest.raises(SearchError, match=r"index\.json is damaged"):
        Index.open(tmp_path / "index")
    rewrite_head(tmp_path / "index", head)
    with (tmp_path / "index" / index.head.vectors).open("r+b") as file:
        file.truncate(100)
    with pytest.raises(SearchError, match="missing or shorter"):
        Index.open(tmp_path / "index")
