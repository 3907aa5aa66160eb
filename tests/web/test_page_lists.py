"""Lists in a real Chromium: several images, more and less like this, endless lists, CSV, paper."""

from __future__ import annotations

import csv
import io
import re

import numpy as np
import pytest
from catalogue import as_bytes, draw
from result_list import RESULT, copied, ids_of, scroll_until

from happier.web.server import ExplorerServer

pytestmark = pytest.mark.slow

ANY = ".results .card:not(.skeleton)"  # also of a list that is being drawn
QUERY, OTHER = "images/red-circle-0.png", "images/red-circle-3.png"
# A phone, a tablet and a desktop, in both themes.
SCREENS = [(360, "dark"), (768, "light"), (1440, "dark")]


@pytest.fixture(scope="module")
def single(explorer):
    with ExplorerServer(explorer).running() as server:
        yield server.address


@pytest.fixture(params=SCREENS, ids=lambda one: f"{one[0]}-{one[1]}")
def screen(page, request):
    width, scheme = request.param
    page.set_viewport_size({"width": width, "height": 800})
    page.emulate_media(color_scheme=scheme)
    return page


def test_several_images_have_a_list_each_or_one_together(screen, single):
    page = screen
    page.goto(single)
    page.wait_for_selector(".dropzone")
    colours = [(214, 48, 49), (41, 98, 255), (39, 160, 80)]
    files = [
        {"name": f"mine-{at}.png", "mimeType": "image/png", "buffer": as_bytes(shape)}
        for at, shape in enumerate(draw(one, "circle", np.random.default_rng(7)) for one in colours)
    ]
    page.set_input_files("#file", files)
    page.wait_for_function("() => document.querySelectorAll('.each:not([aria-busy])').length === 3")
    assert len(re.findall("upload=", page.url)) == 3
    heads = page.locator(".each-head .caption b").all_inner_texts()
    assert heads == ["mine-0.png", "mine-1.png", "mine-2.png"]
    rows = copied(page)
    assert [row["query"] for row in rows] == [head for head in heads for _ in range(24)]
    page.get_by_role("button", name="Together").click()
    page.wait_for_selector(RESULT)
    assert page.locator(".query-images li").count() == 3
    page.reload()  # the address is enough
    page.wait_for_selector(RESULT)
    page.get_by_role("link", name="Leave mine-1.png away").click()
    page.wait_for_function("() => document.querySelectorAll('.query-images li').length === 2")
    page.get_by_role("button", name="One by one").click()
    page.wait_for_function("() => document.querySelectorAll('.each').length === 2")


def test_files_that_cannot_be_used_are_named(page, single, photo):
    page.goto(single)
    page.wait_for_selector(".dropzone")
    good = {"name": "good.png", "mimeType": "image/png", "buffer": photo}
    page.set_input_files("#file", [good, {**good, "name": "bad.png", "buffer": b"not an image"}])
    page.wait_for_selector(".message.error")
    assert "bad.png" in page.locator(".message").inner_text().lower()
    page.set_input_files("#file", [{**good, "name": f"{at}.png"} for at in range(17)])
    page.locator(".message").get_by_text("at most 16").wait_for()
    page.problems.clear()  # the browser logs the refusal


def test_more_and_less_like_this(screen, single):
    page = screen
    page.goto(f"{single}/?id={QUERY}")
    page.wait_for_selector(RESULT)
    before = ids_of(page)
    chosen = page.locator(f'.card[data-id="{before[5]}"]')
    chosen.hover()
    chosen.locator(".vote.less").click()
    page.wait_for_url(re.compile("less="))
    page.wait_for_selector(".query-images .unwanted")
    assert before[5] not in ids_of(page)
    effect = page.locator(".effect").inner_text()
    assert re.fullmatch(r"H-AP \d+\.\d % → \d+\.\d % \(.\d+\.\d\)", effect)
    assert page.get_by_role("list", name="Images of the query").get_by_role("listitem").count() == 2
    # With the keyboard: a card, then +.
    page.locator(f"{RESULT} a.frame").first.focus()
    first = ids_of(page)[0]
    page.keyboard.press("+")
    page.wait_for_function("() => document.querySelectorAll('.query-images .wanted').length === 2")
    assert first not in ids_of(page)
    page.go_back()
    page.wait_for_function("() => document.querySelectorAll('.query-images .wanted').length === 1")
    page.get_by_role("link", name="the first image alone").click()
    page.wait_for_function("() => !document.querySelector('.query-images')")
    page.wait_for_selector(RESULT)
    assert ids_of(page) == before


def test_a_list_grows_and_its_place_is_kept(screen, single):
    page = screen
    page.goto(f"{single}/?id={QUERY}&k=12")
    page.wait_for_selector(RESULT)
    assert len(ids_of(page)) == 12
    scroll_until(page, 60)
    assert len(set(ids_of(page))) == 60
    page.locator(".list-end").wait_for(state="hidden")
    assert "shown=60" in page.url
    where = page.evaluate("() => { scrollTo(0, document.body.scrollHeight / 2); return scrollY; }")
    page.wait_for_function("(y) => Math.abs((history.state?.scroll ?? -1) - y) < 2", arg=where)
    page.reload()
    page.wait_for_function("(y) => Math.abs(scrollY - y) < 2", arg=where)
    assert len(ids_of(page)) == 60
    # Not by the mouse: it would scroll the card into view first.
    page.locator(f'.card[data-id="{ids_of(page)[30]}"] a.frame').evaluate("one => one.click()")
    page.wait_for_url(lambda address: "shown" not in address)
    page.wait_for_selector(RESULT)
    page.wait_for_function("() => scrollY === 0")
    page.go_back()
    page.wait_for_function("(y) => Math.abs(scrollY - y) < 2", arg=where)
    assert len(ids_of(page)) == 60


