"""The benchmark of the embedding pass measures what it says."""

import json

import pytest
from typer.testing import CliRunner

from happier.cli import app
from happier.errors import OptionError


@pytest.mark.slow
def test_the_pass_is_timed(tmp_path, monkeypatch):
    monkeypatch.setenv("HAPPIER_CACHE", str(tmp_path))
    done = CliRunner().invoke(
        app, ["bench", "embed", "--network", "lite0", "--size", "64", "--json"], catch_exceptions=False
    )
    (row,) = json.loads(done.stdout)
    assert set(row["rates"]) == {"eager", "bf16", "onnxruntime"}
    assert all(rate > 0 for rate in row["rates"].values())
    assert row["cosine"]["onnxruntime"] >= 0.9999
    assert row["decoding"] > 0
    with pytest.raises(OptionError, match="lite0, resnet50"):
        CliRunner().invoke(app, ["bench", "embed", "--network", "x"], catch_exceptions=False)
