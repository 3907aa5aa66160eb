"""The documentation site: it builds, names everything public, and fits a phone."""

import html
import importlib
import os
import re
import subprocess
import sys
import zlib
from pathlib import Path
from urllib.parse import unquote

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The built site; a warning, a dead link or anchor fails the build."""
    place = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [Path(sys.executable).with_name("mkdocs"), "build", "--strict", "--site-dir", place],
        cwd=ROOT, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return place


def pages_of(site):
    """All pages but the one for what is not found: that is for servers, its links begin at the root."""
    return sorted(set(site.rglob("*.html")) - {site / "404.html"})


def test_every_page_is_in_the_sites_menu():
    menu = (ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")[2]
    listed = set(re.findall(r": (\S+\.md)$", menu, flags=re.MULTILINE))
    pages = {str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md")}
    notebooks = {f"notebooks/{page.stem}.md" for page in (ROOT / "docs" / "notebooks").glob("*.ipynb")}
    assert pages | notebooks == listed


@pytest.mark.slow
@pytest.mark.parametrize(
    "module",
    [
        "happier",
        "happier.data",
        "happier.encoder.embeddings",
        "happier.evaluation",
        "happier.losses",
        "happier.metrics",
        "happier.report",
        "happier.search",
    ],
)
def test_every_public_name_is_documented(module, site):
    inventory = (site / "objects.inv").read_bytes()
    listed = zlib.decompress(inventory.split(b"\n", 4)[4]).decode().splitlines()
    documented = {line.split(" ")[0] for line in listed}
    missing = [
        name
        for name in importlib.import_module(module).__all__
        if not {f"{module}.{name}", home_of(module, name)} & documented
    ]
    assert missing == []


def home_of(module, name):
    """Where a name is defined: a page may show it under another of its names."""
    named = getattr(importlib.import_module(module), name)
    return f"{getattr(named, '__module__', module)}.{getattr(named, '__qualname__', name)}"


@pytest.mark.slow
def test_formulas_are_drawn_and_words_lead_to_the_glossary(site):
    words = re.findall(r'<a id="([^"]+)"', (site / "glossary.html").read_text())
    for page in pages_of(site):
        text = page.read_text()
        assert "arithmatex" not in text, f"{page}: a formula was left as it is written"
        assert set(re.findall(r'class="term" href="[^"]*#([^"]+)"', text)) <= set(words)
    assert (site / "metrics.html").read_text().count("<math") > 10
    concepts = (site / "concepts.html").read_text()
    assert concepts.count('href="glossary.html#severity"') == 1  # the first use only
    assert "#proxy" not in (site / "guides" / "serving.html").read_text()  # a reverse proxy


@pytest.mark.slow
def test_the_site_opens_from_disk(site):
    """A link to a directory would list its files there."""
    for page in pages_of(site):
        links = re.findall(r'<a [^>]*?href="(?![a-z]+:)([^"#]+)', page.read_text())
        assert len(links) > 50, f"{page}: the menu is not there"
        for link in links:
            assert (page.parent / unquote(link)).is_file(), f"{page}: {link}"


@pytest.mark.slow
def test_the_examples_are_shown_whole(site):
    page = html.unescape(re.sub(r"<[^>]+>", "", (site / "examples.html").read_text()))
    for script in (ROOT / "examples").glob("*.py"):
        last = script.read_text().strip().splitlines()[-1]
        assert last in page, f"{script.name} is not on the page"


# The words of a table's cell that are on two lines; an option has its dashes, H-AP its hyphen.
BROKEN_WORDS = """() => [...document.querySelectorAll(".md-typeset :is(td, th)")].flatMap(cell => {
  const broken = [], texts = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    for (const word of texts.currentNode.textContent.matchAll(/(?<![\\w-])(?:--[a-z]\\w*|H-AP)|\\w{2,}/g)) {
      const range = document.createRange();
      range.setStart(texts.currentNode, word.index);
      range.setEnd(texts.currentNode, word.index + word[0].length);
      const tops = [...range.getClientRects()].filter(box => box.width).map(box => box.top);
      if (Math.max(...tops) > Math.min(...tops) + 2) broken.push(word[0]);
    }
  }
  return broken;
})"""


@pytest.mark.slow
def test_pages_fit_a_phone_and_words_in_tables_stay_whole(site, browser):
    faults = {}
    page = browser.new_page(viewport={"width": 360, "height": 800})
    for file in pages_of(site):
        page.goto(file.as_uri())
        width, broken = page.evaluate("document.documentElement.scrollWidth"), page.evaluate(BROKEN_WORDS)
        if width > 360 or broken:
            faults[str(file.relative_to(site))] = (width, broken)
    page.close()
    assert faults == {}