def test_the_first_results_are_shown_before_the_others_are_drawn(page, single):
    page.add_init_script(f"""
        window.shown = new Set();
        const look = () => {{
            window.shown.add(document.querySelectorAll(`{ANY}`).length);
            requestAnimationFrame(look);
        }};
        requestAnimationFrame(look);
    """)
    page.goto(f"{single}/?id={QUERY}")
    page.wait_for_selector(RESULT)
    assert len(ids_of(page)) == 24
    page.wait_for_function("() => window.shown.has(24)")
    assert sorted(page.evaluate("[...window.shown]"))[-2:] == [8, 24]


def test_a_branch_grows_by_its_button_too(page, single):
    page.goto(f"{single}/?within=warm&shown=0")
    page.wait_for_selector(".grid:not([aria-busy]) .card:not(.skeleton)")
    assert len(ids_of(page, "main .card")) == 30
    assert page.locator(".list-end").is_hidden()
    page.goto(f"{single}/?view=mistakes")
    page.wait_for_selector(".mistakes:not([aria-busy]) .mistake")
    before = page.locator(".mistake").count()
    button = page.get_by_role("button", name="Show more of")
    if button.is_visible():
        # Not as a mouse does: scrolling the button into view loads more by itself, and takes it away.
        button.evaluate("one => one.click()")
        page.wait_for_function("(n) => document.querySelectorAll('.mistake').length > n", arg=before)


def test_the_list_as_csv(page, single):
    page.goto(f"{single}/?id={QUERY}&k=7")
    page.wait_for_selector(RESULT)
    rows = copied(page)
    assert [row["id"] for row in rows] == ids_of(page)
    assert [row["rank"] for row in rows] == [str(at) for at in range(1, 8)]
    assert list(rows[0]) == ["rank", "id", "tone", "colour", "shape", "score", "shared_levels"]
    levels = page.eval_on_selector_all(RESULT, "cards => cards.map((one) => one.dataset.level)")
    assert [row["shared_levels"] for row in rows] == levels
    page.get_by_role("button", name="Copy link").click()
    page.get_by_text("Link copied").wait_for()
    assert page.evaluate("navigator.clipboard.readText()") == page.url


def test_text_in_csv_is_quoted(page, single):
    page.goto(single)
    text = page.evaluate(
        """async () => (await import("./static/share.js")).csv(
            [{ id: 'a "b", c', names: ["one\\ntwo"] }, { id: "é", names: [] }], ["kind", "item"])"""
    )
    assert list(csv.reader(io.StringIO(text))) == [
        ["id", "kind", "item"],
        ['a "b", c', "one\ntwo", ""],
        ["é", "", ""],
    ]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_paper_has_the_list_its_address_and_no_controls(page, single, scheme):
    page.goto(f"{single}/?id={QUERY}&less={OTHER}&k=30")
    page.wait_for_selector(RESULT)
    page.evaluate("() => { window.print = () => dispatchEvent(new Event('beforeprint')); }")
    page.get_by_role("button", name="Print").click()
    page.wait_for_function("() => document.querySelector('#printed').textContent === location.href")
    page.emulate_media(media="print", color_scheme=scheme)
    for hidden in (".bar", ".side", ".controls .slider", ".actions", ".votes", ".zoom", ".remove"):
        assert not page.locator(hidden).first.is_visible(), hidden
    assert page.locator("#printed").is_visible()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.evaluate("getComputedStyle(document.body).color") == "rgb(28, 27, 34)"
    complete = page.evaluate("[...document.querySelectorAll('main img')].map((one) => one.naturalWidth > 0)")
    assert len(complete) == 32
    assert all(complete)
    assert page.pdf(format="A4").count(b"/Type /Page\n") >= 1


def test_lists_of_several_images_fit_on_paper(page, single):
    page.set_viewport_size({"width": 688, "height": 1000})  # A4 within its margins
    page.goto(f"{single}/?id={QUERY}&id={OTHER}&each=1&k=30")
    page.wait_for_function("() => document.querySelectorAll('.strip .card').length === 60")
    page.emulate_media(media="print")
    wide = page.evaluate(
        """() => {
            const right = (one) => one.getBoundingClientRect().right;
            return [...document.querySelectorAll(".strip .caption *")]
                .filter((one) => one.getClientRects().length && right(one) > right(one.closest(".card")) + 1)
                .map((one) => one.textContent);
        }"""
    )
    assert wide == []
    # Filled without a background, which browsers do not print.
    assert page.evaluate("getComputedStyle(document.querySelector('.dots i.on')).borderTopWidth") == "3px"
