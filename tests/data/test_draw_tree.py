"""`happier data tree`: in the terminal and as a page."""

import pandas as pd
import pytest
from typer.testing import CliRunner

from happier.cli import app
from happier.data import Manifest
from happier.data.class_tree import ClassTree
from happier.errors import OptionError, SearchError


@pytest.fixture
def manifest(tmp_path):
    rows = [("animals", "birds", "owl")] * 3 + [("animals", "birds", "emu")] * 2 + [("animals", "fish", "")]
    rows += [("<b>things</b>", "toys", f"toy {number}") for number in range(25)]
    table = pd.DataFrame(rows, columns=["realm", "kind", "item"]).assign(split="train")
    table["path"] = [f"{at}.png" for at in range(len(table))]
    return Manifest(table, levels=["realm", "kind", "item"], root=tmp_path, name="small").write(
        tmp_path / "m.parquet"
    )


def run(*arguments):
    return CliRunner().invoke(app, ["data", "tree", *map(str, arguments)])


def test_terminal(manifest):
    output = run(manifest).output
    assert "realm > kind > item  31 images, 2 below, 28 finest" in output
    assert "animals  6 images, 2 below, 3 finest" in output
    assert "owl  3 images" in output
    assert "fish  1 image\n" in output
    assert "and 5 more" in output
    assert "toy 24" in run(manifest, "--most", "0").output
    shallow = run(manifest, "--depth", "1").output
    assert "animals" in shallow
    assert "birds" not in shallow
    part = run(manifest, "--within", "animals/birds").output
    assert part.startswith("birds  5 images, 2 below\n")
    assert "toys" not in part


def test_an_unknown_branch(manifest):
    done = run(manifest, "--within", "animals/bird")
    assert isinstance(done.exception, SearchError)
    assert str(done.exception) == "the taxonomy has no class 'animals/bird'; 'animals' has birds, fish"


def test_the_input_is_not_overwritten(manifest):
    before = manifest.read_bytes()
    done = run(manifest, "--html", manifest)
    assert isinstance(done.exception, OptionError)
    assert "is the input" in str(done.exception)
    assert done.output == "", "nothing is drawn by a command that refuses"
    assert manifest.read_bytes() == before


def test_page(manifest, tmp_path):
    done = run(manifest, "--html", tmp_path / "tree.html")
    assert f"wrote {tmp_path / 'tree.html'}" in done.output
    page = (tmp_path / "tree.html").read_text()
    assert "Taxonomy of small" in page
    assert "&lt;b&gt;things&lt;/b&gt;" in page
    assert "<b>things" not in page
    assert "http" not in page.replace("http-equiv", ""), "nothing comes from the network"
    assert "have only one class below them" in page


def test_counts_are_those_of_a_loop(manifest):
    table = Manifest.read(manifest)
    tree = ClassTree(table)
    paths = table.class_paths()
    for node in tree:
        inside = [
            at for at, path in enumerate(paths) if path == node.path or path.startswith(f"{node.path}/")
        ]
        assert node.rows.tolist() == inside
    assert tree.root.leaves() == len(set(paths))
