"""The colours of the report and of the web page: one for the query, one for each shared level.

As in the paper's figures: the query is amethyst, an image of the query's own fine class green, then blue and
orange as the shared level falls, red where nothing is shared. Deeper trees put teal to blue into the finer
half and yellow to orange into the coarser half. Tones are spaced in OKLCH, and each keeps a contrast of at
least 3:1 to its page. Colour is never the only cue: write the level's name beside it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

from happier.errors import OptionError

Theme = Literal["light", "dark"]


class _Tone(NamedTuple):
    lightness: float
    chroma: float
    hue: float


# Hues are the same on both themes; on a light page warm colours must be darker.
_QUERY: dict[Theme, _Tone] = {"light": _Tone(0.58, 0.19, 303), "dark": _Tone(0.74, 0.155, 305)}
_NONE: dict[Theme, _Tone] = {"light": _Tone(0.57, 0.21, 25), "dark": _Tone(0.67, 0.20, 25)}
_SAME: dict[Theme, _Tone] = {"light": _Tone(0.61, 0.18, 147), "dark": _Tone(0.76, 0.18, 148)}
# From the finest to the coarsest level between: teal to blue, then yellow to orange.
_FINE: dict[Theme, tuple[_Tone, _Tone]] = {
    "light": (_Tone(0.64, 0.13, 195), _Tone(0.58, 0.19, 255)),
    "dark": (_Tone(0.80, 0.13, 195), _Tone(0.70, 0.16, 252)),
}
_COARSE: dict[Theme, tuple[_Tone, _Tone]] = {
    "light": (_Tone(0.655, 0.16, 94), _Tone(0.665, 0.18, 55)),
    "dark": (_Tone(0.86, 0.16, 98), _Tone(0.77, 0.16, 60)),
}

_PAGE: dict[Theme, dict[str, str]] = {
    "light": {
        "page": "#fbfbfd",
        "surface": "#ffffff",
        "sunken": "#f1f1f6",
        "ink": "#1c1b22",
        "muted": "#5d5b6b",
        "line": "#dedde6",
        "accent": "#6d3fb3",
        "accent-ink": "#ffffff",
        "third": "#7d5f00",
        "fourth": "#00565f",
    },
    "dark": {
        "page": "#131217",
        "surface": "#1c1b22",
        "sunken": "#25242d",
        "ink": "#f0eff5",
        "muted": "#a9a6b8",
        "line": "#393745",
        "accent": "#b794f0",
        "accent-ink": "#17121f",
        "third": "#e0c862",
        "fourth": "#62e3e6",
    },
}


@dataclass(frozen=True)
class Palette:
    """Colours as ``#rrggbb`` for a tree of some depth on one theme.

    Attributes:
        query: the query image.
        levels: one per shared level, index 0 (nothing shared) to L (the same fine class).
        page: colours of the page itself by name: page, surface, sunken, ink, muted, line, accent, accent-ink,
            and third and fourth for the models beyond the two that accent and muted stand for.
    """

    query: str
    levels: tuple[str, ...]
    page: dict[str, str]


def palette(depth: int, theme: Theme = "light") -> Palette:
    """Colours for a tree of ``depth`` levels.

    Raises:
        OptionError: a depth below 1 or an unknown theme.

    >>> len(palette(3).levels)
    4
    """
    if depth < 1:
        raise OptionError(f"depth must be at least 1, got {depth}")
    if theme not in _PAGE:
        raise OptionError(f"theme must be 'light' or 'dark', got {theme!r}")
    tones = (_NONE[theme], *_between(depth - 1, theme), _SAME[theme])
    return Palette(
        query=_hex(_QUERY[theme]), levels=tuple(_hex(tone) for tone in tones), page=dict(_PAGE[theme])
    )


def text_on(colour: str) -> str:
    """Black or white, whichever reads better on ``#rrggbb``."""
    return max("#000000", "#ffffff", key=lambda ink: contrast(ink, colour))


