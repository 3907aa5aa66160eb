"""``happier bench serve`` on a small scale: real clients against a real server process."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from happier.cli import app

pytestmark = pytest.mark.slow


def test_a_short_load_has_no_errors(place):
    arguments = [
        "bench",
        "serve",
        str(place / "a.index"),
        "--clients",
        "8",
        "--seconds",
        "3",
        "--max-requests",
        "200",
    ]
    printed = CliRunner().invoke(app, [*arguments, "--json"], catch_exceptions=False).stdout
    (load,) = json.loads(printed)
    assert load["errors"] == 0
    assert load["requests"] > 8
    assert set(load["by_kind"]) == {"search", "thumbnail", "items", "upload"}
    assert load["p99"] >= load["p50"] > 0
