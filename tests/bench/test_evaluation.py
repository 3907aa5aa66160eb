"""`happier bench evaluation` on a gallery small enough for a test: what it reports, not how fast."""

import math

import pytest

from happier.bench.evaluation import (
    Size,
    measure_exactness,
    measure_floor,
    measure_growth,
    measure_large,
    measure_on_disk,
    measure_ranks,
)

TINY = Size("tiny", 400, (3, 20))


def test_floor_compares_evaluate_with_the_product_of_the_same_queries():
    rows = list(measure_floor(TINY, 50, status=str))
    timed = [row for row in rows if not math.isnan(row.ratio)]
    assert [row.queries for row in timed] == [50] * 9
    floor, _, one, kernel, rest, *_ = timed
    assert floor.ratio == 1.0
    assert math.isclose(one.ratio, one.milliseconds / floor.milliseconds)
    assert math.isclose(one.ratio, floor.ratio + kernel.ratio + rest.ratio)  # the parts are the whole


def test_growth_doubles_the_gallery_twice():
    rows = list(measure_growth(TINY, 50, status=str))
    assert [row.what for row in rows] == ["100 items", "200 items", "400 items"]
    assert rows[0].ratio == 1.0
    assert all("once not counted" in row.note for row in rows)


def test_large_gallery_reports_memory():
    rows = list(measure_large(TINY, 800, 50, status=str))
    assert [row.what.rsplit(", ", 1)[1] for row in rows[1:]] == ["200 items", "400 items", "800 items"]
    assert all("MiB beyond the inputs" in row.note for row in rows[1:])


def test_gallery_on_disk_gives_the_same_results():
    memory, disk = measure_on_disk(TINY, 9000, 50, status=str)
    assert memory.ratio == 1.0
    assert "results are equal" in disk.note
    assert "read from the disk" in disk.note


@pytest.mark.slow
def test_ranks_run_under_torchrun():
    one, two = measure_ranks(TINY, 50, 2, status=str)
    assert one.ratio == 1.0
    assert math.isclose(two.ratio, two.milliseconds / one.milliseconds)


def test_exactness_is_that_of_float64():
    assert measure_exactness(status=str) <= 1e-10
