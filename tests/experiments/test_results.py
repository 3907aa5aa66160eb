"""The stored results as they stand: each is of a study, and the pages say what they say."""

import itertools

import pytest

from experiments import changes, hierarchy_gain, partial_labels, results, tables, tuned, warm_start


def every_run():
    yield from itertools.chain(*map(partial_labels.partial_runs, partial_labels.PROTOCOLS))
    yield from hierarchy_gain.gain_runs()
    for name in changes.change_names():
        yield from itertools.chain(*changes.read_changes(name).values())
    for protocol in (tuned.FEATURES, tuned.FINE_TUNING):
        for set_name in tuned.read_protocol(protocol)["sets"]:
            for method in itertools.chain(*tuned.read_methods(protocol, set_name)):
                yield from (*method.tuning, *method.final)
    for set_name, way in itertools.product(warm_start.EPOCHS, warm_start.WAYS):
        yield from warm_start.warm_starts(set_name, way)


def test_every_result_is_of_a_study():
    known = {}
    for run in every_run():
        known.setdefault(run.folder, set()).add(results.configuration(run))
    for table in results.RESULTS.glob("*.parquet"):
        rows = results.configurations(table)
        assert rows, table
        for row in rows:
            assert row in known[table.stem], f"no study names {dict(row)} of {table}: remove it"


@pytest.mark.parametrize("page", tables.PAGES, ids=lambda page: page.stem)
def test_the_page_says_what_the_results_say(page):
    text = page.read_text(encoding="utf-8")
    assert tables.fill(text) == text, "run `python -m experiments tables`"
