"""The loop: every loss, every recipe; what it writes; how it stops and goes on."""

import os
import resource
import shutil
import signal
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
import torch
from processes import run_fresh_command
from safetensors.torch import load_file
from training_runs import assert_same, kill_at, lines, weights_of

import happier.conf
from happier import Encoder
from happier.errors import CheckpointError, ConfigError, HappierError, TrainingError
from happier.evaluation.protocol import evaluate_manifest
from happier.losses import LOSSES
from happier.losses.proxies import Proxies
from happier.runs import read_run
from happier.storage.lock import locked
from happier.training import loop
from happier.training.checkpoint import Checkpoints, read_checkpoint
from happier.training.compose import compose
from happier.training.loop import train
from happier.training.setup import build_criterion, build_fabric

RECIPES = sorted(path.stem for path in (Path(happier.conf.__file__).parent / "recipe").glob("*.yaml"))
# Every recipe and every loss in turn.
PAIRS = [(RECIPES[number % len(RECIPES)], loss) for number, loss in enumerate(LOSSES)]


@pytest.mark.parametrize(("recipe", "loss"), PAIRS)
def test_two_steps_of_every_recipe_and_loss(recipe, loss, shapes, tmp_path):
    config = compose(
        [
            f"recipe={recipe}",
            f"loss={loss}",
            f"run={tmp_path / 'run'}",
            f"data.manifest={shapes}",
            "data.workers=0",
            # What the recipes' own networks would take minutes for.
            "model.backbone=test_resnet",
            "model.pretrained=null",
            "transform.size=32",
            "training.epochs=1",
            "training.warmup_epochs=0",
            "training.batch_size=32",
            "training.tensorboard=false",
            "sampler.batches_per_pair=1",
            "evaluation.batch_size=40",
        ]
    )
    result = train(config)
    assert result.steps >= 2
    assert 0 < result.metrics["H-AP"] <= 1
    assert happier.Encoder.from_pretrained(tmp_path / "run").level_names == ("kind", "item")


def test_a_run_directory_holds_what_it_should(small, tmp_path):
    run = tmp_path / "run"
    result = train(
        compose([*small, f"run={run}", "evaluation.every=2", "evaluation.start=true", "training.log_every=3",
                 "training.tensorboard=true"])
    )  # fmt: skip
    assert {path.name for path in run.iterdir()} == {
        "config.yaml", "metrics.jsonl", "checkpoint", "model.safetensors", "model.json", "README.md",
        "tensorboard", ".lock",
    }  # fmt: skip
    kinds = [(line["kind"], line["step"], line["epoch"]) for line in lines(run)]
    assert kinds == [
        ("evaluation", 0, 0),
        ("train", 3, 1),
        ("train", 6, 2),
        ("evaluation", 6, 2),
        ("train", 9, 3),
        ("train", 12, 4),
        ("evaluation", 12, 4),
    ]
    evaluations = [line for line in lines(run) if line["kind"] == "evaluation"]
    best = max(evaluations, key=lambda line: line["metrics"]["H-AP"])
    assert result.metrics["H-AP"] == best["metrics"]["H-AP"]
    assert result.best_epoch == best["epoch"]
    assert happier.Encoder.from_pretrained(run).metrics["H-AP"] == result.metrics["H-AP"]
    stored = load_file(run / "model.safetensors")
    best_state = read_checkpoint(run / "checkpoint" / "best.ckpt")
    assert_same(best_state["encoder"], stored)
    # Once more: it is finished, nothing changes.
    before = (run / "metrics.jsonl").read_bytes()
    again = train(compose([*small, f"run={run}", "evaluation.every=2", "evaluation.start=true",
                           "training.log_every=3", "training.tensorboard=true"]))  # fmt: skip
    assert (again.steps, again.best_epoch) == (result.steps, result.best_epoch)
    assert again.metrics["H-AP"] == result.metrics["H-AP"]
    assert (run / "metrics.jsonl").read_bytes() == before


