"""The paper's tables (Ramzi et al., ECCV 2022), to compare other figures with.

`PUBLISHED` has Tables 1 to 4 by data set, `QUOTED` other tables and figures as they stand. The metrics count
the query in its own class: compare them with ``HierarchyRelevance(count_query=True)`` only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from happier.errors import InputError


@dataclass(frozen=True)
class PublishedTable:
    """One data set of the paper.

    Attributes:
        title: the data set as the paper calls it.
        columns: their headings.
        keys: the entry of a summary that each column shows; ``{1}`` stands for the name of level 1.
        rows: method -> its figures in percent, None where the paper has none.
    """

    title: str
    columns: tuple[str, ...]
    keys: tuple[str, ...]
    rows: Mapping[str, tuple[float | None, ...]]

    def own(self, summary: Mapping[str, float], level_names: Sequence[str]) -> tuple[float, ...]:
        """The same columns of another summary, in percent.

        Raises:
            InputError: the data has other levels than the paper's.
        """
        names = {str(number): name for number, name in enumerate(level_names, start=1)}
        try:
            filled = [_fill(key, names) for key in self.keys]
            return tuple(100 * summary[key] for key in filled)
        except KeyError as error:
            raise InputError(
                f"{self.title} in the paper has other levels than {list(level_names)}: no {error.args[0]!r}"
            ) from None


def _fill(key: str, names: Mapping[str, str]) -> str:
    head, brace, number = key.partition("{")
    return head + names[number.rstrip("}")] if brace else key


_ALL = ("H-AP", "ASI", "NDCG")
_DYML = ("mAP", "ASI", "R@1")


def _joined(
    whole: Mapping[str, tuple[float, ...]], detail: Mapping[str, tuple[float, ...]]
) -> dict[str, tuple[float | None, ...]]:
    """Tables 1 and 3 or 4 side by side; some methods are in one of them only."""
    width, deep = len(next(iter(whole.values()))), len(next(iter(detail.values())))
    return {
        name: (*whole.get(name, (None,) * width), *detail.get(name, (None,) * deep))
        for name in dict.fromkeys([*whole, *detail])
    }


_SOP = _joined(
    {
        "Triplet SH": (42.2, 22.4, 78.8),
        "NSM": (42.8, 21.1, 78.3),
        "NCA++": (43.0, 21.5, 78.4),
        "Smooth-AP": (42.9, 20.6, 78.2),
        "ROADMAP": (43.3, 19.1, 77.9),
        "Sum of Triplet SH": (53.1, 53.3, 89.2),
        "Sum of NSM": (50.4, 49.7, 87.0),
        "Sum of NCA++": (49.5, 52.8, 87.8),
        "CSL": (52.8, 57.9, 88.1),
        "HAPPIER": (59.4, 65.9, 91.5),
    },
    {
        "Triplet SH": (79.8, 59.6, 14.5),
        "NSM": (81.3, 61.3, 13.4),
        "NCA++": (81.4, 61.7, 13.6),
        "Smooth-AP": (81.3, 61.7, 13.4),
        "ROADMAP": (82.2, 62.5, 12.9),
        "CSL": (79.4, 58.0, 45.0),
        "HAPPIER": (81.0, 60.4, 58.4),
        "HAPPIER_F": (81.8, 62.2, 36.0),
    },
)
_INAT_BASE = _joined(
    {
        "Triplet SH": (39.5, 63.7, 91.5),
        "NSM": (38.0, 51.6, 88.9),
        "NCA++": (39.5, 57.0, 90.1),
        "Smooth-AP": (41.3, 64.2, 91.9),
        "ROADMAP": (40.3, 61.0, 91.2),
        "Sum of Triplet SH": (44.0, 87.4, 96.4),
        "Sum of NSM": (47.9, 75.8, 94.4),
        "Sum of NCA++": (48.9, 78.7, 95.0),
        "CSL": (50.1, 89.3, 96.7),
        "HAPPIER": (54.3, 89.3, 96.9),
    },
    {
        "Triplet SH": (66.3, 33.3, 51.5),
        "NSM": (70.2, 37.6, 38.8),
        "NCA++": (67.3, 37.0, 44.5),
        "Smooth-AP": (67.3, 35.2, 53.1),
        "ROADMAP": (69.3, 35.1, 50.4),
        "CSL": (62.9, 30.2, 88.5),
        "HAPPIER": (70.7, 36.7, 88.6),
        "HAPPIER_F": (71.0, 37.8, 78.8),
    },
)
_INAT_FULL = _joined(
    {
        "Triplet SH": (36.1, 59.2, 89.8),
        "NSM": (33.3, 51.7, 88.2),
        "NCA++": (35.3, 55.7, 89.0),
        "Smooth-AP": (37.2, 60.1, 90.1),
        "ROADMAP": (34.7, 59.6, 89.5),
        "Sum of Triplet SH": (39.9, 85.5, 92.0),
        "Sum of NSM": (46.9, 74.2, 93.8),
        "Sum of NCA++": (44.7, 74.3, 92.6),
        "CSL": (45.1, 84.9, 93.0),
        "HAPPIER": (47.9, 87.2, 93.8),
    },
    {
        "Triplet SH": (66.3, 33.3, 34.2, 32.3, 35.4, 48.5, 54.6, 68.4),
        "NSM": (70.2, 37.6, 38.0, 31.4, 28.6, 36.6, 43.9, 63.0),
        "NCA++": (67.3, 37.0, 37.9, 33.0, 32.3, 41.9, 48.4, 66.1),
        "Smooth-AP": (67.3, 35.2, 36.3, 33.5, 35.0, 49.3, 55.8, 69.9),
        "ROADMAP": (69.3, 35.1, 35.4, 29.3, 29.6, 46.4, 54.7, 69.5),
        "CSL": (59.9, 30.4, 32.4, 36.2, 50.7, 81.0, 87.4, 91.3),
        "HAPPIER": (70.2, 36.0, 37.0, 38.0, 51.9, 81.3, 89.1, 94.4),
        "HAPPIER_F": (70.8, 37.6, 38.2, 38.8, 50.9, 76.1, 82.2, 83.1),
    },
)
_SEVEN = ("species", "genus", "family", "order", "class", "phylum", "kingdom")
_TWO_LEVELS = ((*_ALL, "R@1 fine", "AP fine", "AP coarse"), (*_ALL, "R@1/{2}", "AP/{2}", "AP/{1}"))

PUBLISHED: dict[str, PublishedTable] = {
    "sop": PublishedTable("SOP", *_TWO_LEVELS, _SOP),
    "inat-base": PublishedTable("iNat-base", *_TWO_LEVELS, _INAT_BASE),
    "inat-full": PublishedTable(
        "iNat-full",
        (*_ALL, "R@1 species", *(f"AP {name}" for name in _SEVEN)),
        (*_ALL, "R@1/{7}", *(f"AP/{{{level}}}" for level in range(7, 0, -1))),
        _INAT_FULL,
    ),
    "dyml-vehicle": PublishedTable(
        "DyML-Vehicle",
        _DYML,
        _DYML,
        {
            "Triplet SH": (26.1, 38.6, 84.0),
            "NSM": (27.7, 40.3, 88.7),
            "Smooth-AP": (27.1, 39.5, 83.8),
            "ROADMAP": (27.1, 39.6, 84.5),
            "Sum of Triplet SH": (25.5, 38.1, 81.0),
            "Sum of NSM": (32.0, 45.7, 89.4),
            "CSL": (30.0, 43.6, 87.1),
            "HAPPIER": (37.0, 49.8, 89.1),
        },
    ),
    "dyml-animal": PublishedTable(
        "DyML-Animal",
        _DYML,
        _DYML,
        {
            "Triplet SH": (37.5, 46.3, 66.3),
            "NSM": (38.8, 48.4, 69.6),
            "Smooth-AP": (37.7, 45.4, 63.6),
            "ROADMAP": (34.4, 42.6, 62.8),
            "Sum of Triplet SH": (38.9, 47.2, 65.9),
            "Sum of NSM": (42.6, 50.6, 70.0),
            "CSL": (40.8, 46.3, 60.9),
            "HAPPIER": (43.8, 50.8, 68.9),
        },
    ),
    "dyml-product": PublishedTable(
        "DyML-Product",
        _DYML,
        _DYML,
        {
            "Triplet SH": (36.32, 46.1, 59.6),
            "NSM": (35.6, 46.0, 57.4),
            "Smooth-AP": (36.1, 45.5, 55.0),
            "ROADMAP": (34.6, 44.6, 62.5),
            "Sum of Triplet SH": (36.9, 46.3, 58.5),
            "Sum of NSM": (36.8, 46.9, 60.8),
            "CSL": (31.1, 40.7, 52.7),
            "HAPPIER": (38.0, 47.9, 63.7),
        },
    ),
}


@dataclass(frozen=True)
class QuotedTable:
    """A table of the paper as it stands.

    Attributes:
        title: of the first column.
        columns: headings of the others.
        rows: by their first cell.
    """

    title: str
    columns: tuple[str, ...]
    rows: Mapping[str, tuple[str, ...]]


QUOTED: dict[str, QuotedTable] = {
    "surrogate": QuotedTable(  # Table 5
        "iNat-base",
        ("H-AP",),
        {
            "sigmoid, no clustering": ("52.3",),
            "surrogate, no clustering": ("53.1",),
            "surrogate and clustering": ("54.3",),
        },
    ),
    "relevance": QuotedTable(  # Table 6
        "trained for",
        ("H-AP", "ΣwAP", "NDCG"),
        {"H-AP (Eq. 4)": ("53.1", "39.8", "97.0"), "ΣwAP": ("52.0", "40.5", "96.4")},
    ),
    "statistics": QuotedTable(  # supplementary B.1
        "data set",
        ("images", "classes, fine to coarse"),
        {
            "SOP": ("120,053", "22,634 objects, 12 categories"),
            "iNaturalist 2018": ("461,939", "8,142 species; 2 levels (base) or 7 (full)"),
            "DyML-Vehicle, train": ("343.1 K", "36,301, 89, 5"),
            "DyML-Vehicle, test": ("63.5 K fine, 34.3 K middle, 5.9 K coarse", "8,183, 127, 6"),
            "DyML-Animal, train": ("407.8 K", "495, 28, 5"),
            "DyML-Animal, test": ("11.3 K fine, 23.1 K middle, 12.5 K coarse", "162, 17, 5"),
            "DyML-Product, train": ("747.1 K", "1,609, 169, 36"),
            "DyML-Product, test": ("1.5 K", "315, 37, 6"),
        },
    ),
    "hours": QuotedTable(  # supplementary B.4; Quadro RTX 5000 and Tesla V100 with 16 GiB, mixed precision
        "training",
        ("hours",),
        {
            "SOP": ("up to 7",),
            "iNaturalist 2018": ("25",),
            "DyML-Vehicle, DyML-Animal": ("less than 20",),
            "DyML-Product": ("6",),
        },
    ),
    "csl": QuotedTable(  # supplementary B.5
        "CSL: mAP, ASI, R@1",
        ("DyML-Vehicle", "DyML-Animal", "DyML-Product"),
        {
            "reported by Sun et al.": ("12.1, 23.0, 25.2", "31.0, 45.2, 52.3", "28.7, 29.0, 54.3"),
            "by the authors of HAPPIER": ("30.0, 43.6, 87.1", "40.8, 46.3, 60.9", "31.1, 40.7, 52.7"),
        },
    ),
}
