"""Summaries, intervals, comparisons, files."""

import numpy as np
import pyarrow.parquet as pq
import pytest
import world
from scipy import stats

import happier
from happier.errors import InputError, OptionError


@pytest.fixture(scope="module")
def results():
    generator = np.random.default_rng(0)
    labels = world.random_labels(generator, 150, 2)
    noise = generator.standard_normal((150, 8))
    centres = generator.standard_normal((9, 8))[labels[:, 0] * 3 + labels[:, 1]]
    return tuple(
        happier.evaluate(noise + strength * centres, labels, level_names=["kind", "item"])
        for strength in (0.5, 1.5)
    )


def test_bootstrap_intervals_hold_the_mean_and_shrink_with_it(results):
    _, good = results
    intervals = good.bootstrap(n=500, seed=1)
    assert set(intervals) == set(good.per_query)
    mean, low, high = intervals["H-AP"]
    assert mean == good.summary["H-AP"]
    assert low < mean < high
    # The percentile interval of a mean is close to the normal one.
    values = good.per_query["H-AP"]
    width = 2 * 1.96 * values.std() / np.sqrt(len(values))
    assert high - low == pytest.approx(width, rel=0.15)
    narrow = good.bootstrap(n=500, seed=1, confidence=0.5)["H-AP"]
    assert narrow.high - narrow.low < 0.6 * (high - low)


def test_bootstrap_agrees_with_scipy(results):
    _, good = results
    values = good.per_query["H-AP"]
    _, low, high = good.bootstrap(n=4000, seed=0)["H-AP"]
    expected = stats.bootstrap(
        (values,), np.mean, n_resamples=4000, method="percentile", rng=np.random.default_rng(1)
    ).confidence_interval
    width = expected.high - expected.low
    assert low == pytest.approx(expected.low, abs=0.03 * width)
    assert high == pytest.approx(expected.high, abs=0.03 * width)


def test_bootstrap_is_a_function_of_its_seed(results):
    _, good = results
    assert good.bootstrap(n=50, seed=3) == good.bootstrap(n=50, seed=3)
    assert good.bootstrap(n=50, seed=3) != good.bootstrap(n=50, seed=4)


def test_compare_finds_the_difference_and_its_sign(results):
    weak, good = results
    difference = happier.compare(weak, good, n=300)["H-AP"]
    assert difference.mean == pytest.approx(good.summary["H-AP"] - weak.summary["H-AP"], abs=1e-12)
    assert 0 < difference.low < difference.mean < difference.high
    assert difference.p_value == pytest.approx(1 / 301)
    back = happier.compare(good, weak, n=300)["H-AP"]
    assert back.mean == pytest.approx(-difference.mean)


def test_compare_with_itself_sees_nothing(results):
    weak, _ = results
    for name, difference in happier.compare(weak, weak, n=50).items():
        assert np.isnan(difference.mean) or (difference.mean == 0 and difference.p_value == 1.0), name


def test_p_values_are_uniform_where_there_is_no_difference():
    generator = np.random.default_rng(0)
    labels = world.random_labels(generator, 60, 1)
    p_values = []
    for _ in range(40):
        a, b = (happier.evaluate(generator.standard_normal((60, 3)), labels, ks=(1,)) for _ in range(2))
        p_values.append(happier.compare(a, b, n=99)["H-AP"].p_value)
    assert 0.3 < np.mean(p_values) < 0.7


def test_compare_needs_the_same_queries(results):
    weak, _ = results
    other = happier.evaluate(np.eye(3), [[0], [0], [1]])
    with pytest.raises(InputError, match="150 queries and 3"):
        happier.compare(weak, other)


@pytest.mark.parametrize("options", [{"n": 0}, {"confidence": 0.0}, {"confidence": 1.0}])
def test_bad_bootstrap_options_are_refused(results, options):
    with pytest.raises(OptionError):
        results[0].bootstrap(**options)


def test_parquet_holds_one_row_per_query(results, tmp_path):
    weak, _ = results
    path = tmp_path / "deep" / "per_query.parquet"
    weak.to_parquet(path, extra={"id": [f"image {i}" for i in range(150)]})
    table = pq.read_table(path)
    assert table.column_names[0] == "id"
    assert table.num_rows == 150
    np.testing.assert_array_equal(table["H-AP"].to_numpy(), weak.per_query["H-AP"])
    assert list(path.parent.iterdir()) == [path]


def test_a_failed_write_leaves_nothing_behind(results, tmp_path):
    with pytest.raises(Exception, match=r"length|Column"):
        results[0].to_parquet(tmp_path / "x.parquet", extra={"id": ["too short"]})
    assert list(tmp_path.iterdir()) == []


def test_the_table_shows_every_level(results):
    text = repr(results[1])
    for word in ("H-AP", "kind", "item", "severity@10", "150 queries"):
        assert word in text
    assert f"{100 * results[1].summary['AP/kind']:.2f}" in text


def test_the_table_tells_of_ties_and_missing_positives():
    text = repr(happier.evaluate(np.ones((4, 2)), [[0], [0], [1], [2]], ks=(1,)))
    assert "2 queries without positives" in text
    assert "50.0% of queries have ties that matter" in " ".join(text.split())


def test_weighted_ap_needs_a_weight_for_each_level(results):
    with pytest.raises(OptionError, match="each of 2 levels"):
        results[0].weighted_ap([1.0])
