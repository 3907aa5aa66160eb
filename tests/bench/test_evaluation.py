"""`happier bench evaluation` on a gallery small enough for a test: what it reports, not how fast."""

import math

from happier.bench.evaluation import Size, measure_exactness, measure_floor, measure_growth

TINY = Size("tiny", 400, (3, 20))


def test_floor_compares_evaluate_with_the_product_of_the_same_queries():
    rows = list(measure_floor(TINY, 50, tell=str))
    timed = [row for row in rows if not math.isnan(row.ratio)]
    assert [row.queries for row in timed] == [50] * 4
    floor, _, one, _ = timed
    assert floor.ratio == 1.0
    assert math.isclose(one.ratio, one.milliseconds / floor.milliseconds)


def test_growth_doubles_the_gallery_twice():
    rows = list(measure_growth(TINY, 50, tell=str))
    assert [row.what for row in rows] == ["100 items", "200 items", "400 items"]
    assert rows[0].ratio == 1.0
    assert all("once not counted" in row.note for row in rows)


def test_exactness_is_that_of_float64():
    assert measure_exactness(tell=str) <= 1e-10
