"""`evaluate` against loops over scalars, in every setting a user may be in."""

import numpy as np
import pytest
import torch
import world
from sklearn.metrics import average_precision_score
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

import happier
from happier import HierarchyRelevance, LevelRelevance, WeightedAPRelevance
from happier.evaluation import scores, torch_engine
from happier.evaluation.options import EvaluationOptions
from happier.evaluation.problem import RetrievalProblem

KS = (1, 3, 50)
EXACT = 1e-10


def assert_same(result, expected, tolerance=EXACT):
    assert set(result.per_query) - {"tied_queries"} == set(expected)
    for name, values in expected.items():
        np.testing.assert_allclose(result.per_query[name], values, rtol=0, atol=tolerance, err_msg=name)


def relevances(depth):
    return [
        HierarchyRelevance(),
        HierarchyRelevance(alpha=3.0, count_query=True),
        LevelRelevance(np.linspace(1, 0.2, depth)),  # falls with the level
        LevelRelevance([1.0] * depth),  # equal on all levels
        WeightedAPRelevance([1 / depth] * depth),
    ]


@pytest.mark.parametrize("engine", ["kernel", "torch"])
@pytest.mark.parametrize("ties", ["worst", "best"])
@pytest.mark.parametrize("seed", range(6))
def test_leave_one_out_equals_loops(seed, ties, engine):
    generator = np.random.default_rng(seed)
    depth = 1 + seed % 4
    labels = world.random_labels(generator, 30, depth, unknown=seed % 2 == 1)
    vectors = world.small_integers(generator, 30)
    for relevance in relevances(depth):
        result = happier.evaluate(vectors, labels, relevance=relevance, ks=KS, ties=ties, engine=engine)
        expected = world.slow_evaluate(
            vectors,
            labels,
            vectors,
            labels,
            relevance,
            KS,
            worst=ties == "worst",
            excluded=[[q] for q in range(30)],
        )
        assert_same(result, expected)
        for name, values in expected.items():
            defined = values[~np.isnan(values)]
            mean = defined.mean() if len(defined) else np.nan
            np.testing.assert_allclose(result.summary[name], mean, atol=EXACT, err_msg=name)


@pytest.mark.parametrize("engine", ["kernel", "torch"])
@pytest.mark.parametrize("seed", range(4))
def test_query_and_gallery_with_shared_ids_equal_loops(seed, engine):
    generator = np.random.default_rng(100 + seed)
    labels, gallery_labels = (world.random_labels(generator, n, 3, unknown=True) for n in (12, 40))
    queries, gallery = world.small_integers(generator, 12), world.small_integers(generator, 40)
    ids, gallery_ids = generator.integers(0, 30, 12), generator.integers(0, 30, 40)
    relevance = HierarchyRelevance(count_query=seed % 2 == 0)
    result = happier.evaluate(
        queries, labels, gallery, gallery_labels, ids, gallery_ids, relevance=relevance, ks=KS, engine=engine
    )
    excluded = [np.flatnonzero(gallery_ids == own).tolist() for own in ids]
    expected = world.slow_evaluate(queries, labels, gallery, gallery_labels, relevance, KS, excluded=excluded)
    assert_same(result, expected)


def test_string_ids_and_list_input():
    labels = [[0], [0], [1]]
    gallery_ids = ["a.jpg", "b.jpg", "c.jpg"]
    vectors = [[1.0, 0.0], [0.9, 0.1], [0.0, 1.0]]
    result = happier.evaluate(
        vectors, labels, vectors, labels, ids=gallery_ids, gallery_ids=gallery_ids, ks=(1,)
    )
    assert result.summary["queries_without_positives"] == 1
    assert result.per_query["AP/1"][:2].tolist() == [1.0, 1.0]


@pytest.mark.parametrize("engine", ["kernel", "torch"])
@pytest.mark.parametrize("block_size", [1, 7, 1000])
def test_blocks_do_not_change_the_result(block_size, engine):
    generator = np.random.default_rng(0)
    labels = world.random_labels(generator, 60, 3)
    vectors = world.small_integers(generator, 60)
    whole = happier.evaluate(vectors, labels, ks=KS, engine=engine)
    parts = happier.evaluate(vectors, labels, ks=KS, engine=engine, block_size=block_size, threads=2)
    for name, values in whole.per_query.items():
        np.testing.assert_array_equal(parts.per_query[name], values, err_msg=name)


