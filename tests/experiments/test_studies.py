"""The studies as they stand: each can be run, and the page of results says what their results say."""

import itertools
from pathlib import Path

import pytest

from experiments import candidates, hierarchy_gain, partial_labels, results, study, tables, tuned, warm_start
from happier.errors import ConfigError
from happier.losses import LOSSES
from happier.training.compose import compose

ROOT = Path(__file__).parents[2]


def test_an_unknown_study_is_named():
    with pytest.raises(ConfigError, match=r"no study 'emoji_mian'; there are .*emoji_main"):
        study.read_study("emoji_mian")


@pytest.mark.parametrize("name", study.study_names())
def test_every_study_can_be_run(name, monkeypatch):
    families = ("happier", "nsm", "roadmap", "csl", "smooth_ap", "triplet", "proxy_nca")
    beyond = ("sup_ndcg", "sup_recall", "himulcon")
    rates = {name: ["optimizer.lr=1e-3"] for name in (*families, *beyond)}
    monkeypatch.setattr(study, "read_rates", lambda: {"emoji": rates, "wesnoth": rates})
    one_seed = {job.overrides: job for job in study.read_study(name).jobs}
    for job in one_seed.values():
        assert compose([*job.train_overrides(), "run=x"]).loss["name"] == job.loss


def test_names_tell_runs_apart():
    jobs = [job for name in study.study_names() for job in study.read_study(name).jobs]
    assert len({(job.folder, job.name) for job in jobs}) == len(set(jobs))


def test_every_result_is_of_a_study():
    known = {}
    for name in study.study_names():
        for job in study.read_study(name).jobs:
            pairs = (text.partition("=") for text in (*job.overrides, f"seed={job.seed}"))
            known.setdefault(job.folder, set()).add(frozenset((key, value) for key, _, value in pairs))
    others = [run for protocol in partial_labels.PROTOCOLS for run in partial_labels.partial_runs(protocol)]
    others += hierarchy_gain.gain_runs()
    others += [run for change in candidates.CHANGES for run in candidates.candidate_runs(change)]
    for protocol in (tuned.FEATURES, tuned.FINE_TUNING):
        for set_name in tuned.read_protocol(protocol)["sets"]:
            methods = itertools.chain(*tuned.read_methods(protocol, set_name))
            others += [run for method in methods for run in (*method.tuning, *method.final)]
    for set_name, way in itertools.product(warm_start.EPOCHS, warm_start.WAYS):
        others += warm_start.warm_starts(set_name, way)
    for run in others:
        known.setdefault(run.folder, set()).add(results.configuration(run))
    for table in results.RESULTS.glob("*.parquet"):
        rows = results.configurations(table)
        assert rows, table
        for row in rows:
            assert row in known[table.stem], f"no study names {dict(row)} of {table}: remove it"


def test_a_rate_is_spelt_one_way(tmp_path, monkeypatch):
    text = "about: a\ndata: emoji\nseeds: [0]\nmethods: {A: [loss=nsm, optimizer.lr=%s]}\n"
    monkeypatch.setattr(study, "STUDIES", tmp_path)
    (tmp_path / "one.yaml").write_text(text % "5e-4")
    (tmp_path / "two.yaml").write_text(text % "0.0005")
    assert study.read_study("one").jobs == study.read_study("two").jobs


@pytest.mark.parametrize("page", tables.PAGES, ids=lambda page: page.stem)
def test_the_page_says_what_the_results_say(page):
    text = page.read_text(encoding="utf-8")
    assert tables.fill(text) == text, "run `python -m experiments tables`"


@pytest.mark.parametrize("data", study.read_rates())
def test_the_recipe_has_the_rates_that_were_chosen(data):
    for family, rates in study.read_rates()[data].items():
        variants = [name for name, of in study.FAMILIES.items() if of == family]
        for loss in {family, f"sum_{family}", *variants} & LOSSES.keys():
            job = study.Job(data, 0.0, (f"loss={loss}", *rates), seed=0)
            recipe = compose([f"recipe={data}", f"loss={loss}"])
            assert recipe.optimizer == compose(job.train_overrides()).optimizer
