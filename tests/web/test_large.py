"""The page over 100,000 images in a real Chromium: random vectors, few small pictures, real thumbnails."""

from __future__ import annotations

import functools
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from catalogue import COLOURS, as_bytes, draw
from result_list import RESULT, copied, ids_of, scroll_until

from happier.data import Manifest
from happier.encoder import Encoder
from happier.search import Index, build_index, change
from happier.web import analysis, catalogue_map, indexed_model
from happier.web.explorer import Explorer
from happier.web.server import ExplorerServer

pytestmark = pytest.mark.slow

COUNT, PICTURES, CLASSES, DIM = 100_000, 1_000, 400, 24
LEVELS = ("kind", "group", "item")
QUERY = "0/7.png"
# Rows whose label says another kind than their vector.
MISLABELLED = (1_234, 98_765)
# Images that mistakes and classes are measured with, of all those that could be.
QUERIES = 400
# How many pixels of the map have the colour of each branch.
COLOURED_PIXELS = """() => {
    const { map } = document.querySelector("canvas");
    const { data } = map.context.getImageData(0, 0, map.canvas.width, map.canvas.height);
    const colours = map.colours().groups.slice(0, map.colouring.groups.length);
    const wanted = colours.map((one) => parseInt(one.slice(1), 16));
    const counts = wanted.map(() => 0);
    for (let at = 0; at < data.length; at += 4) {
        const own = wanted.indexOf((data[at] << 16) | (data[at + 1] << 8) | data[at + 2]);
        if (own >= 0) counts[own]++;
    }
    return counts;
}"""
CONTRAST = (Path(__file__).parent / "contrast.js").read_text()


def vectors_in_clusters(item, generator, spread):
    """Unit vectors around a random one of each class."""
    vectors = generator.standard_normal((CLASSES, DIM))[item]
    vectors += spread * generator.standard_normal((COUNT, DIM))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors.astype(np.float32)