def test_workers_and_memory_change_no_bit(small, tmp_path):
    train(compose([*small, f"run={tmp_path / 'memory'}"]))
    train(compose([*small, f"run={tmp_path / 'loader'}", "data.in_memory=false"]))
    train(compose([*small, f"run={tmp_path / 'workers'}", "data.in_memory=false", "data.workers=2"]))
    assert_same(weights_of(tmp_path / "memory"), weights_of(tmp_path / "loader"))
    assert_same(weights_of(tmp_path / "memory"), weights_of(tmp_path / "workers"))


def test_seeds_differ(small, tmp_path):
    train(compose([*small, f"run={tmp_path / 'a'}"]))
    train(compose([*small, f"run={tmp_path / 'b'}", "seed=1"]))
    first, second = weights_of(tmp_path / "a"), weights_of(tmp_path / "b")
    assert not torch.equal(first["encoder.head.weight"], second["encoder.head.weight"])


# Options whose state a checkpoint must hold: proxies, memory, momentum, warm-up, clipping.
RESUMED = {
    "plain": [],
    "all": [
        "training.memory=64",
        "training.warmup_epochs=1",
        "training.clip_norm=1.0",
        "loss=sum_nsm",
        "evaluation.every=2",
    ],
    "sgd": ["optimizer=sgd", "loss=csl", "model.freeze_batch_norm=true", "training.micro_batch=10"],
}


@pytest.mark.parametrize("name", RESUMED)
def test_killed_at_any_step_a_run_ends_with_the_same_bits(name, small, tmp_path):
    options = [*small, "training.checkpoint_steps=2", *RESUMED[name]]
    # Each in a process that has computed nothing before.
    assert kill_at(["0:end"], [*options, f"run={tmp_path / 'whole'}"]) == [0]
    killed = [*options, f"run={tmp_path / 'killed'}"]
    # At the start, in an epoch, between epochs, twice at the same place, while a checkpoint is written.
    places = ["1:step", "4:step", "2:save", "3:step", "3:step", "1:save"]
    assert kill_at([*places, "0:end"], killed) == [*(-9 for _ in places), 0]
    assert_same(weights_of(tmp_path / "whole"), weights_of(tmp_path / "killed"))
    whole, again = lines(tmp_path / "whole"), lines(tmp_path / "killed")
    for line in (*whole, *again):
        line.pop("images_per_second", None)
        line.pop("seconds", None)
    assert whole == again
    stored = load_file(tmp_path / "killed" / "model.safetensors")
    assert_same(load_file(tmp_path / "whole" / "model.safetensors"), stored)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_saves_and_the_same_command_goes_on(small, tmp_path, monkeypatch, number):
    train(compose([*small, f"run={tmp_path / 'whole'}"]))
    real, calls = loop.batch_gradient, []

    def gradient(*arguments, **options):
        calls.append(1)
        if len(calls) == 5:
            os.kill(os.getpid(), number)
        return real(*arguments, **options)

    monkeypatch.setattr(loop, "batch_gradient", gradient)
    config = compose([*small, f"run={tmp_path / 'stopped'}"])
    with pytest.raises(TrainingError, match=r"stopped by SIG\w+ after step 5, which is saved"):
        train(config)
    assert train(config).steps == 12
    assert len(calls) == 12
    assert_same(weights_of(tmp_path / "whole"), weights_of(tmp_path / "stopped"))


def test_another_configuration_is_refused_with_the_difference(small, tmp_path):
    train(compose([*small, f"run={tmp_path}/run"]))
    with pytest.raises(ConfigError, match=r"optimizer\.lr was 0\.003, is 0\.001; seed was 0, is 3"):
        train(compose([*small, f"run={tmp_path}/run", "seed=3", "optimizer.lr=0.001"]))
    with pytest.raises(ConfigError, match="is not a run"):
        train(compose([*small, f"run={tmp_path}"]))


def test_other_data_are_refused(small, shapes, tmp_path):
    train(compose([*small, f"run={tmp_path}/run"]))
    manifest = happier.data.Manifest.read(shapes)
    table = manifest.table.copy()
    table.loc[0, "item"] = "i1"
    changed = happier.data.Manifest(table, levels=manifest.levels, root=manifest.root)
    changed.write(tmp_path / "changed.parquet")
    with pytest.raises(CheckpointError, match="images or labels are not those"):
        train(compose([*small, f"run={tmp_path}/run", f"data.manifest={tmp_path}/changed.parquet"]))


