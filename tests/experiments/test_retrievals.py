"""What models answer, and the picture of it."""

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_hex
from PIL import Image

from experiments.retrievals import ANSWERS, Answers, draw, first_answers, related
from happier.data import Manifest
from happier.report.level_colours import palette
from happier.runs import Run


@pytest.fixture
def manifest():
    # Two drawings each of a cat and a dog, of a loaf and of a cake.
    codes = ["1f408", "1f415", "1f35e", "1f370"]
    rows = [
        {
            "path": f"images/{code}/{artist}.png",
            "group": "animals" if number < 2 else "food",
            "emoji": code,
            "split": "test",
        }
        for number, code in enumerate(codes)
        for artist in ("a", "b")
    ]
    return Manifest(pd.DataFrame(rows), levels=("group", "emoji"), root=".")


def test_answers_stand_in_order_with_their_levels(manifest):
    right = np.repeat(np.eye(4, dtype=np.float32), 2, axis=0)
    right[:4, 0] += 0.5  # cats and dogs alike, then the rest
    wrong = right[[0, 4, 1, 5, 2, 6, 3, 7]]
    found = first_answers(
        {"right": Run("x", "right", right, manifest), "wrong": Run("y", "wrong", wrong, manifest)}
    )
    assert [one.group for one in found] == ["animals", "food"]
    animals = found[0]
    assert animals.query.parent.name in {"1f408", "1f415"}
    assert [level for _, level in animals.found["right"][:3]] == [2, 1, 1]
    assert animals.found["right"][0][0].parent == animals.query.parent
    assert [level for _, level in animals.found["wrong"][:3]] != [2, 1, 1]


def test_every_drawing_is_framed_by_its_level(tmp_path):
    paths = [tmp_path / f"{shade}.png" for shade in range(3)]
    for shade, path in enumerate(paths):
        Image.new("RGB", (4, 4), (80 * shade, 0, 0)).save(path)
    answers = [Answers(paths[0], "red", {"one": [(paths[1], 2), (paths[2], 0)]})]
    (axes,) = draw(answers, depth=2).axes
    colours = palette(2)
    frames = [to_hex(patch.get_edgecolor()) for patch in axes.patches]
    assert frames == [colours.query, colours.levels[2], colours.levels[0]]
    assert [int(image.get_array()[0, 0, 0]) for image in axes.images] == [0, 80, 160]
    assert {text.get_text() for text in axes.texts} == {"red", "one"}


def test_related_answers_are_counted_over_all_queries(manifest):
    right = np.repeat(np.eye(4, dtype=np.float32), 2, axis=0)
    right[:4, 0] += 0.5
    right[4:, 2] += 0.5
    # Three of the others are of the same group, and every model ranks them first.
    assert related(Run("x", "right", right, manifest)) == pytest.approx(3 / ANSWERS)
