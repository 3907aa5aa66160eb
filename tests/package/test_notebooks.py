"""The notebooks of the documentation run, and those in the repository are what their sources give."""

import importlib.util
import re
from pathlib import Path

import jupytext
import nbformat
import pytest

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "docs" / "notebooks").glob("*.py"))
NUMBER = re.compile(r"[-+]?\d[\d,]*\.?\d*")


@pytest.fixture(scope="module")
def notebooks():
    spec = importlib.util.spec_from_file_location("notebooks", ROOT / "docs" / "hooks" / "notebooks.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def stored(source):
    return nbformat.read(source.with_suffix(".ipynb"), as_version=4)


def printed(notebook):
    """What each cell printed, one string for each cell."""
    return [
        "".join(output.get("text", "") for output in cell.outputs)
        for cell in notebook.cells
        if cell.cell_type == "code"
    ]


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem)
def test_the_stored_notebook_is_of_this_source(source):
    cells = [[cell.cell_type, cell.source] for cell in jupytext.read(source).cells]
    assert [[cell.cell_type, cell.source] for cell in stored(source).cells] == cells, "run `make notebooks`"
    assert source.with_suffix(".ipynb").stat().st_size < 200 * 1024


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of Jupyter's own machinery: the cells run in another process
@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem)
def test_it_runs_and_prints_what_it_shows(source, notebooks, tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path / "made"))
    (tmp_path / "made").mkdir()
    (tmp_path / "empty").mkdir()
    ran = notebooks.run(source, tmp_path / "empty")
    assert list((tmp_path / "empty").iterdir()) == [], "it left something where it was started"
    for now, then in zip(printed(ran), printed(stored(source)), strict=True):
        assert NUMBER.sub("", now) == NUMBER.sub("", then)
        # Another processor rounds differently, which a training magnifies.
        values = [[float(text.replace(",", "")) for text in NUMBER.findall(one)] for one in (now, then)]
        assert values[0] == pytest.approx(values[1], rel=0.2, abs=2)


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem)
def test_its_page_shows_every_cell_and_output(source, notebooks):
    page, pictures = notebooks.to_markdown(stored(source), source.stem)
    for cell in stored(source).cells:
        assert cell.source in page
        for output in cell.get("outputs", []):
            assert output.get("text", "").rstrip() in page
    assert all(f"]({name})" in page for name in pictures)