@pytest.fixture(scope="module")
def trained(shapes, tmp_path_factory):
    """Options of a finished run of one epoch, and its directory."""
    run = tmp_path_factory.mktemp("trained") / "run"
    options = [
        "recipe=small",
        f"data.manifest={shapes}",
        "training.epochs=1",
        "training.batch_size=32",
        "training.tensorboard=false",
        "evaluation.every=1",
        "data.workers=0",
    ]
    train(compose([*options, f"run={run}"]))
    return options, run


@pytest.fixture
def stored(trained, tmp_path):
    """A copy of that run: its configuration and its checkpoints."""
    options, run = trained
    shutil.copytree(run, tmp_path / "run")
    return compose([*options, f"run={tmp_path / 'run'}"]), Checkpoints(tmp_path / "run" / "checkpoint")


def test_a_manifest_with_a_test_row_less_is_refused(stored, shapes, tmp_path):
    config, checkpoints = stored
    manifest = happier.data.Manifest.read(shapes)
    table = manifest.table
    fewer = table.drop(index=table.index[table["split"] == "test"][-1])
    happier.data.Manifest(fewer, levels=manifest.levels, root=manifest.root).write(tmp_path / "fewer.parquet")
    other = replace(config, data=replace(config.data, manifest=str(tmp_path / "fewer.parquet")))
    with pytest.raises(CheckpointError, match=r"images or labels are not those .* evaluated on"):
        train(other)
    # A checkpoint of an earlier version does not know the rows that were evaluated.
    state = checkpoints.load()
    del state["evaluated_data"]
    checkpoints.save(state)
    assert train(config).steps == 3


def test_a_second_trainer_in_the_same_directory_is_refused(stored, trained):
    config, _ = stored
    with locked(config.run_dir):
        done = run_fresh_command("train", *trained[0], f"run={config.run}")
    assert done.code == 2
    assert f"is being changed by process {os.getpid()}" in done.err
    assert len(done.err.splitlines()) == 1
    assert train(config).steps == 3


# Wrong in type, or in content. The loss scale is left out: there is none in fp32.
DAMAGED = {
    "text": lambda state, part: state.update({part: "text"}),
    "number": lambda state, part: state.update({part: 5}),
    "empty": lambda state, part: state.update({part: {}}),
    "missing": lambda state, part: state.pop(part),
}


@pytest.mark.parametrize("part", ["position", "sampler", "rng", "encoder", "optimizer", "proxy_optimizer"])
def test_a_checkpoint_that_does_not_fit_is_one_line(part, stored):
    config, checkpoints = stored
    whole = checkpoints.load()
    for name, damage in DAMAGED.items():
        if (part, name) == ("position", "empty"):
            continue  # a run that starts
        state = dict(whole)
        damage(state, part)
        checkpoints.save(state)
        with pytest.raises(CheckpointError) as error:
            train(config)
        assert "\n" not in str(error.value)
        assert "last.ckpt" in str(error.value)


def _drop_group(state):
    state["param_groups"].pop()


def _drop_moment(state):
    del state["state"][0]["exp_avg"]


def _wrong_shape(state):
    state["state"][0]["exp_avg"] = torch.zeros(3)


def _wrong_rate(state):
    state["param_groups"][0]["lr"] = "fast"


@pytest.mark.parametrize("damage", [_drop_group, _drop_moment, _wrong_shape, _wrong_rate])
def test_a_damaged_optimiser_is_noticed_before_the_first_step(damage, stored):
    config, checkpoints = stored
    state = checkpoints.load()
    damage(state["optimizer"])
    checkpoints.save(state)
    with pytest.raises(CheckpointError, match="does not fit this configuration"):
        train(config)


