"""Every view of the explorer keeps its shape with any font, and is accessible in both themes."""

from __future__ import annotations

from contextlib import ExitStack

import pytest
from accessibility import serious_findings
from layout import WIDTHS, layout_faults

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
SEVERAL = f"id={QUERY}&id=images/red-circle-3.png"
NEW_VIEWS = {
    "combined": (f"/?{SEVERAL}&less=images/blue-square-1.png", ".results .card:not(.skeleton)"),
    "one by one": (f"/?{SEVERAL}&each=1", ".each .card"),
    "map": ("/?view=map", ".map-legend"),
    "query on the map": (f"/?view=map&id={QUERY}", ".map-list .card"),
    "area of the map": ("/?view=map&within=warm&area=0.0_1000.0_1000.1000_0.1000", ".map-list .card"),
}


@pytest.fixture(scope="module")
def addresses(explorer, comparison, four):
    """Of servers with one index, with two and with four."""
    servers = {"one index": explorer, "two indexes": comparison, "four indexes": four}
    with ExitStack() as stack:
        yield {
            name: stack.enter_context(ExplorerServer(one).running()).address for name, one in servers.items()
        }


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


@pytest.mark.parametrize(
    ("view", "indexes"),
    [("combined", "one index"), *((view, "four indexes") for view in NEW_VIEWS)],
)
def test_the_newer_views_fit_and_are_accessible(page, addresses, view, indexes):
    """On phones, a tablet and desktops; axe-core on the widest and on a phone."""
    path, shown = NEW_VIEWS[view]
    page.goto(addresses[indexes] + path)
    page.wait_for_selector(shown)
    assert layout_faults(page, widths=(*WIDTHS, 768, 1440)) == {}
    page.evaluate("() => document.querySelector('#forced-font').remove()")
    for width in (1440, 360):
        page.set_viewport_size({"width": width, "height": 800})
        assert serious_findings(page) == {}, width


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