@pytest.fixture(scope="module")
def catalogue(tmp_path_factory):
    """A manifest and what each image shows; a hundred folders are links to one of a thousand pictures."""
    folder = tmp_path_factory.mktemp("large")
    generator = np.random.default_rng(0)
    (folder / "0").mkdir()
    colours = [value for group in COLOURS.values() for value in group.values()]
    for number in range(PICTURES):
        target = folder / "0" / f"{number}.png"
        if number < 24:
            draw(colours[number % 4], ("circle", "square", "cross")[number % 3], generator).save(target)
        else:
            target.hardlink_to(folder / "0" / f"{number % 24}.png")
    for link in range(1, COUNT // PICTURES):
        (folder / str(link)).symlink_to("0")
    item = generator.integers(0, CLASSES, COUNT)
    labels = item.copy()
    labels[list(MISLABELLED)] = (item[list(MISLABELLED)] + CLASSES // 2) % CLASSES
    table = pd.DataFrame(
        {
            "path": [f"{number // PICTURES}/{number % PICTURES}.png" for number in range(COUNT)],
            "split": "test",
            "kind": [f"kind {one // 80}" for one in labels],
            "group": [f"group {one // 8}" for one in labels],
            "item": [f"item {one}" for one in labels],
        }
    )
    with pytest.MonkeyPatch.context() as patch:
        # Nothing here names images: to learn how sure a name is takes most of the time of a new index.
        patch.setattr(change, "calibrate_items", lambda *_: None)
        yield Manifest(table, levels=LEVELS, root=folder, name="many"), item


@pytest.fixture(scope="module")
def large(catalogue):
    """An index of vectors in clusters that keeps a model, so that it can be searched with new images."""
    manifest, item = catalogue
    torch.manual_seed(0)
    encoder = Encoder("test_resnet", dim=DIM, transform="small", image_size=48, level_names=LEVELS)
    vectors = vectors_in_clusters(item, np.random.default_rng(1), 0.85)
    return build_index(encoder, manifest, manifest.root / "many.index", vectors=vectors)


@pytest.fixture(scope="module")
def explorer(large):
    with pytest.MonkeyPatch.context() as patch:
        # A smaller sample: this module is about the page, and the machine is shared.
        patch.setattr(catalogue_map, "LANDMARKS", 300)
        patch.setattr(
            indexed_model, "analyse", functools.partial(analysis.analyse, max_pairs=QUERIES * COUNT)
        )
        yield Explorer(large)


@pytest.fixture(scope="module")
def address(explorer):
    with ExplorerServer(explorer).running() as server:
        yield server.address


@pytest.fixture(scope="module")
def four(catalogue, large):
    """A server of four models of the same images, from the first to one that learnt little."""
    manifest, item = catalogue
    generator = np.random.default_rng(2)
    others = [
        Index.build(
            manifest.root / f"{name}.index",
            manifest,
            vectors_in_clusters(item, generator, spread),
            fingerprint=name * 64,
        )
        for name, spread in (("b", 0.4), ("c", 0.9), ("d", 3.0))
    ]
    with ExplorerServer(Explorer(large, others)).running() as server:
        yield server.address, [large, *others]


@pytest.fixture(params=[360, 768, 1440])
def screen(page, request):
    """The page of a phone, a tablet and a desktop."""
    page.set_viewport_size({"width": request.param, "height": 800})
    return page


def check_both_themes(page):
    """Nothing scrolls sideways, and every text stands out from its ground, in light and in dark."""
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
        assert page.evaluate(CONTRAST) == []


def wait_for_count(page, what, count):
    page.wait_for_function("([what, n]) => document.querySelectorAll(what).length === n", arg=[what, count])


def exact_scores(index, vector, used=()):
    """Cosine of every image with a vector, in double precision; images of the query come last."""
    vector = np.asarray(vector, dtype=np.float64)
    scores = np.asarray(index.vectors, dtype=np.float64) @ (vector / np.linalg.norm(vector))
    scores[[index.row(one) for one in used]] = -2
    return scores


def check_ranking(index, ids, scores):
    """The images are the best ones, best first; rounding may make neighbours change places."""
    assert len(set(ids)) == len(ids) > 0
    best = np.sort(scores)[::-1][: len(ids)]
    np.testing.assert_allclose(scores[[index.row(one) for one in ids]], best, rtol=0, atol=1e-6)


def shared_levels(index, query, rows):
    """How many levels of the tree an image shares with each of some rows."""
    return np.cumprod(index.labels[rows] == index.labels[index.row(query)], axis=1).sum(axis=1)


def exact_h_ap(index, query, scores):
    """H-AP of a whole ranking in percent, by its definition with running counts of the levels."""
    ranked = np.argsort(-scores)[: int((scores > -2).sum())]
    levels = shared_levels(index, query, ranked)
    counts = np.bincount(levels, minlength=4)
    relevance = np.arange(4) / 3 / counts
    before = np.cumsum(levels[:, None] == np.arange(4), axis=0)
    hrank = (before * np.minimum(relevance, relevance[levels][:, None])).sum(axis=1)
    precision = (hrank / np.arange(1, len(ranked) + 1))[levels > 0].sum()
    return 100 * precision / (relevance * counts).sum()


def check_csv(index, rows, ids, scores, query=None):
    """Ranks, ids, classes and scores, as the index has them; levels shared with an image of the index."""
    table = index.items.table
    at = [index.row(one) for one in ids]
    assert [row["id"] for row in rows] == ids
    assert [row["rank"] for row in rows] == [str(rank) for rank in range(1, len(ids) + 1)]
    for level in LEVELS:
        assert [row[level] for row in rows] == table[level].iloc[at].tolist()
    np.testing.assert_allclose([float(row["score"]) for row in rows], scores[at], rtol=0, atol=1e-5)
    levels = [""] * len(ids) if query is None else map(str, shared_levels(index, query, at).tolist())
    assert [row["shared_levels"] for row in rows] == list(levels)


def test_several_new_images_at_once(screen, address, explorer, large):
    """A list for each; then one together, whose query is their mean."""
    page = screen
    page.goto(address)
    page.wait_for_selector(".dropzone")
    files = [
        {"name": f"mine-{at}.png", "mimeType": "image/png", "buffer": as_bytes(shape)}
        for at, shape in enumerate(
            draw(colour, "circle", np.random.default_rng(7))
            for colour in [(214, 48, 49), (41, 98, 255), (39, 160, 80)]
        )
    ]
    page.set_input_files("#file", files)
    page.wait_for_function("() => document.querySelectorAll('.each:not([aria-busy])').length === 3")
    keys = re.findall(r"upload=(\w+)", page.url)
    vectors = [explorer.uploads.get(key).vector(large.head.fingerprint) for key in keys]
    rows = copied(page)
    for at, vector in enumerate(vectors):
        ids = ids_of(page, f".each:nth-of-type({at + 1}) .card")
        assert len(ids) == 24
        scores = exact_scores(large, vector)
        check_ranking(large, ids, scores)
        check_csv(large, rows[24 * at : 24 * at + 24], ids, scores)
        assert {row["query"] for row in rows[24 * at : 24 * at + 24]} == {f"mine-{at}.png"}
    check_both_themes(page)
    page.get_by_role("button", name="Together").click()
    wait_for_count(page, RESULT, 24)
    check_ranking(large, ids_of(page), exact_scores(large, np.mean(vectors, axis=0, dtype=np.float64)))
    check_both_themes(page)


def test_more_and_less_like_this(screen, address, large):
    """Rocchio's query, by a click and by a key, and what it changes in H-AP over all images."""
    page = screen
    page.goto(f"{address}/?id={QUERY}")
    wait_for_count(page, RESULT, 24)
    unwanted = ids_of(page)[5]
    card = page.locator(f'.card[data-id="{unwanted}"]')
    card.hover()
    card.locator(".vote.less").click()
    wait_for_count(page, ".query-images .unwanted", 1)
    page.wait_for_selector(RESULT)
    wanted = ids_of(page)[3]
    page.locator(f'.card[data-id="{wanted}"] a.frame').focus()
    page.keyboard.press("+")
    wait_for_count(page, ".query-images .wanted", 2)
    page.wait_for_selector(RESULT)
    vector = {one: np.asarray(large.vector(large.row(one)), np.float64) for one in (QUERY, wanted, unwanted)}
    used = list(vector)
    combined = exact_scores(large, (vector[QUERY] + vector[wanted]) / 2 - vector[unwanted] / 4, used)
    check_ranking(large, ids_of(page), combined)
    alone = exact_scores(large, vector[QUERY], used)
    before, after = (exact_h_ap(large, QUERY, scores) for scores in (alone, combined))
    said = page.locator(".effect").inner_text().replace("\N{MINUS SIGN}", "-")
    found = re.fullmatch(r"H-AP (\S+) % → (\S+) % \((\S+)\)", said)
    assert [float(one) for one in found.groups()] == pytest.approx([before, after, after - before], abs=0.051)
    assert abs(after - before) > 0.1, "the example changes something that can be seen"
    check_both_themes(page)


def test_four_models_side_by_side(screen, four):
    """Each column is the exact ranking of its own vectors, and the table has its H-AP over all images."""
    page, (base, indexes) = screen, four
    page.goto(f"{base}/?id={QUERY}&k=12")
    wait_for_count(page, ".column .card:not(.skeleton)", 48)
    rows = copied(page)
    # A phone's table has a column for each model: what it shows is read from the elements all the same.
    shown = page.locator(".metrics tbody tr td:nth-of-type(1)").all_inner_texts()
    lists = [ids_of(page, f".column:nth-of-type({at}) .card") for at in (1, 2, 3, 4)]
    for at, index in enumerate(indexes):
        scores = exact_scores(index, index.vector(index.row(QUERY)), [QUERY])
        check_ranking(index, lists[at], scores)
        check_csv(index, rows[12 * at : 12 * at + 12], lists[at], scores, QUERY)
        assert {row["model"] for row in rows[12 * at : 12 * at + 12]} == {("many", "b", "c", "d")[at]}
        assert float(shown[at].removesuffix(" %")) == pytest.approx(
            exact_h_ap(index, QUERY, scores), abs=0.051
        )
        others = {one for other, ids in enumerate(lists) if other != at for one in ids}
        only = ids_of(page, f".column:nth-of-type({at + 1}) .card:has(.note.only)")
        assert only == [one for one in lists[at] if one not in others]
    check_both_themes(page)


def test_a_long_ranking_keeps_its_place_and_can_be_taken_away(screen, address, large):
    """Scrolled to 300 results: back, CSV, the printed address, and what that address shows."""
    page = screen
    page.goto(f"{address}/?id={QUERY}&k=100")
    page.wait_for_selector(RESULT)
    assert "H-AP" in page.locator(".metrics").inner_text()
    scroll_until(page, 300)
    ids = ids_of(page)
    scores = exact_scores(large, large.vector(large.row(QUERY)), [QUERY])
    check_ranking(large, ids, scores)
    check_both_themes(page)
    check_csv(large, copied(page), ids, scores, QUERY)
    where = page.evaluate("() => { scrollTo(0, document.body.scrollHeight / 2); return scrollY; }")
    page.wait_for_function("(y) => Math.abs((history.state?.scroll ?? -1) - y) < 2", arg=where)
    # Not by the mouse: it would scroll the card into view first.
    page.locator(f'.card[data-id="{ids[150]}"] a.frame').evaluate("one => one.click()")
    page.wait_for_url(lambda url: "shown" not in url)
    page.wait_for_function("() => scrollY === 0")
    page.go_back()
    page.wait_for_function("(y) => Math.abs(scrollY - y) < 2", arg=where)
    assert ids_of(page) == ids
    page.evaluate("() => { window.print = () => dispatchEvent(new Event('beforeprint')); }")
    page.get_by_role("button", name="Print").click()
    page.wait_for_function("() => document.querySelector('#printed').textContent")
    assert page.evaluate("[...document.querySelectorAll('main img')].every((one) => one.naturalWidth)")
    page.emulate_media(media="print")
    printed = page.locator("#printed").inner_text()
    assert not page.locator(".bar").is_visible()
    page.emulate_media(media="screen")
    page.goto("about:blank")
    page.goto(printed)
    wait_for_count(page, RESULT, len(ids))
    assert ids_of(page) == ids


def test_a_long_branch_keeps_its_place(screen, address):
    page = screen
    page.goto(f"{address}/?within=kind 0&shown=600")
    page.wait_for_function("() => document.querySelectorAll('main .card').length === 600")
    where = page.evaluate("() => { scrollTo(0, document.body.scrollHeight / 2); return scrollY; }")
    page.wait_for_function("(y) => Math.abs((history.state?.scroll ?? -1) - y) < 2", arg=where)
    page.reload()
    page.wait_for_function("(y) => Math.abs(scrollY - y) < 2", arg=where)


def test_the_map_of_100_000_images(screen, address):
    page = screen
    page.goto(f"{address}/?view=map")
    page.wait_for_selector(".map-legend")
    page.wait_for_function("() => document.querySelector('canvas').map?.visible?.length === 100000")
    assert page.get_by_role("list", name="Branches").get_by_role("link").count() == 5
    # Five branches of a size, mixed: none hides the others.
    pixels = page.evaluate(COLOURED_PIXELS)
    assert len(pixels) == 5
    assert max(pixels) < 2 * min(pixels)
    canvas = page.locator("canvas")
    canvas.focus()
    # Zoom on one image until its picture and those around it are shown.
    page.evaluate(
        """() => {
            const { map } = document.querySelector("canvas");
            map.look({ x: map.points.x(7), y: map.points.y(7), zoom: 400 });
        }"""
    )
    page.wait_for_function("() => document.querySelector('canvas').map.pictureOf(7)")
    page.get_by_role("button", name="List these images").click()
    page.wait_for_selector(".map-list .card")
    seen = page.evaluate("() => document.querySelector('canvas').map.visible.length")
    title = page.locator(".map-list h2").inner_text()
    assert re.sub(r"\D", "", title) == str(seen)
    assert 0 < seen < 5_000
    check_both_themes(page)


def test_a_lasso_around_a_part_of_100_000_images(screen, address):
    page = screen
    page.goto(f"{address}/?view=map")
    page.wait_for_function("() => document.querySelector('canvas')?.map?.visible?.length === 100000")
    canvas = page.locator("canvas")
    canvas.scroll_into_view_if_needed()
    page.get_by_role("button", name="Lasso").click()
    box = canvas.bounding_box()
    corners = [(0.05, 0.05), (0.5, 0.05), (0.5, 0.9), (0.05, 0.9)]
    left, *others = [(box["x"] + x * box["width"], box["y"] + y * box["height"]) for x, y in corners]
    page.mouse.move(*left)
    page.mouse.down()
    for corner in others:
        page.mouse.move(*corner, steps=8)
    page.mouse.up()
    page.wait_for_selector(".map-list .card")
    title = page.locator(".map-list h2").inner_text()
    inside = page.evaluate(
        """() => {
            const { map } = document.querySelector("canvas");
            const [left, top] = map.toMap(0.05 * map.width, 0.05 * map.height);
            const [right, bottom] = map.toMap(0.5 * map.width, 0.9 * map.height);
            const [low, high] = [Math.min(top, bottom), Math.max(top, bottom)];
            let count = 0;
            for (let row = 0; row < map.points.count; row++) {
                const x = map.points.x(row), y = map.points.y(row);
                if (x > left && x < right && y > low && y < high) count++;
            }
            return count;
        }"""
    )
    assert 10_000 < inside < 90_000
    # The corners are whole pixels, and whole thousandths in the address.
    assert int(re.sub(r"\D", "", title)) == pytest.approx(inside, rel=0.03)
    page.reload()
    page.wait_for_selector(".map-list .card")
    assert page.locator(".map-list h2").inner_text() == title


def test_results_of_a_query_on_the_map_of_100_000_images(screen, address, large):
    page = screen
    page.goto(f"{address}/?id={QUERY}&k=12")
    page.wait_for_selector(RESULT)
    ids = ids_of(page)
    page.get_by_role("link", name="on the map").click()
    page.wait_for_selector(".map-list .card")
    assert ids_of(page, ".map-list .card") == ids
    marks = page.evaluate("() => document.querySelector('canvas').map.marks.map((one) => one.row)")
    assert marks == [large.row(one) for one in ids]
    page.get_by_role("link", name="the results alone").click()
    page.wait_for_selector(RESULT)
    assert ids_of(page) == ids


@pytest.fixture(scope="module")
def answers(large):
    """The ten best answers to each query that stands for all: their rows and scores, by the query's row."""
    rows = np.sort(np.random.default_rng(0).choice(COUNT, size=QUERIES, replace=False)).tolist()
    found = {}
    for row in rows:
        scores = exact_scores(large, large.vector(row), [large.items.table["path"].iloc[row]])
        best = np.argsort(-scores)[:10]
        found[row] = (best, scores[best])
    return found


def test_the_worst_mistakes(screen, address, large, answers):
    """Every query whose first answer is of another item, furthest off first, then by score."""
    ids = large.items.table["path"]
    wrong = []
    for row, (best, scores) in answers.items():
        missed = 3 - int(shared_levels(large, ids.iloc[row], best[:1])[0])
        if missed:
            wrong.append((-missed, -scores[0], ids.iloc[row]))
    assert len(wrong) > 24, "more than the page shows at once"
    page = screen
    page.goto(f"{address}/?view=mistakes")
    page.wait_for_selector(".mistakes:not([aria-busy]) .mistake")
    scroll_until(page, len(wrong), ".mistake")
    assert ids_of(page, ".mistake") == [one for *_, one in sorted(wrong)]
    worst = sorted(wrong)[0][2]
    shown = page.locator(f'.mistake[data-id="{worst}"] .score').inner_text()
    exact = exact_h_ap(large, worst, exact_scores(large, large.vector(large.row(worst)), [worst]))
    assert float(re.search(r"[\d.]+", shown)[0]) == pytest.approx(exact, abs=0.051)
    check_both_themes(page)


def test_a_class_and_what_it_is_taken_for(screen, address, large, answers):
    """Its size, its groups, and the other kinds among the answers to its images."""
    table = large.items.table
    inside = table["kind"] == "kind 0"
    page = screen
    page.goto(f"{address}/?view=class&path=kind 0")
    page.wait_for_selector(".bars li")
    facts = page.locator(".stats").inner_text()
    assert f"{inside.sum():,}" in facts.replace("\N{NO-BREAK SPACE}", ",")
    groups = page.locator(".class-list li").all_inner_texts()
    sizes = table.loc[inside, "group"].value_counts()
    assert {re.split(r"\n", one)[0] for one in groups} == set(sizes.index)
    kinds = np.concatenate(
        [table["kind"].to_numpy()[best] for row, (best, _) in answers.items() if inside.iloc[row]]
    )
    others = pd.Series(kinds[kinds != "kind 0"]).value_counts() / len(kinds)
    shares = {
        name.inner_text(): share.inner_text()
        for name, share in zip(
            page.locator(".bars li a").all(), page.locator(".bars li .n").all(), strict=True
        )
    }
    assert shares == {name: f"{100 * share:.1f} %" for name, share in others.items()}
    check_both_themes(page)


def test_suspects(screen, address, large):
    """Wrong labels are found among 100,000 images, and what speaks against them is near them."""
    page = screen
    page.set_default_timeout(300_000)  # every image is compared with every other, once
    page.goto(f"{address}/?view=suspects")
    page.wait_for_selector(".suspect")
    listed = page.request.get(f"{address}/api/suspects?limit=200").json()["suspects"]
    ids = large.items.table["path"]
    assert {ids.iloc[row] for row in MISLABELLED} <= {one["item"]["id"] for one in listed}
    assert [one["severity"] for one in listed] == sorted((one["severity"] for one in listed), reverse=True)
    for one in listed[:2]:
        assert page.locator(".suspect").get_attribute("data-id") == one["item"]["id"]
        scores = exact_scores(large, large.vector(large.row(one["item"]["id"])), [one["item"]["id"]])
        nearest = set(ids.iloc[np.argsort(-scores)[:100]])
        assert {other["id"] for other in one["evidence"]} <= nearest
        check_both_themes(page)
        page.keyboard.press("ArrowRight")
        page.wait_for_selector(".suspect")
