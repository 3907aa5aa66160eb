"""Rankings behind the numbers, curves, and DyML's protocol."""

import numpy as np
import pytest
import world

import happier
from happier.errors import InputError, OptionError
from happier.evaluation import RetrievalSet, dyml_protocol, precision_recall_curve, retrieve


@pytest.fixture(scope="module")
def data():
    generator = np.random.default_rng(0)
    return world.small_integers(generator, 40, 3), world.random_labels(generator, 40, 2)


@pytest.mark.parametrize("ties", ["worst", "best"])
def test_retrieve_gives_the_ranking_that_evaluate_scores(data, ties):
    vectors, labels = data
    found = retrieve(vectors, labels, k=39, ties=ties)
    counts = np.stack([(found.levels == level).sum(1) for level in range(3)], axis=1)
    from_ranking = happier.evaluate_ranking(found.levels.astype(int), counts)
    direct = happier.evaluate(vectors, labels, ties=ties)
    for name, values in from_ranking.per_query.items():
        np.testing.assert_allclose(direct.per_query[name], values, atol=1e-12, err_msg=name)
    scores = np.take_along_axis(vectors @ vectors.T, found.indices, axis=1)
    np.testing.assert_array_equal(found.scores, scores)
    assert (np.diff(found.scores, axis=1) <= 0).all()
    assert all(q not in row for q, row in enumerate(found.indices.tolist()))


@pytest.mark.parametrize("ties", ["worst", "best"])
@pytest.mark.parametrize("k", [1, 2, 5, 38])
def test_the_first_items_are_the_head_of_the_whole_ranking(data, ties, k):
    vectors, labels = data  # small integers: many scores are equal
    whole = retrieve(vectors, labels, k=39, ties=ties)
    head = retrieve(vectors, labels, k=k, ties=ties)
    np.testing.assert_array_equal(head.indices, whole.indices[:, :k])
    np.testing.assert_array_equal(head.scores, whole.scores[:, :k])
    np.testing.assert_array_equal(head.levels, whole.levels[:, :k])


def test_retrieve_some_queries_from_a_small_gallery(data):
    vectors, labels = data
    found = retrieve(
        vectors, labels, vectors[:5], labels[:5], ids=range(40), gallery_ids=range(5), k=7, queries=[3, 20]
    )
    assert found.queries.tolist() == [3, 20]
    assert (found.indices[0] == -1).sum() == 3
    assert 3 not in found.indices[0]
    assert sorted(found.indices[1][:5].tolist()) == [0, 1, 2, 3, 4]
    assert np.isnan(found.scores[1, 5:]).all()
    assert (found.levels[1, 5:] == -1).all()


@pytest.mark.parametrize("bins", [1, 7, 100])
def test_the_area_under_the_curve_is_h_ap(data, bins):
    vectors, labels = data
    for relevance in (happier.HierarchyRelevance(), happier.HierarchyRelevance(2, count_query=True)):
        curve = precision_recall_curve(vectors, labels, bins=bins, relevance=relevance)
        expected = happier.evaluate(vectors, labels, relevance=relevance).summary["H-AP"]
        assert curve.area == pytest.approx(expected, abs=1e-12)
        assert curve.recall[-1] == 1.0
        assert len(curve.precision) == bins
    some = precision_recall_curve(vectors, labels, bins=bins, queries=[1, 5])
    values = happier.evaluate(vectors, labels).per_query["H-AP"][[1, 5]]
    assert some.area == pytest.approx(values.mean(), abs=1e-12)


