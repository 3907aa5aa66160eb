"""Colours of the coarse classes on the map."""

from __future__ import annotations

from happier.report.data import ClassMap

# 14 hues, as distinct as possible on white and on black.
COARSE_COLOURS = (
    "#4269d0", "#ef9f18", "#ff5f4c", "#2fb39a", "#8f5be8", "#3c9b3f", "#ff7fb2", "#6fb1f5", "#9c6b4e",
    "#b3a125", "#c2378f", "#1f8a9e", "#7f8f3a", "#d98e73",
)  # fmt: skip
OTHER_COLOUR = "#9498a0"


def coarse_colours(class_map: ClassMap) -> list[tuple[str, str]]:
    """Name and colour of each coarse class; those beyond the palette are grey."""
    named = list(zip(class_map.coarse, COARSE_COLOURS, strict=False))
    return named + [(name, OTHER_COLOUR) for name in class_map.coarse[len(named) :]]
