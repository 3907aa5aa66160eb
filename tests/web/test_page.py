"""The page in a real Chromium: upload, click through, filter, compare, go back, keys, phones, no errors."""

from __future__ import annotations

import base64
import re
from pathlib import Path

import pytest
from result_list import RESULT

from happier.report.level_colours import palette
from happier.web.routes import pages
from happier.web.server import ExplorerServer

HERE = Path(__file__).parent

pytestmark = pytest.mark.slow

QUERY = "images/red-circle-0.png"


@pytest.fixture(scope="module")
def single(explorer):
    with ExplorerServer(explorer).running() as server:
        yield server.address


@pytest.fixture(scope="module")
def double(comparison):
    with ExplorerServer(comparison).running() as server:
        yield server.address


def open_search(page, base, **values):
    query = "&".join(f"{name}={value}" for name, value in values.items())
    page.goto(f"{base}/?id={QUERY}&{query}")
    page.wait_for_selector(RESULT)


def wait_for_count(page, count):
    page.wait_for_function("([what, n]) => document.querySelectorAll(what).length === n", arg=[RESULT, count])


def test_start_page_offers_images_to_search_with(page, single):
    page.goto(single)
    page.wait_for_selector(".grid .card a img")
    assert page.locator("h1").inner_text() == "Search by image"
    assert "61 images" in page.locator(".lead").inner_text()
    assert page.title().endswith("happier")
    page.locator(".card a").nth(3).click()
    page.wait_for_selector(RESULT)
    assert "id=" in page.url


def test_results_show_frames_paths_scores_and_quality(page, single):
    open_search(page, single)
    cards = page.locator(".results .card")
    assert cards.count() == 24
    levels = [card.get_attribute("data-level") for card in cards.all()]
    assert set(levels) <= {"0", "1", "2", "3"}
    first = cards.first
    assert first.locator(".rank").inner_text() == "1"
    assert re.fullmatch(r"0\.\d{3}|1\.000", first.locator(".score").inner_text())
    # The frame has the colour of its level.
    colour = first.locator(".frame").evaluate("one => getComputedStyle(one).borderTopColor")
    rgb = [int(palette(3).levels[int(levels[0])][at : at + 2], 16) for at in (1, 3, 5)]
    assert colour == "rgb({}, {}, {})".format(*rgb)
    assert "H-AP" in page.locator(".metrics").inner_text()
    assert "same shape" in page.locator(".legend").inner_text()


@pytest.mark.parametrize(
    ("query", "requests"),
    [
        ("", 0),
        ("within=cold", 0),
        (f"id={QUERY}", 0),
        (f"id={QUERY}&within=nothing&k=7", 2),
        ("id=a b~*'()!é&id=c%26d+e", 2),
    ],
)
def test_a_link_comes_with_its_first_answers(page, double, query, requests, monkeypatch):
    """What is refused is asked for again, once for each of the two models, so that the page says why."""
    monkeypatch.setattr(pages, "_ANSWER_SECONDS", None)
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(f"{double}/?{query}")
    page.wait_for_selector("main .card:not(.skeleton), .message")
    page.wait_for_load_state("networkidle")
    assert len([url for url in asked if "/api/search" in url or "/api/items" in url]) == requests, asked
    assert not [url for url in asked if "/api/info" in url]
    if requests:
        assert page.locator(".message").count()
        page.problems.clear()  # there is no such image and no such branch


def test_click_through_and_back(page, single):
    open_search(page, single)
    first = page.locator(".card a").first
    target = page.locator(".card").first.get_attribute("data-id")
    start = page.url
    first.click()
    page.wait_for_url(lambda url: url != start)
    page.wait_for_function(
        "id => decodeURIComponent(location.search).includes(id)",
        arg=target,
    )
    second = page.url
    page.go_back()
    page.wait_for_url(start)
    page.wait_for_function("id => document.querySelector('.results .card')?.dataset.id === id", arg=target)
    page.go_forward()
    page.wait_for_url(second)


def test_upload_by_choosing_then_saying_its_class(page, single, photo):
    page.goto(single)
    page.wait_for_selector(".dropzone")
    with page.expect_file_chooser() as chooser:
        page.locator(".dropzone").click()
    chooser.value.set_files([{"name": "mine.png", "mimeType": "image/png", "buffer": photo}])
    page.wait_for_selector(RESULT)
    assert "upload=" in page.url
    assert page.locator(".results .graded").count() == 0
    field = page.get_by_label("Class of your image")
    field.fill("warm/red/circle")
    field.press("Enter")
    page.wait_for_selector(".results .graded")
    assert "H-AP" in page.locator(".metrics").inner_text()
    page.reload()  # a deep link to the upload still works
    page.wait_for_selector(".results .graded")
    page.go_back()
    page.wait_for_function("() => document.querySelector('.results .card:not(.skeleton):not(.graded)')")


