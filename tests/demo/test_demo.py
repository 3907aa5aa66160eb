"""The demo is a fit on the emoji; a cut-down set takes their place in the cache."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from processes import run_fresh_command
from shapes import make_shapes

from happier.demo import BUDGETS, IMAGE_SIZE, default_folder
from happier.runs.run_directory import RunDirectory
from happier.training.config import flatten


@pytest.mark.slow
def test_the_whole_demo_stopped_and_resumed(tmp_path):
    cache = tmp_path / "cache"
    make_shapes(cache / f"emoji-{IMAGE_SIZE}")
    # Stopped as soon as a model has begun to learn.
    process = subprocess.Popen(
        [sys.executable, "-m", "happier", "demo", "--quick"],
        cwd=tmp_path,
        env={**os.environ, "HAPPIER_CACHE": str(cache)},
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    out = tmp_path / "runs" / "demo-quick"
    while process.poll() is None and not list(out.glob("*/metrics.jsonl")):
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate()
    assert process.returncode in (2, 130), said
    assert "Traceback" not in said
    assert not (out / "report").exists()

    place = {"cwd": tmp_path, "environment": {"HAPPIER_CACHE": str(cache)}}
    done = run_fresh_command("demo", "--quick", **place)
    assert done.code == 0, done.err
    lines = done.out.splitlines()[-5:]
    assert lines[0].startswith("Training ")
    assert lines[1].startswith("The hierarchy ")
    assert lines[2] == "Look: runs/demo-quick/report/index.html"
    assert lines[3] == "Serve: happier serve runs/demo-quick/index"
    assert lines[4] == "Fine-tune: happier demo --full"
    assert "computing features" not in done.err  # they were complete
    assert "training NSM, " in done.err

    data = json.loads((out / "report" / "data.json").read_text())
    assert [model["name"] for model in data["models"]] == ["HAPPIER", "NSM", "without training"]
    assert "happier demo --quick" in data["provenance"]["commands"]
    mine, other = (flatten(RunDirectory(out / loss).read_config()) for loss in ("happier", "nsm"))
    assert mine["training.steps"] == other["training.steps"] == 100
    assert mine["transform.size"] == 64

    again = run_fresh_command("demo", "--quick", "--json", **place)
    assert again.code == 0, again.err
    assert "training" not in again.err
    assert json.loads(again.out)["page"] == "runs/demo-quick/report/index.html"


def test_each_demo_has_its_own_folder_and_the_full_one_continues_the_default_one():
    folders = {default_folder(BUDGETS[name], seed) for name in BUDGETS for seed in (0, 1)}
    assert len(folders) == 4
    assert default_folder(BUDGETS["default"], 0) == default_folder(BUDGETS["full"], 0) == Path("runs/demo")


def test_without_a_network_the_way_out_is_named(tmp_path):
    # A registry that nobody serves, asked once.
    environment = {
        "HAPPIER_CACHE": str(tmp_path / "cache"),
        "npm_config_registry": "http://127.0.0.1:9/",
        "npm_config_fetch_retries": "0",
    }
    found = run_fresh_command("demo", cwd=tmp_path, environment=environment)
    assert found.code == 2
    assert "happier fit FOLDER -o DIR" in found.err
    assert "Traceback" not in found.err
    assert not (tmp_path / "runs").exists()


def test_own_images_are_sent_to_fit(tmp_path):
    found = run_fresh_command("demo", "--data", "photos", cwd=tmp_path)
    assert found.code == 2
    assert "happier fit photos -o DIR" in found.err
