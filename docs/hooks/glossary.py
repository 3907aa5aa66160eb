"""The first use of a glossary's word on a page leads to the glossary."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import Files
from mkdocs.structure.pages import Page

GLOSSARY = Path(__file__).resolve().parents[1] / "glossary.md"
# Words that every page is full of, or that mean something else in a sentence.
PLAIN = {
    "class",
    "embedding",
    "feature",
    "head",
    "happier",
    "level",
    "query",
    "rank",
    "r-k",
    "run",
    "ties",
    "ap",
}
# Pages where a word means something else: a server's reverse proxy.
OTHER_MEANING = {"proxy": ("guides/serving.md", "guides/build-on-it.md", "reliability.md")}
# Text in these is left alone.
CLOSED = {"a", "button", "code", "h1", "h2", "h3", "h4", "h5", "h6", "label", "math", "pre", "small", "table"}
TAG = re.compile(r"(<[^>]+>)")


def words() -> dict[str, re.Pattern[str]]:
    """The anchor of each word in the glossary, and what is taken for a use of it."""
    found = re.findall(r'^\| <a id="([^"]+)"></a>\*\*(.+?)\*\*', GLOSSARY.read_text(), flags=re.MULTILINE)
    return {anchor: _uses(name) for anchor, name in found if anchor not in PLAIN}


def _uses(name: str) -> re.Pattern[str]:
    stem = name.removesuffix("y") if name.endswith("y") else name
    endings = "(?:y|ies)" if name.endswith("y") else "s?"
    case = re.IGNORECASE if name.islower() else 0
    return re.compile(rf"(?<![\w/-]){re.escape(stem).replace(' ', '[ -]')}{endings}(?![\w/@-])", flags=case)


def link_first_uses(content: str, address: str, name: str) -> str:
    """The page with a link on the first use of each word in running text."""
    left = {anchor: uses for anchor, uses in words().items() if name not in OTHER_MEANING.get(anchor, ())}
    closed, parts = 0, []
    for part in TAG.split(content):
        if tag := re.match(r"<(/?)(\w+)", part):
            if tag[2] in CLOSED and not part.endswith("/>"):
                closed += -1 if tag[1] else 1
        elif not closed:
            for anchor, uses in list(left.items()):
                linked = uses.sub(rf'<a class="term" href="{address}#{anchor}">\g<0></a>', part, count=1)
                if linked != part:
                    del left[anchor]
                    # A second word may not be put inside the link.
                    before, link, after = re.split(r'(<a class="term".*?</a>)', linked, maxsplit=1)
                    parts += [before, link]
                    part = after
        parts.append(part)
    return "".join(parts)


def on_page_content(content: str, page: Page, files: Files, **rest: Any) -> str:
    """Link the words of every page but the glossary itself and the API."""
    del rest
    if page.file.src_uri.startswith(("api/", "decisions/")) or page.file.src_uri == "glossary.md":
        return content
    address = files.src_uris["glossary.md"].url_relative_to(page.file)
    return link_first_uses(content, address, page.file.src_uri)
