"""The benchmark of a whole fit measures the bare pass beside it."""

import pytest

from happier.bench.fit import measure_fit

SMALL = ("model=tiny", "transform.size=32", "training.steps=4", "training.batch_size=32")


@pytest.mark.slow
def test_the_pass_and_the_fit_are_measured():
    told: list[str] = []
    bare, whole = measure_fit(images=400, overrides=SMALL, status=told.append)
    assert (bare.what, whole.what) == ("bare pass", "fit")
    assert 0 < bare.seconds < whole.seconds
    assert min(bare.memory, whole.memory) > 10
    assert told[1:] == ["bare pass", "fit"]
