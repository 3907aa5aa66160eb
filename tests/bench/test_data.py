"""The data bench runs and compares the ways it says."""

import json

import pytest
from typer.testing import CliRunner

from happier.bench import data as bench
from happier.bench.photographs import WEB_SIZE
from happier.cli import app


def test_measurements(monkeypatch):
    monkeypatch.setattr(bench, "write_photographs", photographs_of_ten(bench.write_photographs))
    found = bench.measure_images(images=2, rounds=1)
    assert [entry.way for entry in found] == [
        *[bench.PIL_ONLY, bench.PIL_TENSOR, bench.OURS] * 2,
        bench.FULL,
        bench.SCALED,
    ]
    assert all(entry.rate > 0 for entry in found)
    assert [entry.ratio for entry in found if entry.way in (bench.PIL_ONLY, bench.FULL)] == [1.0] * 3


def photographs_of_ten(make):
    """The same files, a tenth as wide and high: the test is about the comparison, not the speed."""
    return lambda files, size=WEB_SIZE: make(files, (size[0] // 10, size[1] // 10))


def test_manifest():
    seconds = bench.measure_manifest(500)
    assert set(seconds) == {"parquet", "csv"}


@pytest.mark.slow
def test_command():
    result = CliRunner().invoke(app, ["bench", "data", "--rows", "500", "--json"])
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    assert len(told["images"]) == 8
    assert told["manifest"]["rows"] == 500
