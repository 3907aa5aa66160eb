"""What the labels alone show: names that are alike, and the shape of the tree."""

import itertools

import pandas as pd
from hypothesis import given, settings
from hypothesis import strategies as st

from happier.data import Manifest
from happier.data.check_classes import alike_names, class_findings


def manifest_of(counts):
    """A manifest of so many images for each path."""
    rows = [path.split("/") for path, number in counts.items() for _ in range(number)]
    levels = [f"level{at + 1}" for at in range(len(rows[0]))]
    table = pd.DataFrame(rows, columns=levels).assign(split="train")
    return Manifest(table.assign(path=[f"{at}.png" for at in range(len(rows))]), levels=levels, root=".")


def notes(counts):
    return {one.kind: one for one in class_findings(manifest_of(counts)) if one.rows}


def slow_distance(first, second):
    """Damerau's distance with exchanged neighbours, by its recursion."""
    table = {(at, -1): at + 1 for at in range(-1, len(first))} | {
        (-1, at): at + 1 for at in range(-1, len(second))
    }
    for i, j in itertools.product(range(len(first)), range(len(second))):
        costs = [table[i - 1, j] + 1, table[i, j - 1] + 1, table[i - 1, j - 1] + (first[i] != second[j])]
        if i and j and first[i] == second[j - 1] and first[i - 1] == second[j]:
            costs.append(table[i - 2, j - 2] + 1)
        table[i, j] = min(costs)
    return table[len(first) - 1, len(second) - 1]


WORDS = st.text("abcd", min_size=5, max_size=7).filter(lambda word: not word.endswith("s"))


@settings(max_examples=150, deadline=None)
@given(st.lists(WORDS, min_size=2, max_size=6, unique=True))
def test_one_letter_is_found_as_by_the_slow_distance(words):
    grouped = {frozenset(pair) for group in alike_names(words) for pair in itertools.combinations(group, 2)}
    near = [
        frozenset(pair)
        for pair in itertools.combinations(words, 2)
        if slow_distance(*pair) == 1 and pair[0][0] == pair[1][0]
    ]
    assert set(near) <= grouped
    # A group is what such pairs connect.
    for pair in grouped - set(near):
        assert all(any(word in one for one in near) for word in pair)


def test_names_that_are_alike():
    assert alike_names(["Bird", "bird", "birds", "ice cream", "Ice-cream"]) == [
        ("Bird", "bird", "birds"),
        ("ice cream", "Ice-cream"),
    ]
    assert alike_names(["strawberry", "strawberies", "strawberries"]) == [
        ("strawberry", "strawberies", "strawberries")
    ]
    assert alike_names(["item 10", "item 11", "bat", "cat", "model-3", "model-4", "singer", "ringer"]) == []
    found = notes(
        {"Animals/owl": 3, "animals/emu": 3, "animals/moa": 3, "things/pencil": 3, "things/pencli": 2}
    )
    assert found["alike-names"].examples == ("'pencil' / 'pencli'",)
    assert found["alike-names"].rows == (9, 12)
    (coarse, *_) = [one for one in class_findings(manifest_of({"Cats/a": 2, "cat/b": 2})) if one.rows]
    assert coarse.examples == ("'Cats' / 'cat'",)


def test_single_children_are_noted_where_their_level_divides_others():
    found = notes({"a/x/1": 2, "a/x/2": 2, "a/y/3": 2, "b/z/4": 2, "b/z/5": 2})
    assert found["single-child"].examples == ("a/y (2 images)", "b (4 images)")
    assert not found["single-child"].fault
    assert "single-child" not in notes({"a/x": 2, "b/y": 2}), "`repeated-level` is about this"


def test_nearly_empty_and_dominant_branches():
    found = notes({"a/1": 60, "b/2": 70, "c/3": 50, "c/4": 12, "d/5": 2})
    assert found["nearly-empty-branch"].examples == ("d (2 images)",)
    assert "dominant-branch" not in found
    found = notes({"a/1": 95, "b/2": 5, "b/3": 5})
    assert found["dominant-branch"].examples == ("a (95 images)",)
    assert "dominant-branch" not in notes({"1": 95, "2": 5}), "classes may be uneven, branches should not be"
