"""The colours: one per level, apart from each other, readable on both themes."""

from __future__ import annotations

import itertools

import pytest

from happier.errors import OptionError
from happier.report.level_colours import contrast, css_variables, palette, text_on

DEPTHS = (1, 2, 3, 4, 5, 7, 10)


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("depth", DEPTHS)
def test_one_readable_colour_per_level(depth, theme):
    colours = palette(depth, theme)
    assert len(colours.levels) == depth + 1
    assert len({colours.query, *colours.levels}) == depth + 2
    for colour, ground in itertools.product((colours.query, *colours.levels), ("page", "surface")):
        assert contrast(colour, colours.page[ground]) >= 3
        assert contrast(colour, text_on(colour)) >= 4.5


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_of_the_page_is_readable(theme):
    page = palette(1, theme).page
    for ink, ground in itertools.product(
        ("ink", "muted", "accent", "third", "fourth"), ("page", "surface", "sunken")
    ):
        assert contrast(page[ink], page[ground]) >= 4.5
    assert contrast(page["accent"], page["accent-ink"]) >= 4.5


def test_paper_colours_stand_at_the_ends():
    two, seven = palette(2), palette(7)
    assert (two.levels[0], two.levels[-1]) == (seven.levels[0], seven.levels[-1])
    assert two.levels[1] == seven.levels[1]  # orange: only the coarsest level is shared


def test_css_names_every_level():
    css = css_variables(3)
    assert all(f"--level-{level}: #" in css and f"--level-{level}-ink: #" in css for level in range(4))


def test_options_are_checked():
    with pytest.raises(OptionError, match="depth"):
        palette(0)
    with pytest.raises(OptionError, match="theme"):
        palette(2, "sepia")
