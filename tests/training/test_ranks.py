"""Two ranks are one rank with the same global batch."""

import os
import subprocess
import sys

import pytest
import torch
from processes import command, run_ranks

from happier.training.checkpoint import read_checkpoint
from happier.training.compose import compose
from happier.training.loop import train


def train_under_torchrun(*overrides):
    words = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]
    words += ["-m", "happier", "train", *overrides]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(words, env=environment, text=True, capture_output=True)
    assert done.returncode == 0, done.stderr


def train_on_two_ranks(*overrides):
    for done in run_ranks(command, ["train", *overrides]):
        assert done.code == 0, done.err


@pytest.mark.slow
def test_two_ranks_end_with_the_weights_of_one(small, tmp_path):
    options = [
        *small,
        "training.epochs=7",  # 21 steps
        "training.warmup_epochs=1",
        "model.freeze_batch_norm=true",
        # Adam would turn the rounding of tiny gradients into steps of full size.
        "optimizer=sgd",
        "optimizer.lr=0.001",
        "optimizer.proxies.name=sgd",
        "optimizer.proxies.lr=0.001",
        "evaluation.every=7",
    ]
    train(compose([*options, f"run={tmp_path}/one"]))
    train_under_torchrun(*options, f"run={tmp_path}/two")
    one, two = (read_checkpoint(tmp_path / name / "checkpoint" / "last.ckpt") for name in ("one", "two"))
    assert one["position"]["step"] == two["position"]["step"] == 21
    for part in ("encoder", "criterion"):
        for name, tensor in one[part].items():
            torch.testing.assert_close(two[part][name], tensor, atol=1e-5, rtol=0, msg=name)
    assert two["position"]["best"] == pytest.approx(one["position"]["best"], abs=1e-3)


@pytest.mark.slow
def test_two_ranks_in_micro_batches_end_with_the_weights_of_one_pass(small, tmp_path):
    options = [*small, "training.epochs=2", "model.freeze_batch_norm=true", "optimizer=sgd"]
    train(compose([*options, f"run={tmp_path}/one"]))
    train_on_two_ranks(*options, f"run={tmp_path}/two", "training.micro_batch=6")
    one, two = (read_checkpoint(tmp_path / name / "checkpoint" / "last.ckpt") for name in ("one", "two"))
    for name, tensor in one["encoder"].items():
        torch.testing.assert_close(two["encoder"][name], tensor, atol=1e-5, rtol=0, msg=name)


@pytest.mark.slow
def test_two_ranks_train_the_head_of_one(small, tmp_path):
    """Each computes its part of the features, which both train on."""
    options = [*small, "model.train=head", "optimizer=sgd", "optimizer.lr=0.01", "evaluation.every=4"]
    train(compose([*options, f"run={tmp_path}/one", f"data.feature_folder={tmp_path}/one.features"]))
    more = [f"run={tmp_path}/two", f"data.feature_folder={tmp_path}/two.features", "training.micro_batch=6"]
    train_on_two_ranks(*options, *more)
    one, two = (read_checkpoint(tmp_path / name / "checkpoint" / "last.ckpt") for name in ("one", "two"))
    for part in ("encoder", "criterion"):
        for name, tensor in one[part].items():
            torch.testing.assert_close(two[part][name], tensor, atol=1e-5, rtol=0, msg=name)
    assert two["position"]["best"] == pytest.approx(one["position"]["best"], abs=1e-3)