@pytest.mark.parametrize(
    "make",
    [
        lambda v: v.astype(np.float16),
        lambda v: v.astype(np.float64),
        lambda v: torch.from_numpy(v),
        lambda v: torch.from_numpy(v).half(),
        lambda v: torch.from_numpy(v).bfloat16(),
        lambda v: torch.from_numpy(v).double().requires_grad_(),
        lambda v: np.asfortranarray(v),
        lambda v: np.repeat(v, 2, axis=0)[::2],
    ],
    ids=["f16", "f64", "torch", "torch f16", "torch bf16", "torch f64 grad", "fortran", "strided"],
)
@pytest.mark.parametrize("engine", ["kernel", "torch"])
def test_every_float_kind_and_layout(make, engine):
    generator = np.random.default_rng(3)
    labels = world.random_labels(generator, 25, 2)
    vectors = world.small_integers(generator, 25)  # exact in every kind
    expected = happier.evaluate(vectors, labels, ks=KS)
    result = happier.evaluate(make(vectors), torch.from_numpy(labels), ks=KS, engine=engine)
    for name, values in expected.per_query.items():
        np.testing.assert_allclose(result.per_query[name], values, atol=1e-12, err_msg=name)


def test_memory_mapped_gallery(tmp_path):
    generator = np.random.default_rng(4)
    labels = world.random_labels(generator, 50, 2)
    vectors = world.small_integers(generator, 50)
    for kind in (np.float32, np.float16):
        np.save(tmp_path / "gallery.npy", vectors.astype(kind))
        mapped = np.load(tmp_path / "gallery.npy", mmap_mode="r")
        for engine in ("kernel", "torch"):
            expected = happier.evaluate(vectors[:9], labels[:9], vectors, labels, ks=KS)
            result = happier.evaluate(mapped[:9], labels[:9], mapped, labels, ks=KS, engine=engine)
            for name, values in expected.per_query.items():
                np.testing.assert_allclose(result.per_query[name], values, atol=1e-12, err_msg=name)


@pytest.mark.parametrize("advice", [22, 9999], ids=["the system reads", "the system cannot"])
def test_a_gallery_on_disk_gives_the_same_bits(advice, tmp_path, monkeypatch):
    """Read in many pieces, ahead of their use, while the one in memory is multiplied as a whole."""
    monkeypatch.setattr("happier.evaluation.inputs._MADV_POPULATE_READ", advice)
    monkeypatch.setattr("happier.evaluation.inputs.PIECE_BYTES", 8 * 48 * 128)
    generator = np.random.default_rng(6)
    labels = world.random_labels(generator, 3000, 3)
    vectors = generator.standard_normal((3000, 48)).astype(np.float32)
    vectors[2000:2010] = vectors[:10]  # equal rows in different pieces
    np.save(tmp_path / "gallery.npy", vectors)
    mapped = np.load(tmp_path / "gallery.npy", mmap_mode="r")
    for threads in (1, 2):
        expected = happier.evaluate(vectors[:40], labels[:40], vectors, labels, threads=threads)
        result = happier.evaluate(vectors[:40], labels[:40], mapped, labels, threads=threads)
        for name, values in expected.per_query.items():
            np.testing.assert_array_equal(result.per_query[name], values, err_msg=name)
    # Every other row and column of a file: nothing that the system could read as a whole.
    some = slice(None, None, 2)
    expected = happier.evaluate(vectors[:40, some], labels[:40], vectors[some, some], labels[some])
    result = happier.evaluate(vectors[:40, some], labels[:40], mapped[some, some], labels[some])
    np.testing.assert_array_equal(result.per_query["H-AP"], expected.per_query["H-AP"])


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_kernel_equals_torch_on_real_valued_scores_of_deep_trees(kind):
    """Enough positives for the sort's second pass and the table, with and without equal relevances."""
    generator = np.random.default_rng(5)
    labels = world.random_labels(generator, 600, 5, classes=2)
    vectors = generator.standard_normal((600, 16)).astype(kind)
    for relevance in relevances(5):
        fast = happier.evaluate(vectors, labels, relevance=relevance, ks=KS)
        plain = happier.evaluate(vectors, labels, relevance=relevance, ks=KS, engine="torch")
        for name, values in plain.per_query.items():
            np.testing.assert_allclose(fast.per_query[name], values, atol=1e-6, err_msg=name)
            np.testing.assert_allclose(fast.summary[name], plain.summary[name], atol=1e-8, err_msg=name)


