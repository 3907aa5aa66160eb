"""Every protocol gives what the library function gives for the rows it should take."""

import numpy as np
import pandas as pd
import pytest

import happier
from happier.data import Manifest
from happier.errors import InputError, ManifestError
from happier.evaluation import evaluate, kernel_engine
from happier.evaluation.inputs import Vectors
from happier.evaluation.protocol import evaluate_manifest, evaluation_sets, splits_to_search

LEVELS = ("kind", "item")


def make(splits, *, seed=0, extra=None, name=None, kinds=3, items=3):
    rng = np.random.default_rng(seed)
    rows = len(splits)
    kind = rng.integers(0, kinds, rows)
    item = rng.integers(0, items, rows)
    table = pd.DataFrame(
        {
            "path": [f"{i}.png" for i in range(rows)],
            "split": splits,
            "kind": [f"k{k}" for k in kind],
            "item": [f"k{k}i{i}" for k, i in zip(kind, item, strict=True)],
        }
    )
    if extra:
        table = table.assign(**extra)
    vectors = rng.normal(size=(rows, 6)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return Manifest(table, levels=LEVELS, root=".", name=name), vectors


def same(found, expected):
    assert found.summary.keys() == expected.summary.keys()
    for name, values in expected.per_query.items():
        np.testing.assert_array_equal(found.per_query[name], values, err_msg=name)


def test_leave_one_out_takes_test_rows_only():
    manifest, vectors = make(["train"] * 20 + ["test"] * 40 + ["val"] * 10)
    found = evaluate_manifest(vectors, manifest)
    rows = np.arange(20, 60)
    expected = evaluate(vectors[rows], manifest.labels()[rows], level_names=LEVELS)
    same(found.results[0], expected)
    assert found.sets[0].protocol == "leave-one-out"
    assert found.summary()["H-AP"] == expected.summary["H-AP"]


def test_the_split_asked_for_is_taken():
    manifest, vectors = make(["train"] * 20 + ["test"] * 40 + ["val"] * 10)
    expected = evaluate(vectors[60:], manifest.labels()[60:], level_names=LEVELS)
    same(evaluate_manifest(vectors, manifest, split="val").results[0], expected)


def test_distractors_join_the_gallery_of_leave_one_out():
    manifest, vectors = make(["test"] * 40 + ["distractor"] * 15)
    found = evaluate_manifest(vectors, manifest)
    labels, ids = manifest.labels(), manifest.ids()
    expected = evaluate(
        vectors[:40], labels[:40], vectors, labels, ids=ids[:40], gallery_ids=ids, level_names=LEVELS
    )
    same(found.results[0], expected)
    assert "15 of them distractors" in found.sets[0].protocol


def test_queries_are_searched_in_the_gallery_and_never_find_themselves():
    shared = [f"id{i}" for i in range(20)]
    manifest, vectors = make(
        ["query"] * 20 + ["gallery"] * 40 + ["distractor"] * 5,
        extra={"id": shared + shared + [f"other{i}" for i in range(25)]},
    )
    vectors[20:40] = vectors[:20]  # the same images stand in the gallery
    table = manifest.table.copy()
    table.loc[20:39, ["kind", "item"]] = table.loc[0:19, ["kind", "item"]].to_numpy()
    manifest = Manifest(table, levels=LEVELS, root=".")
    found = evaluate_manifest(vectors, manifest)
    labels, ids = manifest.labels(), manifest.ids()
    expected = evaluate(
        vectors[:20],
        labels[:20],
        vectors[20:],
        labels[20:],
        ids=ids[:20],
        gallery_ids=ids[20:],
        level_names=LEVELS,
    )
    same(found.results[0], expected)
    unprotected = evaluate(vectors[:20], labels[:20], vectors[20:], labels[20:], level_names=LEVELS)
    assert found.results[0].summary["R@1/item"] < unprotected.summary["R@1/item"] == 1.0


def dyml(sets=("coarse", "middle", "fine")):
    tables, parts = [], []
    for number, name in enumerate(sets):
        rng = np.random.default_rng(number)
        rows = 30
        tables.append(
            pd.DataFrame(
                {
                    "path": [f"{name}/{i}.png" for i in range(rows)],
                    "split": ["query"] * 10 + ["gallery"] * 20,
                    "kind": [f"{name} {c}" for c in rng.integers(0, 3, rows)],
                    "item": "",
                    "set": name,
                }
            )
        )
        parts.append(rng.normal(size=(rows, 6)).astype(np.float32))
    manifest = Manifest(pd.concat(tables), levels=LEVELS, root=".", name="dyml-animal")
    return manifest, np.concatenate(parts)


def test_dyml_sets_are_evaluated_apart_and_averaged():
    manifest, vectors = dyml()
    found = evaluate_manifest(vectors, manifest)
    assert [one.name for one in found.sets] == ["coarse", "middle", "fine"]
    single = []
    for start in (0, 30, 60):
        labels = manifest.labels()[start : start + 30, :1]
        part = vectors[start : start + 30]
        single.append(evaluate(part[:10], labels[:10], part[10:], labels[10:], level_names=["label"]))
    assert found.dyml is not None
    for short, name in (("mAP", "AP/label"), ("ASI", "ASI"), ("R@1", "R@1/label")):
        assert found.dyml[short] == pytest.approx(np.mean([one.summary[name] for one in single]))
    assert found.dyml["mAP/fine"] == single[2].summary["AP/label"]
    assert found.results[2].summary["AP/fine"] == single[2].summary["AP/label"]
    summary = found.summary()
    assert summary["mAP"] == found.dyml["mAP"]
    assert summary["fine:AP/fine"] == single[2].summary["AP/label"]
    assert summary["H-AP"] == pytest.approx(np.mean([one.summary["H-AP"] for one in single]))
    assert summary["queries"] == 30


def test_dyml_needs_the_first_answer_whatever_the_cut_offs():
    manifest, vectors = dyml()
    found = evaluate_manifest(vectors, manifest, ks=(5,))
    assert found.dyml == evaluate_manifest(vectors, manifest).dyml
    assert found.results[0].schema.ks == (1, 5)


def test_each_test_set_is_prepared_and_ranked_once(monkeypatch):
    ranked, prepared = [], []
    tally, init = kernel_engine.tally, Vectors.__init__
    monkeypatch.setattr(
        kernel_engine, "tally", lambda problem, *rest: (ranked.append(1), tally(problem, *rest))[1]
    )
    monkeypatch.setattr(
        Vectors,
        "__init__",
        lambda self, *values, **options: (prepared.append(1), init(self, *values, **options))[1],
    )
    manifest, vectors = dyml()
    assert evaluate_manifest(vectors, manifest).dyml is not None
    assert len(ranked) == 3
    assert len(prepared) == 6  # queries and gallery of each


def test_dyml_product_is_told_level_by_level():
    manifest, vectors = make(["test"] * 60, name="anything")
    assert evaluate_manifest(vectors, manifest).dyml is None
    # DyML-Product is known by its levels, not by its name.
    table = manifest.table.assign(view=[f"{item} {i % 2}" for i, item in enumerate(manifest.table["item"])])
    table = table.rename(columns={"kind": "coarse", "item": "middle", "view": "fine"})
    manifest = Manifest(table, levels=("coarse", "middle", "fine"), root=".", name="anything")
    found = evaluate_manifest(vectors, manifest)
    labels = manifest.labels()
    each = [evaluate(vectors, labels[:, [level]], level_names=["label"]).summary for level in range(3)]
    assert found.dyml is not None
    assert found.dyml["ASI"] == pytest.approx(np.mean([one["ASI"] for one in each]))
    assert found.dyml["mAP/middle"] == pytest.approx(each[1]["AP/label"])
    assert found.summary()["H-AP"] == evaluate(vectors, labels).summary["H-AP"]


def test_relevance_and_cut_offs_are_passed_on():
    manifest, vectors = make(["test"] * 50)
    relevance = happier.HierarchyRelevance(alpha=3, count_query=True)
    found = evaluate_manifest(vectors, manifest, relevance=relevance, ks=(2,), ties="best")
    expected = evaluate(
        vectors, manifest.labels(), relevance=relevance, ks=(2,), ties="best", level_names=LEVELS
    )
    same(found.results[0], expected)


def test_which_splits_take_part():
    manifest, _ = make(["train"] * 5 + ["query"] * 5 + ["gallery"] * 5)
    assert splits_to_search(manifest) == ("query", "gallery")
    assert splits_to_search(manifest, "train") == ("train",)
    only_val, _ = make(["train"] * 5 + ["val"] * 5)
    assert splits_to_search(only_val) == ("val",)


@pytest.mark.parametrize(
    ("splits", "split", "message"),
    [
        (["train"] * 4, None, "no rows of split test"),
        (["query"] * 4, None, "no rows of split gallery"),
        (["test"] * 4, "val", "no rows of split val"),
        (["test"] * 4, "tset", "split must be one of"),
    ],
)
def test_missing_rows_are_named(splits, split, message):
    manifest, _ = make(splits)
    with pytest.raises(ManifestError, match=message):
        evaluation_sets(manifest, split)


def test_a_set_without_queries_is_an_error():
    manifest, vectors = dyml()
    keep = np.flatnonzero(~((manifest.table["set"] == "fine") & (manifest.table["split"] == "query")))
    with pytest.raises(ManifestError, match="'fine' has 0 queries"):
        evaluate_manifest(vectors[keep], manifest.take(keep))


def test_vectors_must_fit_the_rows():
    manifest, vectors = make(["test"] * 10)
    with pytest.raises(InputError, match="10 rows"):
        evaluate_manifest(vectors[:9], manifest)
