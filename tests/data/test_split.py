"""Open-set splits: whole classes, shares of each parent, reproducible."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from happier.data import Manifest, split_by_class
from happier.data.split import repeated_levels
from happier.errors import ManifestError, OptionError


def manifest_of(children, images=2, **columns):
    rows = [
        (f"{parent}-{child}-{image}.jpg", "train", f"p{parent}", f"c{child}")
        for parent, count in enumerate(children)
        for child in range(count)
        for image in range(images)
    ]
    table = pd.DataFrame(rows, columns=["path", "split", "parent", "child"]).assign(**columns)
    return Manifest(table, levels=["parent", "child"], root="/", name="n", credits="c")


@settings(max_examples=40)
@given(
    children=st.lists(st.integers(1, 9), min_size=1, max_size=8).filter(lambda c: sum(c) >= 8),
    test=st.sampled_from([0.25, 0.5, 0.6]),
    val=st.sampled_from([0.0, 0.34]),
    seed=st.integers(0, 10**6),
)
def test_whole_classes_and_shares(children, test, val, seed):
    manifest = manifest_of(children)
    result = split_by_class(manifest, test=test, val=val, seed=seed, together=False)
    table = result.table
    splits = table.groupby(["parent", "child"])["split"].agg(["nunique", "first"]).reset_index()
    assert (splits["nunique"] == 1).all(), "a class is in two splits"
    total = sum(children)
    assert abs((splits["first"] == "test").sum() - test * total) < 1
    for _, own in splits.groupby("parent"):
        assert abs((own["first"] == "test").sum() - test * len(own)) <= 1
    if val:
        rest = (splits["first"] != "test").sum()
        assert abs((splits["first"] == "val").sum() - val * rest) < 1
    assert (result.name, result.credits, result.levels) == ("n", "c", ("parent", "child"))
    again = split_by_class(manifest, test=test, val=val, seed=seed, together=False)
    assert again.table["split"].equals(table["split"])


def test_the_choice_does_not_depend_on_the_order_of_rows():
    manifest = manifest_of([5, 6, 7])
    order = np.random.default_rng(0).permutation(len(manifest))
    straight, shuffled = split_by_class(manifest, seed=3), split_by_class(manifest.take(order), seed=3)
    assert shuffled.table["split"].tolist() == straight.table["split"].iloc[order].tolist()
    assert split_by_class(manifest, seed=4).table["split"].tolist() != straight.table["split"].tolist()


def test_partly_known_rows_go_by_what_is_known():
    manifest = manifest_of([4, 4])
    table = manifest.table.copy()
    table.loc[0, "child"] = ""
    table.loc[1, ["parent", "child"]] = ""
    table.loc[2, "split"] = "distractor"
    result = split_by_class(Manifest(table, levels=["parent", "child"], root="/"))
    assert result.table["split"].iloc[0] in ("train", "test")
    assert result.table["split"].iloc[1:3].tolist() == ["distractor", "distractor"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"test": 0}, "test must be between 0 and 1, got 0"),
        ({"test": 1}, "test must be between 0 and 1, got 1"),
        ({"val": 1}, "val must be at least 0 and below 1, got 1"),
        ({"val": -0.1}, "val must be at least 0"),
        ({"test": float("nan")}, "test must be between 0 and 1, got nan"),
        ({"seed": -5}, "seed must be 0 or more, got -5"),
        (
            {"test": 0.01, "seed": 1},
            r"4 fine classes are too few for test=0.01 and val=0.0: test would be empty",
        ),
    ],
)
def test_bad_fractions(options, message):
    with pytest.raises(OptionError, match=message):
        split_by_class(manifest_of([2, 2]), **options)


def test_manifests_that_cannot_be_split():
    with pytest.raises(ManifestError, match="several test sets"):
        split_by_class(manifest_of([2], set="fine"))
    with pytest.raises(ManifestError, match="no row of the manifest has a label"):
        split_by_class(manifest_of([2], parent="", child=""))


def sides(manifest):
    """Classes of each parent in each split."""
    classes = manifest.table.drop_duplicates(["parent", "child"])
    return {parent: own["split"].value_counts().to_dict() for parent, own in classes.groupby("parent")}


@settings(max_examples=60)
@given(
    children=st.lists(st.integers(1, 9), min_size=2, max_size=8).filter(lambda c: sum(c) >= 8),
    test=st.sampled_from([0.25, 0.5, 0.6]),
    seed=st.integers(0, 10**6),
)
def test_classes_of_a_parent_stay_together(children, test, seed):
    manifest = manifest_of(children)
    apart = split_by_class(manifest, test=test, seed=seed, together=False)
    result = split_by_class(manifest, test=test, seed=seed)
    if all(1 not in counts.values() or sum(counts.values()) == 1 for counts in sides(apart).values()):
        assert result.table["split"].equals(apart.table["split"]), "nothing had to be moved"
    several = [counts for counts in sides(result).values() if sum(counts.values()) > 1]
    assert all(1 not in counts.values() for counts in several)
    chosen = sum(counts.get("test", 0) for counts in sides(result).values())
    assert abs(chosen - test * sum(children)) < 3
    again = split_by_class(manifest, test=test, seed=seed)
    assert again.table["split"].equals(result.table["split"])


def test_two_classes_of_each_kind():
    """Ten classes in five kinds: with one class of each kind in test, its figures say nothing about kinds."""
    manifest = manifest_of([2, 2, 2, 2, 2], images=60)
    apart = split_by_class(manifest, together=False)
    assert [level.split for level in repeated_levels(apart)] == ["train", "test"]
    seen = set()
    for seed in range(20):
        result = split_by_class(manifest, seed=seed)
        assert repeated_levels(result) == []
        counts = sides(result)
        assert sum("test" in own for own in counts.values()) in (2, 3)
        seen.add(frozenset(parent for parent, own in counts.items() if "test" in own))
    assert len(seen) > 5, "the choice depends on the seed"


def test_val_stays_together_too():
    result = split_by_class(manifest_of([8, 8, 8, 8]), val=0.25, seed=1)
    assert all(1 not in own.values() for own in sides(result).values())
    assert {"train", "val", "test"} == set(result.table["split"])


def test_too_few_classes_to_stay_together():
    result = split_by_class(manifest_of([2], images=3))
    assert sides(result) == {"p0": {"train": 1, "test": 1}}
    assert [str(level) for level in repeated_levels(result)] == [
        f"level parent adds nothing in {split}: each of its classes has one child, so both levels give the "
        "same figures"
        for split in ("train", "test")
    ]


def test_levels_that_say_nothing():
    manifest = manifest_of([1, 1, 2], images=2)
    assert repeated_levels(manifest) == []
    first = repeated_levels(manifest.take([0, 1, 2, 3]))
    assert [(level.split, level.level, level.below, level.rows) for level in first] == [
        ("train", "parent", "child", (0, 2))
    ]
    table = manifest.table.copy()
    table.loc[1, "child"] = ""
    partly = Manifest(table, levels=manifest.levels, root="/").take([0, 1, 2, 3])
    assert repeated_levels(partly) == [], "the first image matches at the level of parents only"
    table = manifest.table.assign(split=["query", "gallery"] * 4)
    retrieval = Manifest(table, levels=manifest.levels, root="/").take([0, 1, 2, 3])
    assert [level.split for level in repeated_levels(retrieval)] == ["query"]
    flat = Manifest(manifest.table, levels=["parent"], root="/")
    assert repeated_levels(flat) == []