def test_scores_too_close_for_the_sorts_bits_are_still_put_in_order():
    """One outlier stretches the range so far that all other scores fall into one step of the sort."""
    generator = np.random.default_rng(6)
    labels = np.zeros((400, 2), dtype=np.int64)
    labels[:, 1] = generator.integers(0, 5, 400)
    labels[200:, 0] = 1
    vectors = np.ones((400, 2))
    vectors[:, 1] = generator.random(400) * 1e-9
    vectors[7] = [-1e6, 0.0]
    vectors[300] = [-1e6, 0.0]
    fast = happier.evaluate(vectors, labels, ks=KS)
    plain = happier.evaluate(vectors, labels, ks=KS, engine="torch")
    for name, values in plain.per_query.items():
        np.testing.assert_allclose(fast.per_query[name], values, atol=1e-9, err_msg=name)


@pytest.mark.parametrize("ties", ["worst", "best"])
@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize("shape", ["normal", "heavy tails", "few values", "one far off", "tiny", "huge"])
def test_the_spread_of_the_scores_does_not_matter(shape, kind, ties):
    """The kernel's steps follow the scores' quantiles. Queries of one dimension, all 1: scores are exact."""
    generator = np.random.default_rng(8)
    items = 5000  # more than the kernel reads at a time
    values = generator.standard_normal(items)
    if shape == "heavy tails":
        values = np.sign(values) * np.exp(4 * np.abs(values))
    elif shape == "few values":
        values = np.round(2 * values)
    elif shape == "one far off":
        values[generator.integers(items)] = 1e9
    elif shape == "tiny":
        values *= 1e-40 if kind is np.float32 else 1e-310  # their differences are subnormal
    elif shape == "huge":
        values[:2] = [5, -5]
        values *= 0.99 * float(np.finfo(np.float32).max) / 5  # differences are infinite in float32
    gallery, labels = values.astype(kind)[:, None], world.random_labels(generator, items, 3, classes=2)
    queries = np.ones((6, 1), dtype=kind)
    options = {"ids": np.arange(6), "gallery_ids": np.arange(items) % 4000, "ties": ties, "ks": KS}
    fast = happier.evaluate(queries, labels[:6], gallery, labels, **options)
    plain = happier.evaluate(queries, labels[:6], gallery, labels, engine="torch", **options)
    for name, expected in plain.per_query.items():
        np.testing.assert_allclose(fast.per_query[name], expected, rtol=0, atol=EXACT, err_msg=name)


@pytest.mark.parametrize("engine", ["kernel", "torch"])
def test_a_collapsed_model_scores_badly(engine):
    generator = np.random.default_rng(7)
    labels = world.random_labels(generator, 200, 2, classes=5)
    collapsed = np.tile(generator.standard_normal(37).astype(np.float32), (200, 1))
    result = happier.evaluate(collapsed, labels, ks=(1,), engine=engine)
    assert result.summary["H-AP"] < 0.15
    assert result.summary["R@1/2"] == 0.0
    assert result.summary["tied_queries"] == 1.0
    kind = happier.evaluate(collapsed, labels, ks=(1,), engine=engine, ties="best")
    assert kind.summary["R@1/2"] == 1.0


def test_duplicates_of_the_query_stay_in_the_gallery():
    """The query is left out by identity: a copy of it under another id is retrieved, and first."""
    vectors = np.array([[1, 0], [1, 0], [0.5, 0.5], [0, 1]], dtype=np.float32)
    labels = np.array([[0], [1], [0], [1]])
    result = happier.evaluate(vectors, labels, ks=(1,))
    assert result.per_query["R@1/1"].tolist() == [0.0, 0.0, 0.0, 0.0]
    assert result.per_query["AP/1"][0] == 0.5


