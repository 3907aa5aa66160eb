"""Labels, paths, and the level two items share."""

import numpy as np
import oracle
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import happier
from happier import HierarchyRelevance, LevelRelevance, Taxonomy, WeightedAPRelevance
from happier.taxonomy import path_codes, shared_levels

trees = hnp.arrays(
    np.int64, st.tuples(st.integers(1, 12), st.integers(1, 4)), elements=st.integers(-1, 3)
).map(lambda rows: np.where(np.cumsum(rows == -1, axis=1) > 0, -1, rows))


@given(trees)
def test_shared_level_is_the_common_prefix(labels):
    expected = [[oracle.level_of(a.tolist(), b.tolist()) for b in labels] for a in labels]
    assert shared_levels(labels, labels).tolist() == expected
    assert shared_levels(torch.from_numpy(labels), torch.from_numpy(labels)).tolist() == expected


@given(trees)
def test_codes_are_dense_and_equal_exactly_for_equal_paths(labels):
    codes = path_codes(labels)
    for level in range(labels.shape[1]):
        paths = [tuple(row[: level + 1]) if row[level] != -1 else None for row in labels.tolist()]
        known = [code for code in codes[:, level].tolist() if code != -1]
        assert sorted(set(known)) == list(range(len(set(known))))
        for a, path_a in enumerate(paths):
            assert (codes[a, level] == -1) == (path_a is None)
            for b, path_b in enumerate(paths):
                if path_a is not None and path_b is not None:
                    assert (codes[a, level] == codes[b, level]) == (path_a == path_b)


@given(trees)
def test_sorting_by_codes_makes_every_class_contiguous(labels):
    codes = path_codes(labels)
    ordered = codes[np.lexsort(codes.T[::-1])]
    for column in ordered.T:
        for code in set(column.tolist()) - {-1}:
            places = np.flatnonzero(column == code)
            assert places[-1] - places[0] + 1 == len(places)


def test_counts_names_and_parents():
    tree = Taxonomy.from_labels([[3, 0], [3, 1], [8, 0], [8, -1]], level_names=["kind", "item"])
    assert tree.num_classes == (2, 3)
    assert tree.depth == 2
    assert [parent.tolist() for parent in tree.parents()] == [[0, 0, 1]]
    assert tree.shared_level(2, 3) == 1
    assert tree.shared_level(0, 2) == 0
    assert Taxonomy.from_labels([1, 1, 2]).level_names == ("1",)


@pytest.mark.parametrize(
    ("labels", "names", "message"),
    [
        (
            [[0, -1, 4]],
            None,
            r"labels\[0\] is \[0, -1, 4\]: the known label at level 3 is below an unknown",
        ),
        ([[0], [-2]], None, r"labels\[1, 0\] is -2"),
        ([[0.5]], None, "must be integers, got dtype float64"),
        (np.zeros((0, 2), dtype=int), None, "at least one row"),
        (np.zeros((2, 2, 2), dtype=int), None, r"got shape \(2, 2, 2\)"),
        ([["a"]], None, "must be integers"),
        ([[0, 1]], ["a"], "level_names must name each of the 2 levels"),
        ([[0, 1]], ["a", "a"], "level_names must differ"),
        (np.array([[2**64 - 1]], dtype=np.uint64), None, "must fit into int64"),
    ],
)
def test_bad_labels_are_refused(labels, names, message):
    with pytest.raises(happier.HappierError, match=message):
        Taxonomy.from_labels(labels, names)


@pytest.mark.parametrize(
    "relevance",
    [HierarchyRelevance(2.5), WeightedAPRelevance([0.2, 0.8]), LevelRelevance([0.1, 0.7])],
    ids=repr,
)
def test_relevance_of_torch_counts_equals_numpy(relevance):
    counts = np.array([[3, 0, 2], [1, 5, 0], [4, 0, 0]])
    expected = relevance(counts)
    assert expected.dtype == np.float64
    np.testing.assert_allclose(relevance(torch.from_numpy(counts)).numpy(), expected, rtol=1e-15)
    assert (expected[:, 0] == 0).all()


def test_relevance_by_hand():
    counts = np.array([[9, 4, 2, 1]])
    assert HierarchyRelevance(alpha=2)(counts)[0].tolist() == pytest.approx([0, (1 / 9) / 4, (4 / 9) / 2, 1])
    assert WeightedAPRelevance([0.7, 0.1, 0.2])(counts)[0].tolist() == pytest.approx(
        [0, 0.7 / 7, 0.7 / 7 + 0.1 / 3, 0.7 / 7 + 0.1 / 3 + 0.2]
    )
    falls = HierarchyRelevance()(np.array([[0, 2, 9]]))[0]
    assert falls[2] == pytest.approx(1 / 9)
    assert falls[1] == pytest.approx(0.5 / 2)


@pytest.mark.parametrize(
    "make",
    [
        lambda: HierarchyRelevance(-1),
        lambda: HierarchyRelevance(float("nan")),
        lambda: WeightedAPRelevance([]),
        lambda: WeightedAPRelevance([0.5, 0.6]),
        lambda: WeightedAPRelevance([-0.5, 1.5]),
        lambda: LevelRelevance([]),
        lambda: LevelRelevance([-1.0]),
        lambda: LevelRelevance([1.0])(np.array([[1, 1, 1]])),
        lambda: WeightedAPRelevance([1.0])(np.array([[1, 1, 1]])),
    ],
)
def test_bad_relevances_are_refused(make):
    with pytest.raises(happier.HappierError):
        make()