@pytest.mark.parametrize("ties", ["worst", "best"])
def test_the_curve_is_the_mean_of_each_query_s_own_read_off_rank_by_rank(data, ties):
    vectors, labels = data  # small integers: many scores are equal
    relevance, bins = happier.HierarchyRelevance(), 8
    found = retrieve(vectors, labels, k=39, ties=ties)
    curves = []
    for levels in found.levels:
        counts = np.bincount(levels, minlength=3)
        if not counts[1:].any():
            continue
        gains = relevance(counts[None])[0][levels]
        precision = [
            np.minimum(gains[: k + 1], gain).sum() / (k + 1) / max(gain, 1e-9) for k, gain in enumerate(gains)
        ]
        edges = np.cumsum(gains) / gains.sum()
        steps = (np.arange(8000) + 0.5) / 8000  # fine enough to read the precision at
        heights = np.array(precision)[np.minimum(np.searchsorted(edges, steps), len(edges) - 1)]
        curves.append(heights.reshape(bins, -1).mean(1))
    curve = precision_recall_curve(vectors, labels, bins=bins, ties=ties)
    np.testing.assert_allclose(curve.precision, np.mean(curves, axis=0), atol=2e-4)


def test_a_curve_without_positives_is_undefined():
    assert np.isnan(precision_recall_curve(np.eye(2), [[0], [1]]).area)


def test_bad_requests_are_refused(data):
    vectors, labels = data
    with pytest.raises(OptionError, match="k must be 1 or more"):
        retrieve(vectors, labels, k=0)
    with pytest.raises(OptionError, match="bins must be 1 or more"):
        precision_recall_curve(vectors, labels, bins=0)
    with pytest.raises(InputError, match=r"queries must be in 0\.\.39, got 40"):
        retrieve(vectors, labels, k=1, queries=[40])
    with pytest.raises(InputError, match="list of indices"):
        retrieve(vectors, labels, k=1, queries=[0.5])


def test_dyml_means_over_three_sets_with_queries_in_their_galleries():
    generator = np.random.default_rng(1)
    sets, expected = {}, {"mAP": [], "ASI": [], "R@1": []}
    for scale in ("coarse", "middle", "fine"):
        queries, gallery = world.small_integers(generator, 8), world.small_integers(generator, 30)
        labels, gallery_labels = generator.integers(0, 3, 8), generator.integers(0, 3, 30)
        ids = [f"{i}.jpg" for i in range(8)]
        gallery_ids = [f"{i}.jpg" for i in range(4, 34)]
        sets[scale] = RetrievalSet(queries, labels, gallery, gallery_labels, ids, gallery_ids)
        excluded = [[gallery_ids.index(own)] if own in gallery_ids else [] for own in ids]
        slow = world.slow_evaluate(
            queries, labels[:, None], gallery, gallery_labels[:, None], happier.HierarchyRelevance(), (1,),
            excluded=excluded,
        )  # fmt: skip
        for short, name in (("mAP", "AP/1"), ("ASI", "ASI"), ("R@1", "R@1/1")):
            expected[short].append(np.nanmean(slow[name]))
    result = dyml_protocol(sets)
    for short, values in expected.items():
        assert result.summary[short] == pytest.approx(np.mean(values), abs=1e-12)
        assert result.summary[f"{short}/fine"] == pytest.approx(values[2], abs=1e-12)


def test_dyml_product_takes_each_level_of_one_set(data):
    vectors, labels = data
    result = dyml_protocol(RetrievalSet(vectors, labels).by_level(["coarse", "fine"]))
    whole = happier.evaluate(vectors, labels)
    assert result.summary["mAP"] == pytest.approx((whole.summary["AP/1"] + whole.summary["AP/2"]) / 2)
    assert result.summary["R@1/fine"] == whole.summary["R@1/2"]
    apart = RetrievalSet(vectors[:9], labels[:9], vectors[9:], labels[9:]).by_level()
    assert dyml_protocol(apart).summary["mAP/2"] == pytest.approx(
        happier.evaluate(vectors[:9], labels[:9], vectors[9:], labels[9:]).summary["AP/2"]
    )


def test_dyml_refuses_several_labels_and_nothing(data):
    vectors, labels = data
    with pytest.raises(InputError, match="single label column, got 2"):
        dyml_protocol({"coarse": RetrievalSet(vectors, labels)})
    with pytest.raises(InputError, match="at least one set"):
        dyml_protocol({})
