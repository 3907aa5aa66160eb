"""Summaries, intervals, comparisons, files."""

import re

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
    narrow = good.bootstrap(n=500, seed=1, confidence=0.5)["H-AP"]
    assert narrow.high - narrow.low < 0.6 * (high - low)


def test_what_is_resampled_are_the_finest_classes(results):
    _, good = results
    assert len(np.unique(good.classes)) == 9
    assert good.resampled == "9 finest classes"
    values = good.per_query["H-AP"]
    _, low, high = good.bootstrap()["H-AP"]
    of_queries = 2 * stats.t.ppf(0.975, 149) * values.std(ddof=1) / np.sqrt(150)
    assert high - low > 1.5 * of_queries
    ranking = happier.evaluate_ranking([[1, 0], [0, 1]] * 3, [[1, 1]] * 6)
    assert ranking.resampled == "6 queries (their classes are not known)"
    known = happier.evaluate_ranking(
        [[1, 0], [0, 1]] * 3, [[1, 1]] * 6, classes=["a", "a", "b", "b", "c", "c"]
    )
    assert known.resampled == "3 finest classes"
    # Every class has one query of each kind: the classes do not differ, the queries do.
    assert known.bootstrap()["H-AP"].low == known.bootstrap()["H-AP"].high
    assert ranking.bootstrap()["H-AP"].low < ranking.bootstrap()["H-AP"].high
    with pytest.raises(InputError, match="6 queries, got 1"):
        happier.evaluate_ranking([[1, 0], [0, 1]] * 3, [[1, 1]] * 6, classes=["a"])


def test_a_partly_known_label_is_a_class_of_its_own():
    labels = [[0, 0], [0, 0], [0, -1], [0, -1], [1, 1], [-1, -1], [-1, -1]]
    result = happier.evaluate(np.random.default_rng(0).standard_normal((7, 3)), labels, ks=(1,))
    _, numbers = np.unique(result.classes, return_counts=True)
    assert sorted(numbers) == [1, 1, 1, 2, 2]  # labels that are not known at all say nothing in common


def test_an_interval_ends_where_its_metric_does():
    labels = np.repeat(np.arange(6), 2)[:, None]
    vectors = np.eye(6)[labels[:, 0]]
    vectors[0] = vectors[3]  # one class of six goes wrong
    result = happier.evaluate(vectors, labels, ks=(1,))
    intervals = result.bootstrap()
    assert result.summary["R@1/1"] < 1 == intervals["R@1/1"].high
    assert intervals["severity@1"].low == 0
    assert intervals["R@1/1"].low < result.summary["R@1/1"]


def test_bootstrap_is_a_function_of_its_seed(results):
    _, good = results
    assert good.bootstrap(n=50, seed=3) == good.bootstrap(n=50, seed=3)
    assert good.bootstrap(n=50, seed=3) != good.bootstrap(n=50, seed=4)


def test_compare_finds_the_difference_and_its_sign(results):
    weak, good = results
    difference = happier.compare(weak, good, n=300)["H-AP"]
    assert difference.mean == pytest.approx(good.summary["H-AP"] - weak.summary["H-AP"], abs=1e-12)
    assert 0 < difference.low < difference.mean < difference.high
    assert difference.p_value < 0.05
    back = happier.compare(good, weak, n=300)["H-AP"]
    assert back.mean == pytest.approx(-difference.mean)


def test_compare_with_itself_sees_nothing(results):
    weak, _ = results
    for name, difference in happier.compare(weak, weak, n=50).items():
        assert np.isnan(difference.mean) or (difference.mean == 0 and difference.p_value == 1.0), name


def test_compare_over_seeds_takes_seeds_and_classes_as_random():
    generator = np.random.default_rng(0)
    labels = np.repeat(np.arange(20), 4)
    centres = generator.standard_normal((20, 6))[labels]

    def seeds(strength):
        noise = (generator.standard_normal((80, 6)) for _ in range(3))
        return [happier.evaluate(strength * centres + own, labels, ks=(1,)) for own in noise]

    weak, good = seeds(0.6), seeds(1.2)
    found = happier.compare(weak, good)
    gaps = [b.summary["H-AP"] - a.summary["H-AP"] for a, b in zip(weak, good, strict=True)]
    assert found["H-AP"].mean == pytest.approx(np.mean(gaps))
    over_seeds = stats.ttest_1samp(gaps, 0).confidence_interval()
    assert found["H-AP"].low <= over_seeds.low + 1e-12
    assert found["H-AP"].high >= over_seeds.high - 1e-12
    assert found.random == "3 seeds and 20 finest classes"
    with pytest.raises(InputError, match="every seed, got 3 and 2"):
        happier.compare(weak, good[:2])


def test_a_printed_comparison_says_which_is_better(results):
    weak, good = results
    text = repr(happier.compare(weak, good, n=300))
    assert "second minus first" in text
    assert "9 finest classes" in text
    rows = {line.split("│")[1].strip(): line for line in text.splitlines() if line.startswith("│")}
    assert "second" in rows["H-AP"]
    assert "+" in rows["H-AP"]
    assert "second" in rows["severity@10"]  # smaller, and better for it
    assert "first" in {
        line.split()[-2] for line in repr(happier.compare(good, weak, n=300)).splitlines() if "│" in line
    }


def test_compare_needs_the_same_queries(results):
    weak, _ = results
    other = happier.evaluate(np.eye(3), [[0], [0], [1]])
    with pytest.raises(InputError, match="150 queries and 3"):
        happier.compare(weak, other)
    moved = happier.evaluate(np.random.default_rng(0).standard_normal((150, 3)), np.arange(150) // 2, ks=(1,))
    with pytest.raises(InputError, match="other classes"):
        happier.compare(weak, moved)


@pytest.mark.parametrize("options", [{"n": 0}, {"confidence": 0.0}, {"confidence": 1.0}, {"seed": -1}])
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


def test_names_of_levels_are_no_markup():
    levels = ["[/kind]", "[bold]item"]
    text = repr(happier.evaluate(np.ones((4, 2)), [[0, 0], [0, 0], [0, 1], [1, 2]], level_names=levels))
    assert all(name in text for name in levels)


def test_a_printed_result_is_plain_text_even_where_colours_are_forced(monkeypatch, capsys):
    """As in a notebook's kernel."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    result = happier.evaluate(np.eye(4)[[0, 0, 1, 1]], [[0], [0], [1], [1]])
    for shown in (result, happier.compare(result, result)):
        assert "\x1b" not in repr(shown)
        assert not re.search(r"\bP@1\b", repr(shown))  # R@1 again, and H-P@1, which is always 1
    assert capsys.readouterr().out == ""
