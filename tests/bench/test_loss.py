"""The forms that the bench compares compute the same loss."""

from __future__ import annotations

import json

import pytest
import torch
from typer.testing import CliRunner

from happier.bench import loss as bench
from happier.cli import app


@pytest.mark.parametrize("levels", [2, 3, 7])
def test_forms_agree(levels):
    embeddings, labels = bench.toy_batch(32, levels)
    assert labels.shape == (32, levels)
    assert len(labels[:, 0].unique()) == 2
    families = {"H-AP": bench._hap_forms(32), **bench._other_losses(32)}
    for name, forms in families.items():
        if name in ("NormSoftmax", "ROADMAP"):  # random proxies; the straightforward form has no calibration
            continue
        found = []
        for form, make in forms.items():
            if form != bench.PML:
                leaf = embeddings.clone().requires_grad_()
                value = make()(leaf, labels)
                value.backward()
                found.append((value.detach(), leaf.grad))
        for other in found[1:]:
            torch.testing.assert_close(other, found[0], rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_command_prints_json():
    done = CliRunner().invoke(app, ["bench", "loss", "--size", "32", "--levels", "2", "--no-step", "--json"])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)["measurements"]
    assert {entry["loss"] for entry in found} >= {"H-AP", "Smooth-AP", "ROADMAP", "SupRecall", "SupNDCG"}
    assert all(entry["seconds"] > 0 for entry in found)


def test_no_gpu_is_an_error_in_one_line():
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    done = CliRunner().invoke(app, ["bench", "loss", "--device", "cuda", "--no-step"])
    assert done.exit_code != 0
    assert "device must be cpu, or cuda where there is a GPU, got 'cuda'" in str(
        done.exception or done.output
    )
