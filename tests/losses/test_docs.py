"""The tables of the guide name what exists; its examples run with those of all pages."""

from __future__ import annotations

import re
from pathlib import Path

from happier import Taxonomy
from happier.losses import LOSSES, build_loss

GUIDE = Path(__file__).parents[2] / "docs" / "losses.md"


def test_every_loss_is_in_the_guide():
    assert set(LOSSES) <= set(re.findall(r"`(\w+)`", GUIDE.read_text()))


def test_the_guide_says_which_losses_use_the_finest_level_only():
    rows = re.findall(r"^\| (`.*?) \|.*?\| (all|finest|none) \|", GUIDE.read_text(), flags=re.MULTILINE)
    said = {name: levels == "finest" for names, levels in rows for name in re.findall(r"`(\w+)`", names)}
    assert said == {name: entry.fine_only for name, entry in LOSSES.items()}


def test_lines_of_the_table_build():
    taxonomy = Taxonomy.from_labels([[0, 0], [0, 1], [1, 2]])
    lines = re.findall(r"`(build_loss\(.*?\))`", GUIDE.read_text())
    assert len(lines) >= 15
    for line in lines:
        eval(line, {"build_loss": build_loss, "taxonomy": taxonomy, "dim": 4})
