"""The benchmark of heads on kept features measures what it says."""

import json

from typer.testing import CliRunner

from happier.cli import app


def test_an_epoch_of_each_head_is_timed():
    done = CliRunner().invoke(
        app,
        ["bench", "head", "--features", "160", "--batch-size", "32", "--json"],
        catch_exceptions=False,
    )
    rows = json.loads(done.stdout)
    assert [(row["head"], row["precision"]) for row in rows] == [
        (head, precision) for head in ("linear", "mlp") for precision in ("fp32", "bf16")
    ]
    for row in rows:
        assert row["steps"] == 160 // 32
        assert 0 < row["step_seconds"] < row["epoch_seconds"]