def contrast(first: str, second: str) -> float:
    """Contrast of two colours ``#rrggbb`` as WCAG 2 defines it, 1 to 21.

    >>> round(contrast("#000000", "#ffffff"))
    21
    """
    low, high = sorted((_luminance(first), _luminance(second)))
    return (high + 0.05) / (low + 0.05)


def css_variables(depth: int) -> str:
    """The palette as CSS custom properties: light, or dark where the reader's system or the page says so.

    Names: ``--query``, ``--level-0`` .. ``--level-L``; each of these with ``-ink`` for text on that colour;
    and those of the page: ``--page``, ``--surface``, ``--sunken``, ``--ink``, ``--muted``, ``--line``,
    ``--accent``, ``--accent-ink``, ``--third``, ``--fourth``. ``<html data-theme="dark">`` or ``"light"``
    overrides the system's choice.
    """
    light, dark = _block(depth, "light"), _block(depth, "dark")
    return (
        f":root {{ color-scheme: light; {light} }}\n"
        "@media (prefers-color-scheme: dark) {\n"
        f'  :root:not([data-theme="light"]) {{ color-scheme: dark; {dark} }}\n'
        "}\n"
        f':root[data-theme="dark"] {{ color-scheme: dark; {dark} }}\n'
    )


def print_variables(depth: int) -> str:
    """CSS that prints in the light colours, whatever the theme on screen."""
    block = f"color-scheme: light; {_block(depth, 'light')} --page: #ffffff;"
    return f"@media print {{ :root:root[data-theme], :root:root {{ {block} }} }}\n"


def _block(depth: int, theme: Theme) -> str:
    colours = palette(depth, theme)
    named = {"query": colours.query, **{f"level-{level}": c for level, c in enumerate(colours.levels)}}
    entries = [f"--{name}: {colour}; --{name}-ink: {text_on(colour)};" for name, colour in named.items()]
    entries += [f"--{name}: {colour};" for name, colour in colours.page.items()]
    return " ".join(entries)


def _between(count: int, theme: Theme) -> tuple[_Tone, ...]:
    """Tones of the levels between "nothing" and "same class", coarse to fine; the coarser half is warm."""
    warm = (count + 1) // 2
    return (*_spread(_COARSE[theme], warm)[::-1], *_spread(_FINE[theme], count - warm)[::-1])


def _spread(ends: tuple[_Tone, _Tone], count: int) -> tuple[_Tone, ...]:
    """Evenly spaced tones from one end to the other; where there is one, it is the last."""
    first, last = ends
    if count == 1:
        return (last,)
    steps = (step / (count - 1) for step in range(count))
    return tuple(_Tone(*((1 - t) * a + t * b for a, b in zip(first, last, strict=True))) for t in steps)


def _hex(tone: _Tone) -> str:
    """OKLCH to ``#rrggbb``, with less chroma where sRGB cannot show it."""
    lightness, chroma, hue = tone
    while True:
        linear = _linear_rgb(
            lightness, chroma * math.cos(math.radians(hue)), chroma * math.sin(math.radians(hue))
        )
        if all(-1e-4 <= channel <= 1 + 1e-4 for channel in linear):
            return "#" + "".join(f"{round(255 * _gamma(min(1.0, max(0.0, c)))):02x}" for c in linear)
        chroma *= 0.98


def _linear_rgb(lightness: float, a: float, b: float) -> tuple[float, float, float]:
    """OKLab to linear sRGB (Ottosson 2020)."""
    long = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3
    medium = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3
    short = (lightness - 0.0894841775 * a - 1.2914855480 * b) ** 3
    return (
        4.0767416621 * long - 3.3077115913 * medium + 0.2309699292 * short,
        -1.2684380046 * long + 2.6097574011 * medium - 0.3413193965 * short,
        -0.0041960863 * long - 0.7034186147 * medium + 1.7076147010 * short,
    )


def _gamma(channel: float) -> float:
    return 12.92 * channel if channel <= 0.0031308 else 1.055 * channel ** (1 / 2.4) - 0.055


def _luminance(colour: str) -> float:
    channels = [int(colour[start : start + 2], 16) / 255 for start in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
