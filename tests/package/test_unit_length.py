"""Embeddings that are not unit vectors: one warning, where it matters, and never a second."""

import warnings

import numpy as np
import pytest
import torch

import happier
from happier import unit_length
from happier.losses import CrossBatchMemory, GradedHAPLoss, HAPLoss, HAPPIERLoss, NormSoftmaxLoss

LABELS = np.array([[i // 4, i // 2] for i in range(8)])
UNIT = torch.nn.functional.normalize(torch.randn(8, 4, generator=torch.Generator().manual_seed(0)), dim=1)
LONG = UNIT * torch.linspace(1, 9, 8)[:, None]


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    monkeypatch.setattr(unit_length, "_WARNED", set())


@pytest.fixture
def noted():
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        yield found


def test_evaluate_warns_once_at_the_line_of_the_caller(noted):
    for _ in range(3):
        happier.evaluate(LONG, LABELS)
    (warning,) = noted
    assert "lengths 1 to 9" in str(warning.message)
    assert warning.filename == __file__


def test_losses_warn_once_at_the_line_of_the_caller(noted):
    loss = HAPPIERLoss(num_classes=4, dim=4)
    for _ in range(3):
        loss(LONG, torch.from_numpy(LABELS))
    HAPPIERLoss(num_classes=4, dim=4)(LONG, torch.from_numpy(LABELS))
    (warning,) = noted
    assert str(warning.message).startswith("HAPPIERLoss: ")
    assert warning.filename == __file__


def test_what_does_no_harm_is_not_mentioned(noted):
    happier.evaluate(UNIT, LABELS)
    happier.evaluate(UNIT.half(), LABELS)
    happier.evaluate(7 * UNIT, LABELS)  # one length: the same ranking
    rows = torch.from_numpy(LABELS)
    HAPLoss()(UNIT, rows)
    HAPLoss()(UNIT.half(), rows)
    CrossBatchMemory(HAPLoss(), size=8)(UNIT, rows)
    assert [str(warning.message) for warning in noted] == []


def test_every_kind_of_loss_looks(noted):
    GradedHAPLoss()(LONG, torch.eye(8))
    NormSoftmaxLoss(4, 4)(LONG, torch.from_numpy(LABELS))
    CrossBatchMemory(HAPLoss(), size=8)(LONG, torch.from_numpy(LABELS))
    assert [str(warning.message).split(":")[0] for warning in noted] == [
        "GradedHAPLoss",
        "NormSoftmaxLoss",
        "CrossBatchMemory",
    ]