def test_equal_vectors_tie_wherever_they_stand():
    """A matrix product rounds equal columns differently; ties must still be seen as ties."""
    generator = np.random.default_rng(8)
    base = generator.standard_normal((3, 513)).astype(np.float32)
    which = generator.integers(0, 3, 500)
    labels = np.stack([which, generator.integers(0, 2, 500)], axis=1)
    result = happier.evaluate(base[which], labels, ks=(1,))
    assert result.summary["tied_queries"] == 1.0
    mixed = generator.permutation(500)
    again = happier.evaluate(base[which][mixed], labels[mixed], ks=(1,))
    for name, values in result.per_query.items():
        np.testing.assert_allclose(again.per_query[name], values[mixed], atol=1e-12, err_msg=name)


def test_invariant_to_relabelling_and_gallery_order():
    generator = np.random.default_rng(9)
    labels = world.random_labels(generator, 50, 3)
    queries, gallery = world.small_integers(generator, 10), world.small_integers(generator, 50)
    expected = happier.evaluate(queries, labels[:10], gallery, labels, ks=KS)
    mixed = generator.permutation(50)
    renamed = (labels * 7 + 3)[mixed]
    result = happier.evaluate(queries, labels[:10] * 7 + 3, gallery[mixed], renamed, ks=KS)
    for name, values in expected.per_query.items():
        np.testing.assert_allclose(result.per_query[name], values, atol=1e-12, err_msg=name)


def test_a_class_is_its_path():
    """The same fine label under another parent is another class."""
    vectors = np.eye(3, dtype=np.float32)[[0, 0, 1]]
    result = happier.evaluate(vectors, [[0, 5], [1, 5], [0, 5]], ks=(1,))
    assert np.isnan(result.per_query["AP/2"][1])
    assert result.per_query["AP/2"][0] == 0.5


def test_one_level_equals_scikit_learn():
    generator = np.random.default_rng(10)
    labels = generator.integers(0, 4, size=(80, 1))
    vectors = generator.standard_normal((80, 6))
    result = happier.evaluate(vectors, labels)
    for q in range(80):
        others = np.arange(80) != q
        expected = average_precision_score(
            (labels[:, 0] == labels[q, 0])[others], (vectors @ vectors[q])[others]
        )
        assert result.per_query["AP/1"][q] == pytest.approx(expected, abs=1e-12)
        assert result.per_query["H-AP"][q] == pytest.approx(expected, abs=1e-12)


def test_weighted_ap_relevance_gives_the_weighted_sum_of_aps():
    """Property 1 of the paper, on queries that have a positive at every level."""
    generator = np.random.default_rng(11)
    labels = world.random_labels(generator, 200, 3, classes=2)
    vectors = generator.standard_normal((200, 5)).astype(np.float32)
    weights = [0.5, 0.2, 0.3]
    result = happier.evaluate(vectors, labels, relevance=WeightedAPRelevance(weights))
    expected = sum(w * result.per_query[f"AP/{level}"] for level, w in enumerate(weights, start=1))
    np.testing.assert_allclose(result.per_query["H-AP"], expected, atol=1e-12)
    assert result.weighted_ap(weights) == pytest.approx(result.summary["H-AP"], abs=1e-12)


def test_the_best_order_is_by_relevance_where_relevance_falls_with_the_level():
    """Nine fine items and two coarse ones: Eq. 4 gives the coarse ones more, and H-AP is still at most 1."""
    labels = np.array([[0, 0]] * 10 + [[0, 1]] * 2 + [[1, 2]] * 3)
    by_level = np.r_[5.0, np.full(9, 3.0), np.full(2, 2.0), np.full(3, 1.0)][:, None]
    by_relevance = np.r_[5.0, np.full(9, 2.0), np.full(2, 3.0), np.full(3, 1.0)][:, None]
    one = np.ones((1, 1))
    for gallery, best in ((by_level, False), (by_relevance, True)):
        result = happier.evaluate(one, labels[:1], gallery[1:], labels[1:])
        assert (result.summary["H-AP"] == pytest.approx(1.0, abs=1e-12)) is best
        assert result.summary["H-AP"] <= 1.0


