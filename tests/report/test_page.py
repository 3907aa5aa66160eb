"""The page in a real browser: nothing fails, nothing is fetched, sorting works, phones and paper are fine."""

import pytest
from accessibility import serious_findings
from layout import layout_faults

from happier.report import ReportOptions, write_report

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def page_file(runs, tmp_path_factory):
    folder = tmp_path_factory.mktemp("page") / "report with spaces"
    write_report(
        runs,
        folder,
        options=ReportOptions(resamples=50, commands=("happier report <b>x</b>",), figures=False),
    )
    return folder / "index.html"


@pytest.fixture(scope="module")
def pages_of_many(four_runs, tmp_path_factory):
    """The page of three models, and of four."""
    root = tmp_path_factory.mktemp("many")
    for models in (3, 4):
        write_report(
            four_runs[:models], root / str(models), options=ReportOptions(resamples=50, figures=models == 3)
        )
    return {models: root / str(models) / "index.html" for models in (3, 4)}


@pytest.fixture
def visit(browser, page_file):
    """Open the page; at the end no error, no failed image and no request but for files."""
    contexts, faults = [], []

    def opened(file=page_file, **options):
        context = browser.new_context(**options)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: faults.append(message.text))
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("requestfailed", lambda request: faults.append(f"failed {request.url}"))
        page.on("request", lambda request: _only_files(request.url, faults))
        page.goto(file.as_uri())
        return page

    yield opened
    for context in contexts:
        context.close()
    assert not faults


def _only_files(address, faults):
    if not address.startswith(("file:", "data:")):
        faults.append(f"fetched {address}")


def test_all_images_load_and_names_are_only_text(visit):
    page = visit()
    page.evaluate("document.querySelectorAll('img').forEach((image) => { image.loading = 'eager'; })")
    page.wait_for_function("[...document.images].every((image) => image.complete)")
    assert page.evaluate("[...document.images].filter((image) => image.naturalWidth === 0).length") == 0
    assert page.evaluate("document.images.length") > 150
    assert page.locator("text=<script>alert(1)</script>").count() > 0
    assert page.locator("pre", has_text="<b>x</b>").count() == 1
    assert page.title() == "tree against flat on world"


def test_sorting_and_finding_classes(visit):
    page = visit()
    rows = page.locator("#class-table tbody tr")
    assert rows.count() == 24

    def column(number):
        return page.eval_on_selector_all(
            "#class-table tbody tr", f"rows => rows.map(row => parseFloat(row.cells[{number}].dataset.v))"
        )

    head = page.locator("#class-table thead th").nth(2)
    head.locator("button").click()
    assert column(2) == sorted(column(2), reverse=True)
    assert head.get_attribute("aria-sort") == "descending"
    head.locator("button").click()
    assert column(2) == sorted(column(2))
    page.fill("#filter", "item 3")
    assert page.locator("#class-table tbody tr:visible").count() == 6
    assert page.locator("#shown").inner_text() == "6 of 24"


def test_the_map_answers_the_pointer_and_the_legend(visit):
    page = visit()
    canvas = page.locator(".maps canvas").first
    canvas.scroll_into_view_if_needed()
    before = canvas.screenshot()
    page.locator("[data-coarse]").first.click()
    assert canvas.screenshot() != before
    page.locator("[data-coarse]").first.click()
    page.locator("[data-draw=pictures]").click()
    assert canvas.screenshot() != before
    place = page.evaluate(
        "(() => { const data = JSON.parse(document.getElementById('map-data').textContent);"
        " const box = document.querySelector('.maps canvas').getBoundingClientRect();"
        " const [x, y] = data.at[0][0];"
        " return [box.left + 14 + x * (box.width - 28), box.top + 14 + (1 - y) * (box.height - 28)]; })()"
    )
    page.mouse.move(*place)
    assert page.locator("#tip").is_visible()
    assert page.locator("#tip b").inner_text()


def test_plots_can_be_read(visit):
    page = visit()
    plot = page.locator("#curve .canvas")
    plot.scroll_into_view_if_needed()
    plot.hover()
    readout = page.locator("#curve .readout")
    assert readout.is_visible()
    assert "recall" in readout.inner_text()
    assert "tree" in readout.inner_text()


