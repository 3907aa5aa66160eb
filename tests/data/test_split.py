"""Open-set splits: whole classes, shares of each parent, reproducible."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from happier.data import Manifest, split_by_class
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
    result = split_by_class(manifest, test=test, val=val, seed=seed)
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
    again = split_by_class(manifest, test=test, val=val, seed=seed)
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