def test_a_directory_that_cannot_be_made_is_one_line(trained, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(HappierError, match=r"cannot write .*file/run"):
        train(compose([*trained[0], f"run={tmp_path}/file/run"]))
    with pytest.raises(HappierError, match="File name too long"):
        train(compose([*trained[0], f"run={tmp_path}/{'x' * 300}"]))


@contextmanager
def full_disk():
    """Yield a function: from its call to the end of the block no file may grow beyond so many bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        yield lambda size: resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_disk_that_is_full_when_the_model_is_saved_is_one_line(trained, tmp_path):
    config = compose([*trained[0], f"run={tmp_path}/run", "training.log_every=100"])
    with full_disk() as fill, pytest.raises(HappierError, match=r"cannot .* the last checkpoint is intact"):
        train(config, progress=lambda done, total: fill(100_000) if done == total else None)
    assert train(config).steps == 3


def test_a_loss_that_is_not_finite_stops_the_run(small, tmp_path):
    config = compose([*small, f"run={tmp_path}/run", "optimizer.lr=1e30", "training.checkpoint_steps=1"])
    with pytest.raises(TrainingError, match=r"the loss is nan at step \d+; .* lower optimizer\.lr"):
        train(config)
    assert read_checkpoint(tmp_path / "run" / "checkpoint" / "last.ckpt")["position"]["step"] >= 1


def test_micro_batches_with_trained_batch_norm_are_refused(small, tmp_path):
    with pytest.raises(ConfigError, match=r"model\.freeze_batch_norm=true"):
        train(compose([*small, f"run={tmp_path}/run", "training.micro_batch=8"]))
    assert not (tmp_path / "run").exists()


def test_early_stopping(small, tmp_path):
    options = ["evaluation.every=1", "evaluation.patience=1", "training.epochs=30", "optimizer.lr=1e-12"]
    result = train(compose([*small, f"run={tmp_path}/run", *options, "evaluation.start=true"]))
    assert result.steps < 90
    evaluations = [line for line in lines(tmp_path / "run") if line["kind"] == "evaluation"]
    assert [line["best"] for line in evaluations][-1] is False


@pytest.mark.parametrize(("keep", "epoch"), [("best", 0), ("last", 2)])
def test_the_last_weights_are_kept_where_they_count(small, tmp_path, keep, epoch):
    # At this rate nothing is learned: no evaluation is better than the first.
    options = ["evaluation.every=1", "evaluation.start=true", "training.epochs=2", "optimizer.lr=1e-12"]
    run = tmp_path / "run"
    options += ["model.freeze_batch_norm=true", f"evaluation.keep={keep}"]
    result = train(compose([*small, f"run={run}", *options]))
    best = [line["best"] for line in lines(run) if line["kind"] == "evaluation"]
    assert best == [True, False, False]
    assert result.best_epoch == epoch
    assert result.metrics["H-AP"] == happier.Encoder.from_pretrained(run).metrics["H-AP"]
    kept = read_checkpoint(run / "checkpoint" / f"{keep}.ckpt")
    assert_same(kept["encoder"], load_file(run / "model.safetensors"))


def test_warm_up_holds_the_backbone(small, tmp_path):
    options = [
        *small,
        "training.warmup_epochs=1",
        "model.freeze_batch_norm=true",
        "training.checkpoint_steps=3",
    ]
    config = compose([*options, f"run={tmp_path}/run"])
    torch.manual_seed(config.seed)
    start = happier.Encoder(
        "test_resnet", dim=config.model.dim, transform="small", image_size=32, freeze_batch_norm=True
    ).state_dict()
    assert kill_at(["4:step"], [*options, f"run={tmp_path}/run"]) == [-9]
    after = weights_of(tmp_path / "run")
    assert torch.equal(after["encoder.backbone.conv1.0.weight"], start["backbone.conv1.0.weight"])
    assert not torch.equal(after["encoder.head.weight"], start["head.weight"])
    train(config)
    after = weights_of(tmp_path / "run")
    assert not torch.equal(after["encoder.backbone.conv1.0.weight"], start["backbone.conv1.0.weight"])


@pytest.mark.parametrize(("precision", "product"), [("bf16", torch.bfloat16), ("fp32", None)])
def test_products_with_proxies_follow_the_precision(small, tmp_path, precision, product):
    config = compose([*small, f"run={tmp_path}/run", f"training.precision={precision}", "training.memory=8"])
    taxonomy = happier.Taxonomy.from_labels([[0, 0], [0, 1], [1, 2]])
    criterion = build_criterion(config, taxonomy, build_fabric(config))
    assert [module.product for module in criterion.modules() if isinstance(module, Proxies)] == [product]


def test_half_precision_trains(small, tmp_path):
    result = train(compose([*small, f"run={tmp_path}/run", "training.precision=bf16", "evaluation.every=4"]))
    assert result.metrics["H-AP"] > 0


def test_the_split_that_is_watched_must_be_there(small, tmp_path):
    with pytest.raises(happier.HappierError, match=r"evaluation\.every=0"):
        train(compose([*small, f"run={tmp_path}/run", "evaluation.every=1", "evaluation.split=val"]))


def test_a_full_disk_is_one_line(small, tmp_path):
    config = compose([*small, f"run={tmp_path}/run", "training.log_every=1", "training.checkpoint_steps=100"])
    with full_disk() as fill, pytest.raises(TrainingError, match=r"cannot write .* free some space"):
        train(config, progress=lambda done, _: fill(400) if done == 3 else None)


def test_several_test_sets_are_averaged(shapes, small, tmp_path):
    """As in DyML: each test set has its own queries and gallery, labelled at one level."""
    manifest = happier.data.Manifest.read(shapes)
    train_rows, test = manifest.select("train").table, manifest.select("test").table
    parts = [train_rows]
    for name, level in (("coarse", "kind"), ("fine", "item")):
        label = test["kind"] + test["item"] if level == "item" else test["kind"]
        for split in ("query", "gallery"):
            parts.append(test.assign(split=split, set=name, kind=label, item=""))
    table = pd.concat(parts, ignore_index=True)
    several = happier.data.Manifest(table, levels=manifest.levels, root=manifest.root)
    path = several.write(tmp_path / "several.parquet")
    options = [f"data.manifest={path}", f"run={tmp_path}/run", "training.epochs=1", "evaluation.every=1"]
    metrics = train(compose([*small, *options])).metrics
    assert lines(tmp_path / "run")[-1]["split"] == "query"
    assert metrics["H-AP"] == pytest.approx((metrics["coarse:H-AP"] + metrics["fine:H-AP"]) / 2)
    # `happier evaluate` gives the same figures under the same names.
    run = read_run(tmp_path / "run")
    evaluated = evaluate_manifest(run.vectors, run.manifest).summary()
    assert evaluated.keys() == metrics.keys()
    assert evaluated["fine:H-AP"] == pytest.approx(metrics["fine:H-AP"], abs=1e-4)


@pytest.mark.slow
def test_happier_lifts_h_ap_on_classes_it_never_saw(shapes, tmp_path):
    config = compose(
        [
            "recipe=small",
            f"data.manifest={shapes}",
            f"run={tmp_path}/run",
            "evaluation.start=true",
            "data.workers=0",
        ]
    )
    train(config)
    found = [line["metrics"]["H-AP"] for line in lines(tmp_path / "run") if line["kind"] == "evaluation"]
    assert max(found[1:]) > found[0] + 0.1


def test_the_power_of_gem_is_learnt_and_held_with_the_backbone(small, tmp_path):
    moved = train(compose([*small, "model.pooling=gem", f"run={tmp_path / 'all'}", "evaluation.every=4"]))
    encoder = Encoder.from_pretrained(moved.run_dir)
    assert encoder.pooling.p.item() != 3.0
    held = [*small, "model.pooling=gem", "model.train=head", f"data.feature_folder={tmp_path / 'features'}"]
    train(compose([*held, f"run={tmp_path / 'head'}", "evaluation.every=4"]))
    assert Encoder.from_pretrained(tmp_path / "head").pooling.p.item() == 3.0
    tuned = [*small, f"model.start={tmp_path / 'all'}", f"run={tmp_path / 'tuned'}", "evaluation.every=4"]
    train(compose(tuned))
    assert Encoder.from_pretrained(tmp_path / "tuned").pooling_name == "gem"
