"""What a line may not break, where a long name may, and pictures that open in full."""

from __future__ import annotations

import re
from typing import Any

TAG = re.compile(r"(<[^>]+>)")
# Text in these is left alone.
CLOSED = {"pre", "math", "script", "style", "svg", "h1", "h2", "h3", "h4", "h5", "h6"}
NESTED = {*CLOSED, "a", "code", "table"}
# An option is not parted from its dashes, nor H-AP at its hyphen; in code no name is.
DASHED = re.compile(r"(?<![\w-])(?:--[a-z][\w-]*|[A-Z]-[A-Z]{1,3}(?![\w-]))")
HYPHENED = re.compile(r"\S*-\S*")
# Nor a number from its unit, nor the two sides of "alpha = 1".
UNIT = re.compile(r"(?<=\d) (?=(?:%|[mnuμ]?s|[KMG]i?B|px|times)(?!\w))")
VALUE = re.compile(r"(?<!\S)(\w+) = (-?\d[\d.]*)")
# In running text a name longer than this may be parted after a dot, a comma, a bracket or an equals sign.
LONG = 28
JOINT = re.compile(r"(?<=[\w)\]\"'])([.,(=/]|_(?=\w))(?=[\w\"'\[])")
# Words in a column of numbers: neither to the right nor in one line.
WORDS = re.compile(r'<td style="text-align: right;">(?=[^<]{40,}<)')
# The dotted name over an entry of the API may be parted at its dots.
HEADING = re.compile(r'(?<=<span class="doc doc-object-name )([^>]+>)([\w.]+)(?=</span>)')
PICTURE = re.compile(r'<img [^>]*\bsrc="(?!data:)([^"]+)"')


def set_type(content: str) -> str:
    """The page with its breaks where a reader expects them."""
    content = HEADING.sub(
        lambda found: found[1] + found[2].replace(".", ".<wbr>"), WORDS.sub("<td>", content)
    )
    depth = dict.fromkeys(NESTED, 0)
    parts = []
    for part in TAG.split(content):
        if tag := re.match(r"<(/?)(\w+)", part):
            if tag[2] in NESTED and not part.endswith("/>"):
                depth[tag[2]] += -1 if tag[1] else 1
            picture = PICTURE.match(part)
            parts.append(
                f'<a class="picture" href="{picture[1]}">{part}</a>' if picture and not depth["a"] else part
            )
        elif any(depth[name] for name in CLOSED):
            parts.append(part)
        elif depth["code"]:
            parts.append(HYPHENED.sub(_whole, part) if depth["table"] else _code(part))
        else:
            parts.append(DASHED.sub(_whole, VALUE.sub(r"\1&nbsp;=&nbsp;\2", UNIT.sub("&nbsp;", part))))
    return "".join(parts)


def _whole(found: re.Match[str]) -> str:
    return f'<span class="whole">{found[0]}</span>'


def _code(text: str) -> str:
    """Code in running text: a table keeps its names in one piece and scrolls instead."""
    return "".join(
        JOINT.sub(r"\1<wbr>", word) if len(word) > LONG and "&" not in word else HYPHENED.sub(_whole, word)
        for word in re.split(r"(\s+)", text)
    )


def on_page_content(content: str, **page: Any) -> str:
    """Every page, after the other hooks."""
    del page
    return set_type(content)