def test_counting_the_query_lowers_the_weight_of_the_fine_level():
    labels = np.array([[0, 0], [0, 0], [0, 1], [1, 2]])
    vectors = np.array([[1.0, 0], [0.2, 0.8], [0.9, 0.1], [0.5, 0.0]])
    without = happier.evaluate(vectors, labels, relevance=HierarchyRelevance())
    counted = happier.evaluate(vectors, labels, relevance=HierarchyRelevance(count_query=True))
    # Query 0 ranks [coarse, negative, fine]; fine weighs 1 without and 1/2 with the query counted.
    assert without.per_query["H-AP"][0] == pytest.approx((0.5 + (1 + 0.5) / 3) / 1.5)
    assert counted.per_query["H-AP"][0] == pytest.approx((0.5 + (0.5 + 0.5) / 3) / 1.0)


def test_a_query_without_positives_is_undefined_and_counted():
    labels = np.array([[0, 0], [0, 0], [1, 1]])
    result = happier.evaluate(np.eye(3), labels)
    assert result.summary["queries"] == 3
    assert result.summary["queries_without_positives"] == 1
    for name, values in result.per_query.items():
        assert np.isnan(values[2]) == (name != "tied_queries"), name


@pytest.mark.parametrize("engine", ["kernel", "torch"])
def test_severity_leaves_out_queries_that_have_nothing_to_find(engine):
    generator = np.random.default_rng(0)
    labels = world.random_labels(generator, 60, 2, classes=3)
    vectors = generator.normal(size=(60, 4)).astype(np.float32)
    # Three more queries: of a class of its own, without any label, and of a coarse class with others.
    queries = np.concatenate([vectors, generator.normal(size=(3, 4)).astype(np.float32)])
    rows = np.concatenate([labels, [[9, 9], [-1, -1], [0, 9]]])
    whole = happier.evaluate(queries, rows, vectors, labels, engine=engine, ks=(1, 10))
    kept = np.r_[np.arange(60), 62]
    part = happier.evaluate(queries[kept], rows[kept], vectors, labels, engine=engine, ks=(1, 10))
    assert whole.summary["queries_without_positives"] == 2
    for name in ("first_mistake", "severity@1", "severity@10", "share@10/none", "share@10/2"):
        assert np.isnan(whole.per_query[name][[60, 61]]).all()
        np.testing.assert_array_equal(whole.per_query[name][kept], part.per_query[name])
        assert whole.summary[name] == part.summary[name]


@pytest.mark.parametrize("engine", ["kernel", "torch"])
def test_without_labels_there_is_no_severity(engine):
    vectors = np.random.default_rng(0).normal(size=(20, 4))
    result = happier.evaluate(
        vectors, None, relevance=lambda queries: np.ones((len(queries), 20)), engine=engine
    )
    for name in ("severity@1", "severity@100", "share@10/none", "first_mistake"):
        assert np.isnan(result.summary[name]), name
    assert result.summary["H-AP"] == pytest.approx(1.0)
    assert not np.isnan(result.summary["H-AP"])


def test_a_single_item_has_nothing_to_retrieve():
    for engine in ("kernel", "torch"):
        result = happier.evaluate(np.ones((1, 4)), [[0, 1]], engine=engine)
        assert result.summary["queries_without_positives"] == 1
        assert np.isnan(result.summary["H-AP"])
        assert np.isnan(result.summary["severity@1"])


def test_level_names_and_cut_offs_name_the_metrics():
    result = happier.evaluate(
        np.eye(4), [[0, 0], [0, 0], [0, 1], [1, 2]], level_names=["kind", "item"], ks=(5, 2)
    )
    assert {"AP/kind", "AP/item", "R@2/item", "R@5/kind", "share@2/none", "H-P@5"} <= set(result.summary)
    assert "AP/1" not in result.summary


