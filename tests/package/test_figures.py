"""The documentation's pictures come from a command, and those in the repository are its work."""

import importlib
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from happier.losses.surrogate import SigmoidSurrogate, step_surrogate

ROOT = Path(__file__).parents[2]
IMAGES = ROOT / "docs" / "images"
CHROMIUM = any(map(shutil.which, ("chromium", "chromium-browser", "google-chrome")))


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """All pictures, made once; without Chromium those that need none."""
    folder = tmp_path_factory.mktemp("pictures")
    for only in [()] if CHROMIUM else [("--only", "ranking"), ("--only", "surrogates")]:
        command = [sys.executable, ROOT / "docs" / "figures", *only, "--epochs", "1", "-o", folder]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-3000:]
    return folder


@pytest.mark.slow
def test_the_worked_picture_is_up_to_date(made):
    assert (made / "h-ap.svg").read_text() == (IMAGES / "h-ap.svg").read_text()


def test_the_picture_of_the_surrogates_shows_their_formulas(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "docs" / "figures")
    surrogates = importlib.import_module("surrogates")
    t = np.array([-0.08, -0.005, 0.005, 0.03, 0.08])
    sigmoid = 1 / (1 + np.exp(-t / 0.01))
    lower, higher = surrogates.counted(step_surrogate("paper"), t)
    expected = [*sigmoid[:2], *(sigmoid[2:4] + 0.5), 100 * 0.03 + 1 / (1 + np.exp(-5)) + 0.5]
    np.testing.assert_allclose(lower, expected, atol=1e-9)
    np.testing.assert_allclose(higher, [-0.8, -0.05, 0.625, 1, 1], atol=1e-9)
    for counted in surrogates.counted(SigmoidSurrogate(0.01), t):
        np.testing.assert_allclose(counted, sigmoid, atol=1e-9)


@pytest.mark.slow
def test_the_picture_of_the_surrogates_is_drawn(made):
    drawn, kept = ((folder / "surrogates.svg").read_text() for folder in (made, IMAGES))
    assert drawn.count("<path") == kept.count("<path") > 10


@pytest.mark.slow
@pytest.mark.skipif(not CHROMIUM, reason="no Chromium")
def test_screenshots_are_taken(made):
    taken = sorted(made.glob("*.webp"))
    assert [path.name for path in taken] == sorted(path.name for path in IMAGES.glob("*.webp"))
    for path in taken:
        with Image.open(path) as image:
            assert 1000 < image.width <= 1180
            assert 500 < image.height < 1000, f"{path.name} does not end with what it shows"
            assert len(image.convert("RGB").getcolors(1 << 24)) > 1000, f"{path.name} is nearly empty"


def test_pictures_are_small_and_shown():
    pages = "".join(page.read_text() for page in (ROOT / "docs").rglob("*.md"))
    for path in IMAGES.iterdir():
        assert path.stat().st_size < 200 * 1024, f"{path.name} is large"
        assert f"images/{path.name}" in pages, f"no page shows {path.name}"
