"""The demo from end to end on a cut-down set: trained, stopped, gone on with, reported, used again."""

import contextlib
import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageDraw

from happier.report import write_report
from happier.runs import read_run
from happier.runs.run_directory import RunDirectory
from happier.training.config import flatten

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


def still_running(out):
    """Commands of processes that work in a folder."""
    lines = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            lines.append(file.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
    return [line for line in lines if f"run='{out}" in line]


def command(photos, out):
    return [sys.executable, "-m", "happier", "demo", "--data", str(photos), "--epochs", "4", "-o", str(out)]


def test_the_whole_demo(photos, tmp_path):
    out = tmp_path / "demo"
    # Stopped as soon as a model has begun to learn; the signal reaches the demo alone.
    process = subprocess.Popen(
        command(photos, out), stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    while process.poll() is None and not list(out.glob("*/metrics.jsonl")):
        time.sleep(0.1)
    assert process.poll() is None, process.stderr.read()
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate()
    assert process.returncode == 130, said
    assert "goes on from here" in said
    assert not (out / "report").exists()
    assert not still_running(out)

    done = subprocess.run(command(photos, out), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 7
    assert lines[0].split()[:3] == ["HAPPIER", "NSM", "HAPPIER_S"]
    assert lines[1].startswith("H-AP")
    assert lines[6] == f"Look: {out / 'report' / 'index.html'}"

    data = json.loads((out / "report" / "data.json").read_text())
    assert [model["loss"] for model in data["models"]] == ["happier", "nsm", "happier_s"]
    assert [model["name"] for model in data["models"]] == ["HAPPIER", "NSM", "HAPPIER_S"]
    assert data["title"].startswith("HAPPIER against NSM on ")
    assert data["data"]["queries"] == 24
    assert [curve["name"] for curve in data["training"]] == ["loss"]
    assert any(line.startswith("happier demo --data") for line in data["provenance"]["commands"])
    mine, *others = (
        flatten(RunDirectory(out / loss).read_config()) for loss in ("happier", "nsm", "happier_s")
    )
    assert mine["training.epochs"] == 4
    # All were trained alike but for the loss and the place.
    for other in others:
        differ = {key for key in mine if not key.startswith("loss.") and mine[key] != other.get(key)}
        assert differ == {"run"}

    stamps = {path: path.stat().st_mtime_ns for path in out.rglob("*") if path.is_file()}
    again = subprocess.run([*command(photos, out), "--json"], capture_output=True, text=True, check=False)
    assert again.returncode == 0, again.stderr
    assert json.loads(again.stdout)["page"] == str(out / "report" / "index.html")
    changed = [
        path.relative_to(out).as_posix() for path, stamp in stamps.items() if path.stat().st_mtime_ns != stamp
    ]
    assert changed in ([], ["manifest.parquet"])

    # A folder of two models, as an older version left it: the third is trained, the page is written again.
    shutil.rmtree(out / "happier_s")
    write_report([read_run(out / loss) for loss in ("happier", "nsm")], out / "report")
    weights = {
        path: path.read_bytes() for loss in ("happier", "nsm") for path in (out / loss).glob("model.*")
    }
    logs = {loss: (out / "logs" / f"{loss}.log").stat().st_mtime_ns for loss in ("happier", "nsm")}
    third = subprocess.run(command(photos, out), capture_output=True, text=True, check=False)
    assert third.returncode == 0, third.stderr
    assert third.stdout.splitlines()[0].split()[:3] == ["HAPPIER", "NSM", "HAPPIER_S"]
    assert len(weights) >= 2
    assert all(path.read_bytes() == content for path, content in weights.items())
    assert logs == {loss: (out / "logs" / f"{loss}.log").stat().st_mtime_ns for loss in logs}
    page = json.loads((out / "report" / "data.json").read_text())
    assert [model["loss"] for model in page["models"]] == ["happier", "nsm", "happier_s"]