def test_graded_relevance_from_a_function():
    generator = np.random.default_rng(12)
    labels = world.random_labels(generator, 40, 2)
    vectors = world.small_integers(generator, 40)
    likeness = generator.random((40, 40))
    result = happier.evaluate(vectors, labels, relevance=lambda q: likeness[q], ks=(3,), block_size=7)
    for q in range(40):
        others = [j for j in range(40) if j != q]
        scores = [float(vectors[q] @ vectors[j]) for j in others]
        order = sorted(range(39), key=lambda i: (-scores[i], likeness[q, others[i]]))
        ranked = [likeness[q, others[i]] for i in order]
        numerator = sum(sum(min(a, ranked[k]) for a in ranked[: k + 1]) / (k + 1) for k in range(39))
        assert result.per_query["H-AP"][q] == pytest.approx(numerator / sum(ranked), abs=1e-12)
        assert result.per_query["H-R@3"][q] == pytest.approx(sum(ranked[:3]) / sum(ranked), abs=1e-12)
        own = sum(min(a, ranked[2]) for a in ranked[:3]) / (3 * ranked[2])
        assert result.per_query["H-P@3"][q] == pytest.approx(own, abs=1e-12)
    unlabelled = happier.evaluate(vectors, None, relevance=lambda q: torch.from_numpy(likeness[q]))
    assert unlabelled.summary["H-AP"] == pytest.approx(result.summary["H-AP"], abs=1e-12)
    levels_too = happier.evaluate(vectors, labels, ks=(3,))
    assert result.summary["AP/2"] == levels_too.summary["AP/2"]


def test_relevance_by_attributes():
    """A query without attributes has nothing to find, and is counted; nobody finds it relevant either."""
    generator = np.random.default_rng(14)
    attributes = generator.random((30, 6)) < 0.3
    attributes[:2] = False
    vectors = world.small_integers(generator, 30)
    relevance = lambda queries: happier.jaccard(attributes[queries], attributes)  # noqa: E731
    result = happier.evaluate(vectors, None, relevance=relevance, block_size=7)
    table = happier.jaccard(attributes)
    empty = 0
    for q in range(30):
        others = [j for j in range(30) if j != q]
        order = sorted(others, key=lambda j: (-float(vectors[q] @ vectors[j]), table[q, j]))
        expected = happier.graded_h_ap(table[q, order])[0]
        empty += np.isnan(expected)
        np.testing.assert_allclose(result.per_query["H-AP"][q], expected, atol=1e-12)
    assert result.summary["queries_without_positives"] == empty >= 2


def test_graded_relevance_of_a_tree_is_the_tree():
    generator = np.random.default_rng(13)
    labels = world.random_labels(generator, 30, 2)
    vectors = generator.standard_normal((30, 4))
    values = np.array([0.0, 0.3, 1.0])

    def of(queries):
        same = np.cumprod(labels[queries][:, None] == labels[None], axis=2).sum(2)
        return values[same]

    tree = happier.evaluate(vectors, labels, relevance=LevelRelevance(values[1:]))
    graded = happier.evaluate(vectors, labels, relevance=of)
    np.testing.assert_allclose(graded.per_query["H-AP"], tree.per_query["H-AP"], atol=1e-12)


def test_one_block_of_scores_at_a_time():
    assert scores.block_rows(60_502, 4, 60_502, None) * 60_502 * 4 <= scores.BLOCK_BYTES
    assert scores.block_rows(136_093, 4, 136_093, None) * 136_093 * 4 <= 140 << 20
    # The cost of a query grows no faster than the gallery: as many queries share a block.
    assert scores.block_rows(4 * 136_093, 4, 136_093, None) == scores.block_rows(
        2 * 136_093, 4, 136_093, None
    )
    assert scores.block_rows(10**8, 4, 10**8, None) * 10**8 * 4 <= scores.LARGEST_BLOCK_BYTES
    assert scores.block_rows(10**10, 4, 5, None) == 1
    assert scores.block_rows(10, 4, 3, None) == 3
    assert scores.block_rows(10, 4, 300, 8) == 8


def test_the_torch_engine_stays_on_its_device(monkeypatch):
    """Fake tensors refuse to mix devices; they have no values, so the number of positives is given."""
    monkeypatch.setattr(FakeTensor, "__int__", lambda _: 5)
    monkeypatch.setattr(FakeTensor, "numpy", lambda found: found)
    generator = np.random.default_rng(0)
    labels = world.random_labels(generator, 30, 2)
    problem = RetrievalProblem.prepare(world.small_integers(generator, 30), labels)
    options = EvaluationOptions(ks=(1, 5), block_size=7)
    copied = []
    with FakeTensorMode(allow_non_fake_inputs=True):
        monkeypatch.setattr(FakeTensor, "cpu", lambda found: copied.append(found.device.type) or found)
        found = torch_engine.compute(problem, options.schema(2), options, range(30), torch.device("cuda"))
    assert set(copied) == {"cuda"}
    assert {tuple(values.shape) for values in found.values()} == {(30,)}