@pytest.mark.parametrize("way", ["drop", "paste"])
def test_upload_by_dropping_or_pasting(page, single, photo, way):
    page.goto(single)
    page.wait_for_selector(".grid .card a img")
    page.evaluate(
        (HERE / "bring.js").read_text(),
        [base64.b64encode(photo).decode(), way],
    )
    page.wait_for_selector(RESULT)
    assert "upload=" in page.url
    assert page.locator("#drop").is_hidden()


def test_a_bad_upload_is_explained_and_recovered_from(page, single):
    page.goto(single)
    page.wait_for_selector(".dropzone")
    page.set_input_files("#file", [{"name": "bad.png", "mimeType": "image/png", "buffer": b"not an image"}])
    page.wait_for_selector(".message.error")
    assert "not an image" in page.locator(".message").inner_text()
    page.get_by_role("button", name="Back").click()
    page.wait_for_selector(".grid .card a img")
    # Chromium itself logs the refused request; nothing else may be there.
    assert [text for text in page.problems if "400" not in text] == []
    page.problems.clear()


def test_the_tree_filters_and_the_filter_can_be_dropped(page, single):
    open_search(page, single)
    assert page.locator(".legend small").count() == 4, "how many images of the index share what"
    page.get_by_role("treeitem", name="cold, 30 images").click()
    page.wait_for_url(re.compile("within=cold"))
    page.wait_for_function(
        """() => document.querySelector(".filter")
            && [...document.querySelectorAll(".results .card")].every((one) => one.dataset.level === "0")"""
    )
    page.get_by_role("treeitem", name="blue, 15 images").click()
    page.wait_for_url(re.compile("within=cold%2Fblue"))
    wait_for_count(page, 15)
    assert page.locator(".legend small").count() == 0, "they are not those of the branch"
    page.go_back()
    wait_for_count(page, 24)
    page.keyboard.press("Escape") if page.evaluate(
        "document.activeElement === document.body"
    ) else page.get_by_label("Search all classes").click()
    page.wait_for_function("() => !document.querySelector('.filter')")
    page.get_by_label("Find a class").fill("cross")
    page.wait_for_selector("#tree .found")
    assert page.locator("#tree .found [role=treeitem]").count() == 4
    page.get_by_label("Find a class").fill("zzz")
    page.wait_for_function("() => document.querySelector('#tree').textContent.includes('No class is called')")


def test_k_slider_changes_the_number_and_the_address(page, single):
    open_search(page, single)
    page.get_by_label("Number of results").fill("7")
    wait_for_count(page, 7)
    assert "k=7" in page.url


def test_two_models_side_by_side_with_differences_marked(page, double):
    open_search(page, double, k=12)
    columns = page.locator(".column")
    assert columns.count() == 2
    ids = [
        [card.get_attribute("data-id") for card in columns.nth(at).locator(".card").all()] for at in range(2)
    ]
    assert len(ids[0]) == len(ids[1]) == 12
    for at in range(2):
        for card in columns.nth(at).locator(".card").all():
            own, name = ids[at], card.get_attribute("data-id")
            note = card.locator(".note")
            if name not in ids[1 - at]:
                assert note.inner_text() == "only here"
            elif ids[1 - at].index(name) == own.index(name):
                assert note.count() == 0
            else:
                assert note.inner_text().endswith(str(abs(ids[1 - at].index(name) - own.index(name))))
    assert page.locator(".metrics tbody tr").count() == 2


def test_worst_mistakes_and_class_view(page, double):
    page.goto(double)
    page.get_by_role("link", name="Worst mistakes").click()
    page.wait_for_selector(".mistake")
    assert page.locator(".mistake").count() > 0
    page.get_by_role("button", name="Better than the other").click()
    page.wait_for_url(re.compile("sort=gain"))
    page.wait_for_selector(".mistake")
    assert "/" in page.locator(".mistake .score").first.inner_text()
    page.locator(".mistake a").first.click()
    page.wait_for_selector(RESULT)
    page.get_by_role("link", name="its class").click()
    page.wait_for_selector("h1")
    page.wait_for_url(re.compile("view=class"))
    page.wait_for_selector(".card:not(.skeleton)")
    assert page.locator(".stats").inner_text()


