"""The demo from end to end on a cut-down set: trained, stopped, gone on with, reported, used again."""

import json
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from PIL import Image, ImageDraw

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """Two kinds of six things each, four views of everything."""
    root = tmp_path_factory.mktemp("own") / "my photos"
    rng = np.random.default_rng(0)
    for kind in ("round", "square"):
        for thing in range(6):
            folder = root / kind / f"{kind} {thing}"
            folder.mkdir(parents=True)
            colour = tuple(int(value) for value in rng.integers(0, 200, 3))
            for view in range(4):
                image = Image.new("RGB", (48, 48), "white")
                shape = ImageDraw.Draw(image)
                box = tuple(int(value) for value in (8 + view, 6, 36, 34 + view))
                (shape.ellipse if kind == "round" else shape.rectangle)(box, fill=colour)
                image.save(folder / f"{view}.png")
    return root


def command(photos, out):
    return [sys.executable, "-m", "happier", "demo", "--data", str(photos), "--epochs", "4", "-o", str(out)]


def test_the_whole_demo(photos, tmp_path):
    out = tmp_path / "demo"
    # Stopped as soon as a model has begun to learn: Ctrl-C reaches the demo alone.
    process = subprocess.Popen(
        command(photos, out), stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    while process.poll() is None and not list(out.glob("*/metrics.jsonl")):
        time.sleep(0.1)
    assert process.poll() is None, process.stderr.read()
    process.send_signal(signal.SIGINT)
    _, said = process.communicate()
    assert process.returncode == 130, said
    assert "goes on from here" in said
    assert not (out / "report").exists()

    done = subprocess.run(command(photos, out), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 7
    assert "HAPPIER" in lines[0]
    assert "NSM" in lines[0]
    assert lines[1].startswith("H-AP")
    assert lines[6] == f"Look: {out / 'report' / 'index.html'}"

    data = json.loads((out / "report" / "data.json").read_text())
    assert [model["loss"] for model in data["models"]] == ["happier", "nsm"]
    assert data["data"]["queries"] == 24
    assert [curve["name"] for curve in data["training"]] == ["loss"]
    assert any(line.startswith("happier demo --data") for line in data["provenance"]["commands"])
    configs = data["provenance"]["configs"]
    assert all("epochs: 4" in text for text in configs)
    # Both were trained alike but for the loss and the place.
    differ = {
        line.strip()
        for one, two in zip(configs[0].splitlines(), configs[1].splitlines(), strict=False)
        for line in (one, two)
        if one != two
    }
    assert not any(word in line for line in differ for word in ("lr", "seed", "batch_size", "epochs"))

    stamps = {path: path.stat().st_mtime_ns for path in out.rglob("*") if path.is_file()}
    again = subprocess.run([*command(photos, out), "--json"], capture_output=True, text=True, check=False)
    assert again.returncode == 0, again.stderr
    assert json.loads(again.stdout)["page"] == str(out / "report" / "index.html")
    changed = [
        path.relative_to(out).as_posix() for path, stamp in stamps.items() if path.stat().st_mtime_ns != stamp
    ]
    assert changed in ([], ["manifest.parquet"])
