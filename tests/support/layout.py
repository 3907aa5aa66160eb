"""Whether a page keeps its shape with any font, in any window: checked in a real browser."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from pathlib import Path

import matplotlib

WIDTHS = (320, 360, 700, 1280)
# Fonts that come with matplotlib, so that they are the same on every machine; `size-adjust` makes one
# narrower and the other wider than any that a browser would choose for these pages.
FONTS = {"narrow": ("STIXGeneral.ttf", "86%"), "wide": ("DejaVuSansMono-Bold.ttf", "112%")}
_ADD_STYLE = """css => {
    const style = document.createElement("style");
    style.id = "forced-font";
    style.textContent = css;
    document.head.append(style);
}"""
_CHECK = (Path(__file__).parent / "layout.js").read_text()


def layout_faults(page, *, height: int = 800, widths: Sequence[int] = WIDTHS) -> dict[str, list[str]]:
    """Sideways scrolling, texts cut off or over one another, for each font and width.

    The page is loaded once: fonts and windows change in place. A page with a content security policy needs a
    context with ``bypass_csp=True``.
    """
    found = {}
    for font, (file, size) in FONTS.items():
        page.evaluate("() => document.querySelector('#forced-font')?.remove()")
        page.evaluate(_ADD_STYLE, _style(file, size))
        page.evaluate("() => document.fonts.load('16px forced').then((faces) => faces.length)")
        for width in widths:
            page.set_viewport_size({"width": width, "height": height})
            if faults := page.evaluate(_CHECK):
                found[f"{font} font, {width} px"] = faults
    return found


def _style(file: str, size: str) -> str:
    data = (Path(matplotlib.get_data_path()) / "fonts" / "ttf" / file).read_bytes()
    face = f"src: url(data:font/ttf;base64,{base64.b64encode(data).decode()}); size-adjust: {size}"
    return f"@font-face {{ font-family: forced; {face} }} * {{ font-family: forced !important; }}"