def test_names_have_a_plot_for_each_level_and_a_row_for_each_method(visit):
    page = visit()
    assert page.locator("#naming .plot").count() == 3
    assert page.locator("#naming tbody").count() == 2
    assert page.locator("#naming tbody").first.locator("tr.own").inner_text().startswith("down the tree")
    page.locator("#naming .canvas").first.hover()
    assert "the surest" in page.locator("#naming .readout").first.inner_text()


@pytest.mark.parametrize("width", [390, 768, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_sideways_scrolling(visit, width, scheme):
    page = visit(viewport={"width": width, "height": 844}, color_scheme=scheme)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
    red = int(colour.split("(")[1].split(",")[0])
    assert (red < 60) == (scheme == "dark")
    page.locator("#theme").click()
    changed = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert changed != colour


def test_paper_is_white_and_needs_no_bar(visit):
    page = visit(color_scheme="dark")
    page.emulate_media(media="print", color_scheme="dark")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert not page.locator("nav.bar").is_visible()
    assert page.pdf(format="A4", print_background=True).startswith(b"%PDF")


@pytest.mark.parametrize("models", [3, 4])
def test_every_model_has_its_column_its_map_and_its_row(visit, pages_of_many, models):
    page = visit(pages_of_many[models])
    names = ["tree", "flat", "mixed", "noisy"][:models]
    assert page.locator(".metrics thead th[class*=model-]").all_inner_texts() == names
    assert page.locator(".metrics tbody tr:not(.group)").first.locator("td").count() == models + 2
    assert page.locator(".maps canvas").count() == models
    assert page.locator("#severity .plot").count() == models
    assert page.locator("#curve path.line").count() == models
    assert page.locator(".score .number").count() == 3
    assert page.locator(".beside p").count() == models - 2
    for example in page.locator(".example").all():
        assert [text.split()[0] for text in example.locator(".list > p").all_inner_texts()] == names
        assert example.locator(".tile").count() == 10 * models
    # Every line and name has a colour of its own.
    for selector, style in (("#curve path.line", "stroke"), (".maps figcaption", "color")):
        colours = page.eval_on_selector_all(selector, f"all => all.map(one => getComputedStyle(one).{style})")
        assert len(set(colours)) == models


def test_classes_of_many_models_show_one_figure_at_a_time(visit, pages_of_many):
    page = visit(pages_of_many[3])
    heads = page.locator("#class-table thead th:visible")
    assert heads.count() == 2 + 3
    assert heads.all_inner_texts()[2].split() == ["H-AP", "tree"]
    page.locator("[data-show=confused]").click()
    assert [text.split()[0] for text in heads.all_inner_texts()[2:]] == ["Confused"] * 3
    assert page.locator("[data-show=confused]").get_attribute("aria-pressed") == "true"
    heads.nth(3).locator("button").click()
    distances = page.eval_on_selector_all(
        "#class-table tbody tr", "rows => rows.map(row => +row.cells[2 + 3 * 3 + 1].dataset.v)"
    )
    assert distances == sorted(distances, reverse=True)


@pytest.mark.parametrize("width", [390, 768, 1280])
@pytest.mark.parametrize("models", [3, 4])
def test_many_models_fit_the_screen(visit, pages_of_many, models, width):
    page = visit(pages_of_many[models], viewport={"width": width, "height": 844})
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    for kind in ("confused", "severity", "ap", "h-ap"):
        page.locator(f"[data-show={kind}]").click()
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    # Read at the middle of a plot, where the readout has the least room.
    plot = page.locator("#curve .canvas")
    plot.scroll_into_view_if_needed()
    plot.hover()
    assert page.locator("#curve .readout").is_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    if models == 3:
        # Three models' figures and their difference need no pushing sideways.
        box = "document.querySelector('#figures .scroll')"
        assert page.evaluate(f"{box}.scrollWidth <= {box}.clientWidth")


@pytest.mark.parametrize("models", [2, 3, 4])
def test_no_part_depends_on_the_font(visit, page_file, pages_of_many, models):
    page = visit(page_file if models == 2 else pages_of_many[models])
    assert layout_faults(page) == {}


@pytest.mark.parametrize("models", [2, 4])
def test_the_page_has_no_serious_accessibility_fault(visit, page_file, pages_of_many, models):
    page = visit(page_file if models == 2 else pages_of_many[models])
    assert serious_findings(page) == {}
