"""The worked picture of H-AP: two rankings of the same five images, every number computed by the library."""

from __future__ import annotations

from fractions import Fraction
from html import escape

import torch
from shapes import COLOURS, outline

from happier import LevelRelevance
from happier.metrics import average_precision, h_ap, hierarchical_rank
from happier.report.level_colours import palette, text_on

# (family, shape, colour) of the query, of the gallery, and two orders of that gallery.
QUERY = ("round", "circle", "yellow")
GALLERY = {
    "a": ("round", "circle", "yellow"),
    "b": ("round", "circle", "pink"),
    "c": ("round", "ellipse", "yellow"),
    "d": ("angular", "square", "yellow"),
    "e": ("round", "circle", "yellow"),
}
RANKINGS = {"Model 1": "badce", "Model 2": "cadbe"}
VALUES = (1 / 3, 2 / 3, 1.0)
SHARED = ("nothing shared", "same family", "same shape", "same class")

WIDTH, CARD, GAP, LEFT = 900, 116, 22, 178
ROW = 268


def levels_of(order: str) -> list[int]:
    """How many levels each ranked image shares with the query: the length of the common prefix."""
    result = []
    for key in order:
        same = [mine == theirs for mine, theirs in zip(QUERY, GALLERY[key], strict=True)]
        result.append(same.index(False) if False in same else len(same))
    return result


def ranking_svg() -> str:
    """The whole picture as SVG."""
    colours = palette(3)
    orders = [torch.tensor([levels_of(order)]) for order in RANKINGS.values()]
    counts = torch.bincount(orders[0][0], minlength=4)[None]
    relevance = LevelRelevance(VALUES)(counts)
    parts = [_legend(colours.levels)]
    for number, (name, order) in enumerate(RANKINGS.items()):
        levels = orders[number]
        ranks = hierarchical_rank(levels, relevance)[0].tolist()
        ap = float(average_precision(levels, counts, level=3))
        value = float(h_ap(levels, relevance, counts))
        top = 92 + number * ROW
        parts.append(_label(name, top, ap, value, colours.page["ink"], colours.page["accent"]))
        parts.append(_sum_line(top + 238, ranks, float((relevance * counts)[:, 1:].sum()), value))
        for place, key in enumerate(order):
            level = int(levels[0, place])
            relevant = Fraction(VALUES[level - 1]).limit_denominator(9) if level else Fraction(0)
            hrank = Fraction(ranks[place]).limit_denominator(9)
            frame, left = colours.levels[level], LEFT + place * (CARD + GAP)
            parts.append(_card(left, top, GALLERY[key], frame, place + 1, level, relevant, hrank))
    height = 92 + ROW * len(RANKINGS) - 10
    title = "Two rankings with the same average precision and different H-AP"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
        f'font-family="system-ui, -apple-system, Segoe UI, Roboto, sans-serif" '
        f'fill="{colours.page["ink"]}"><title>{title}</title>\n'
        f'<rect width="{WIDTH}" height="{height}" rx="14" fill="{colours.page["page"]}"/>\n'
        f"<style>.m{{fill:{colours.page['muted']};font-size:13px}}.n{{font-size:14px}}</style>\n"
        + "\n".join(parts)
        + "\n</svg>\n"
    )


def _legend(levels: tuple[str, ...]) -> str:
    parts = [
        '<text x="24" y="34" font-size="15" font-weight="600">Query</text>',
        _shape(134, 42, 22, QUERY),
        '<text class="m" x="24" y="56">yellow circle</text>',
    ]
    left = LEFT
    for level in range(3, -1, -1):
        words = f"{level}: {SHARED[level]}"
        parts.append(f'<circle cx="{left + 7}" cy="42" r="7" fill="{levels[level]}"/>')
        parts.append(f'<text class="n" x="{left + 20}" y="47">{escape(words)}</text>')
        left += 44 + round(6.9 * len(words))
    return "".join(parts)


def _label(name: str, top: int, ap: float, value: float, ink: str, accent: str) -> str:
    return (
        f'<text x="24" y="{top + 26}" font-size="15" font-weight="600" fill="{ink}">{name}</text>'
        f'<text class="m" x="24" y="{top + 56}">AP of the class</text>'
        f'<text x="24" y="{top + 78}" font-size="20">{ap:.2f}</text>'
        f'<text class="m" x="24" y="{top + 108}">H-AP</text>'
        f'<text x="24" y="{top + 136}" font-size="28" font-weight="700" fill="{accent}">{value:.3f}</text>'
        f'<text class="m" x="24" y="{top + 166}">relevance</text>'
        f'<text class="m" x="24" y="{top + 188}">hrank</text>'
        f'<text class="m" x="24" y="{top + 210}">hrank / rank</text>'
    )


def _sum_line(top: int, ranks: list[float], total: float, value: float) -> str:
    terms = " + ".join(f"{hrank / place:.3f}" for place, hrank in enumerate(ranks, start=1) if hrank)
    words = f"H-AP = ({terms}) / sum of relevance {total:g} = {value:.3f}"
    return f'<text class="m" x="{LEFT}" y="{top}">{words}</text>'


def _card(
    left: int, top: int, item: tuple[str, str, str], colour: str, rank: int, level: int,
    relevance: Fraction, hrank: Fraction,
) -> str:  # fmt: skip
    middle = left + CARD / 2

    def line(offset: int, words: str) -> str:
        return f'<text class="n" x="{middle:g}" y="{top + offset}" text-anchor="middle">{words}</text>'

    ratio = hrank / rank
    return (
        f'<rect x="{left}" y="{top}" width="{CARD}" height="{CARD}" rx="10" fill="#ffffff" '
        f'stroke="{colour}" stroke-width="4"/>'
        + _shape(middle, top + CARD / 2, 36, item)
        + f'<circle cx="{left + 16}" cy="{top + 16}" r="12" fill="{colour}"/>'
        f'<text x="{left + 16}" y="{top + 21}" font-size="13" font-weight="700" text-anchor="middle" '
        f'fill="{text_on(colour)}">{rank}</text>'
        + f'<text class="m" x="{middle:g}" y="{top + 138}" text-anchor="middle">level {level}</text>'
        + line(166, str(relevance))
        + line(188, str(hrank) if level else "")
        + line(210, f"{hrank} / {rank} = {float(ratio):.3f}" if level else "")
    )


def _shape(x: float, y: float, radius: float, item: tuple[str, str, str]) -> str:
    points = " ".join(f"{x + radius * a:.1f},{y + radius * b:.1f}" for a, b in outline(item[1]))
    return f'<polygon points="{points}" fill="{COLOURS[item[2]]}"/>'
