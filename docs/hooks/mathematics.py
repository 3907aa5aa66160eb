"""Formulas as MathML, made when the site is built: browsers draw it without scripts or a network."""

from __future__ import annotations

import html
import re
from typing import Any

from latex2mathml.converter import convert

FORMULA = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', flags=re.DOTALL)


def on_page_content(content: str, **page: Any) -> str:
    """Put MathML in the place of each formula that Markdown's extension marked."""
    del page

    def drawn(found: re.Match[str]) -> str:
        tag, source = found[1], html.unescape(found[2]).strip()
        mathml = convert(source, display="block" if tag == "div" else "inline")
        # The name of a function is an identifier: as an operator it gets a space on either side.
        mathml = re.sub(r"<mo>([a-z]{2,})</mo>", r"<mi>\1</mi>", mathml)
        # What a screen reader reads, and what is copied.
        return f'<{tag} class="formula">{mathml}</{tag}>'

    return FORMULA.sub(drawn, content)
