"""The page of a taxonomy in a real browser: any font, any window, accessible."""

import pytest
from accessibility import serious_findings
from layout import layout_faults

from happier.data import Manifest
from happier.report.taxonomy_page import write_taxonomy_page

pytestmark = pytest.mark.slow


@pytest.fixture
def page(browser, world, tmp_path):
    manifest = Manifest.read(world / "manifest.parquet")
    context = browser.new_context()
    page = context.new_page()
    page.goto(write_taxonomy_page(manifest, tmp_path / "tree.html").as_uri())
    yield page
    context.close()


def test_the_tree_keeps_its_shape_with_any_font(page):
    assert layout_faults(page) == {}


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_tree_has_no_serious_accessibility_fault(page, theme):
    page.emulate_media(color_scheme=theme)
    assert serious_findings(page) == {}