def test_keys_alone_are_enough(page, single):
    page.goto(single)
    page.wait_for_selector(".grid .card a img")
    page.keyboard.press("ArrowRight")
    first = page.evaluate("document.activeElement.closest('article').dataset.id")
    page.keyboard.press("ArrowDown")
    below = page.evaluate("document.activeElement.closest('article').dataset.id")
    assert below != first
    page.keyboard.press("ArrowUp")
    assert page.evaluate("document.activeElement.closest('article').dataset.id") == first
    page.keyboard.press("Space")
    page.wait_for_selector("#preview[open] img")
    page.keyboard.press("Escape")
    page.wait_for_selector("#preview", state="hidden")
    page.keyboard.press("Enter")
    page.wait_for_selector(RESULT)
    page.keyboard.press("/")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowRight")  # opens "cold"
    page.wait_for_selector("[role=treeitem][aria-expanded=true]")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile("within=cold%2Fblue"))
    page.locator("body").evaluate("() => document.activeElement.blur()")
    page.keyboard.press("m")
    page.wait_for_selector(".mistake")
    page.keyboard.press("?")
    page.wait_for_selector("#help[open]")


def test_names_roles_and_landmarks_for_screen_readers(page, single):
    open_search(page, single)
    for role, name in (
        ("navigation", "Views"),
        ("complementary", "Taxonomy"),
        ("tree", "Classes"),
        ("region", "The query"),
    ):
        assert page.get_by_role(role, name=name).count() == 1
    # Every control has a name; every image that says something says it through its link.
    nameless = page.evaluate(
        """() => [...document.querySelectorAll("button, a, input:not([type=file])")]
            .filter((one) => !(one.ariaLabel || one.textContent.trim() || one.labels?.length || one.title))
            .map((one) => one.outerHTML)"""
    )
    assert nameless == []
    label = page.locator(".results .card a").first.get_attribute("aria-label")
    assert re.match(r"1\., .+, score \d\.\d{3}, (same|nothing) .+\. Search with this image", label)
    assert "24 results" in page.locator("#status").inner_text()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_from_its_ground(page, single, scheme):
    """Contrast of at least 4.5:1 for every piece of text that is shown."""
    page.emulate_media(color_scheme=scheme)
    open_search(page, single)
    faint = page.evaluate((HERE / "contrast.js").read_text())
    assert faint == []


def test_a_phone_shows_everything_without_scrolling_sideways(page, double):
    page.set_viewport_size({"width": 360, "height": 740})
    for path in ("/", f"/?id={QUERY}", "/?view=mistakes", "/?view=class&path=warm", "/docs"):
        page.goto(double + path)
        page.wait_for_load_state("networkidle")
        page.wait_for_selector("h1", state="attached")
        width = page.evaluate("document.documentElement.scrollWidth")
        assert width <= 360, path
    page.goto(double)
    page.wait_for_selector(".grid .card a img")
    assert page.locator("#side").is_hidden()
    page.get_by_role("button", name="Taxonomy").click()
    page.get_by_role("treeitem", name="warm, 30 images").click()
    page.wait_for_url(re.compile("within=warm"))
    page.wait_for_selector("#side", state="hidden")


def test_errors_and_empty_places_are_explained(page, single):
    page.goto(f"{single}/?id=nobody")
    page.wait_for_selector(".message.error")
    assert "no image with the id" in page.locator(".message").inner_text()
    page.goto(f"{single}/?id={QUERY}&within=nowhere")
    page.wait_for_selector(".message.error")
    assert "no branch" in page.locator(".message").inner_text()
    page.get_by_role("link", name="Start over").click()
    page.wait_for_selector(".grid .card a img")
    assert [text for text in page.problems if "404" not in text] == []
    page.problems.clear()


def test_a_server_that_went_away_is_explained(browser, explorer):
    context = browser.new_context()
    page = context.new_page()
    with ExplorerServer(explorer).running() as server:
        page.goto(server.address)
        page.wait_for_selector(".grid .card a img")
    page.locator(".card a").first.click()
    page.wait_for_selector(".message.error")
    assert "does not answer" in page.locator(".message").inner_text()
    context.close()


def test_the_theme_can_be_switched_and_is_remembered(page, single):
    page.goto(single)
    before = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.get_by_role("button", name="Switch between light and dark").click()
    after = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert after != before
    page.reload()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == after


def test_api_documentation_needs_no_network(page, single):
    page.goto(f"{single}/docs")
    page.wait_for_selector("section h3")
    text = page.locator("main").inner_text()
    assert "/api/search" in text
    assert "SearchOut" in text
