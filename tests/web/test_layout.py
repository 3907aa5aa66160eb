"""Every view of the explorer keeps its shape with any font, and is accessible in both themes."""

from __future__ import annotations

import pytest
from accessibility import serious_findings
from layout import layout_faults

from happier.web.server import ExplorerServer

pytestmark = pytest.mark.slow

QUERY = "images/red-circle-0.png"
VIEWS = {
    "start": ("/", ".grid .card a img"),
    "search": (f"/?id={QUERY}", ".results .card:not(.skeleton)"),
    "search in a branch": (f"/?id={QUERY}&within=cold/blue", ".results .card:not(.skeleton)"),
    "mistakes": ("/?view=mistakes", ".mistake"),
    "class": ("/?view=class&path=warm", ".bars li"),
    "all classes": ("/?view=class", ".class-list li"),
    "suspects": ("/?view=suspects", ".suspect, .message"),
    "API": ("/docs", "section h3"),
    "error": ("/?id=nobody", ".message.error"),
}


@pytest.fixture(scope="module")
def addresses(explorer, comparison):
    """Of a server with one index, and of one with two."""
    with ExplorerServer(explorer).running() as one, ExplorerServer(comparison).running() as two:
        yield {"one index": one.address, "two indexes": two.address}


@pytest.fixture(scope="module")
def page(browser):
    context = browser.new_context(
        bypass_csp=True, reduced_motion="reduce"
    )  # the forced font is a data: address
    yield context.new_page()
    context.close()


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("indexes", ["one index", "two indexes"])
def test_no_view_depends_on_the_font(page, addresses, view, indexes):
    path, shown = VIEWS[view]
    page.goto(addresses[indexes] + path)
    page.wait_for_selector(shown)
    assert layout_faults(page) == {}


@pytest.mark.parametrize("view", VIEWS)
def test_no_view_has_a_serious_accessibility_fault(page, addresses, view):
    path, shown = VIEWS[view]
    page.set_viewport_size({"width": 1280, "height": 800})
    page.goto(addresses["two indexes"] + path)
    page.wait_for_selector(shown)
    assert serious_findings(page) == {}


def test_the_accessibility_check_finds_what_it_looks_for(page):
    page.goto("about:blank")
    page.set_content(
        "<html lang='en'><title>x</title><p style='color: #ccc; background: #fff'>faint</p></html>"
    )
    assert any("contrast" in fault for fault in serious_findings(page))


def test_the_open_tree_and_the_dialogs_fit_too(page, addresses):
    page.goto(addresses["one index"])
    page.wait_for_selector(".grid .card a img")
    page.set_viewport_size({"width": 320, "height": 800})
    page.get_by_role("button", name="Taxonomy").click()
    page.get_by_role("treeitem", name="cold, 30 images").wait_for()
    assert layout_faults(page) == {}
    # The tree begins where the bar ends, however high the font has made it.
    page.set_viewport_size({"width": 320, "height": 800})
    page.wait_for_function(
        """() => Math.abs(document.querySelector("#side").getBoundingClientRect().top
            - document.querySelector(".bar").offsetHeight) < 1"""
    )
    page.keyboard.press("Escape")
    page.evaluate("() => document.querySelector('#help').showModal()")
    assert layout_faults(page) == {}
    page.evaluate("() => document.querySelector('#help').close()")
    page.set_viewport_size({"width": 1280, "height": 800})
    page.locator(".card .zoom").first.click()
    page.wait_for_selector("#preview[open] img")
    assert layout_faults(page) == {}


def test_the_check_finds_what_it_looks_for(page):
    page.goto("about:blank")
    page.set_content("<p>a narrow page</p>")
    assert layout_faults(page) == {}
    page.set_content("<div style='width: 2000px'>wide</div>")
    assert "px wide in a window of" in layout_faults(page)["narrow font, 320 px"][0]
    page.set_content("<div style='width: 60px; overflow: hidden; white-space: nowrap'>a longer text</div>")
    assert "is cut off by div" in layout_faults(page)["wide font, 1280 px"][0]
    page.set_content("<p style='margin: 0'>one text</p><p style='margin: -20px 0 0'>another</p>")
    assert "lies over" in layout_faults(page)["wide font, 1280 px"][0]
