"""Keywords of earlier versions give the same loss, and a warning that names the new ones."""

from __future__ import annotations

import logging

import pytest
import torch

from happier import Taxonomy
from happier.errors import OptionError
from happier.losses import (
    LOSSES,
    HAPLoss,
    HAPPIERLoss,
    ROADMAPLoss,
    SigmoidSurrogate,
    SmoothAPLoss,
    StepSurrogate,
    SupNDCGLoss,
    SupRecallLoss,
    build_loss,
    display_name,
)


@pytest.mark.parametrize(
    ("make", "expected", "message"),
    [
        (
            lambda: HAPLoss(tau=0.1, hrank=False),
            StepSurrogate(tau=0.1, hrank=False),
            r"tau, hrank: use surrogate=",
        ),
        (
            lambda: HAPLoss(1.0, "authors", start=0.0, offset=1.0),
            StepSurrogate(start=0.0, offset=1.0, hrank=False),
            "start, offset",
        ),
        (lambda: HAPLoss(preset="authors", tau=0.1), StepSurrogate(tau=0.1, offset=1.44, hrank=False), "tau"),
        (lambda: ROADMAPLoss(rho=7.0), StepSurrogate(rho=7.0), "rho"),
        (lambda: SupRecallLoss(ks=(1,), delta=0.2), StepSurrogate(delta=0.2), "delta"),
        (lambda: SupNDCGLoss(start=1.0), StepSurrogate(start=1.0), "start"),
        (
            lambda: HAPPIERLoss(3, 4, surrogate="sigmoid", tau=0.05).ranking,
            SigmoidSurrogate(0.05),
            r"tau, surrogate as a string: use surrogate=SigmoidSurrogate\(tau=0.05\) instead",
        ),
        (lambda: HAPPIERLoss(3, 4, surrogate="step").ranking, StepSurrogate(), "surrogate as a string"),
    ],
)
def test_numbers_of_the_surrogate(make, expected, message):
    with pytest.warns(DeprecationWarning, match=message) as caught:
        loss = make()
    assert loss.surrogate == expected
    assert len(caught) == 1
    assert caught[0].filename == __file__


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: HAPPIERLoss(3, 4, surrogate="sigmoid", rho=3.0), "has tau only, got rho"),
        (lambda: HAPPIERLoss(3, 4, surrogate="sigmoyd"), "did you mean 'sigmoid'"),
        (lambda: HAPLoss(tau=0.0), "tau must be"),
        (lambda: HAPLoss(tau=0.5, surrogate=StepSurrogate()), "tau has no effect together with surrogate="),
    ],
)
def test_old_keywords_are_checked(make, message):
    with pytest.raises(OptionError, match=message):
        make()


def test_form_is_now_engine():
    for make in (HAPLoss, SmoothAPLoss, SupNDCGLoss):
        with pytest.warns(DeprecationWarning, match="form: use engine='torch' instead"):
            loss = make(form="torch")
        assert loss.engine == "torch"
    taxonomy = Taxonomy.from_labels([[0, 0], [0, 1]])
    with pytest.warns(DeprecationWarning, match="form: use engine"):
        assert build_loss("hap", taxonomy=taxonomy, dim=4, form="torch").engine == "torch"
    with pytest.raises(TypeError, match="unexpected keyword argument 'tua'"):
        HAPLoss(tua=0.1)


def test_the_registry_has_plain_options():
    """What a configuration can write, without a warning."""
    taxonomy = Taxonomy.from_labels([[0, 0], [0, 1]])

    def surrogate(name, **options):
        loss = build_loss(name, taxonomy=taxonomy, dim=4, **options)
        return getattr(loss, "ranking", loss).surrogate

    assert surrogate("happier", tau=0.1) == StepSurrogate(tau=0.1)
    assert surrogate("happier", surrogate="sigmoid", tau=0.1) == SigmoidSurrogate(0.1)
    assert surrogate("happier_s") == SigmoidSurrogate(0.05)
    assert surrogate("hap", preset="authors", hrank=True) == StepSurrogate(offset=1.44)
    assert surrogate("hap", surrogate=StepSurrogate(tau=0.3)) == StepSurrogate(tau=0.3)
    assert surrogate("sigma_wap", rho=3.0) == StepSurrogate(rho=3.0)
    assert surrogate("sup_ndcg", **{**LOSSES["sup_ndcg"].options, "tau": 0.2}) == StepSurrogate(tau=0.2)
    assert surrogate("roadmap", **{**LOSSES["roadmap"].options, "surrogate": "sigmoid"}) == SigmoidSurrogate()
    levels = build_loss("sum_roadmap", taxonomy=taxonomy, dim=4, tau=0.2).losses
    assert [loss.surrogate for loss in levels] == [StepSurrogate(tau=0.2)] * 2


def test_command_line(caplog):
    from happier.training.compose import compose

    base = ["recipe=small", "data.manifest=a.csv"]
    assert compose([*base, "loss=happier", "loss.tau=0.02"]).loss["tau"] == 0.02
    with caplog.at_level(logging.WARNING):
        assert compose([*base, "loss=hap", "loss.form=torch"]).loss["engine"] == "torch"
    assert "loss.form is now called loss.engine" in caplog.text


def test_every_loss_has_a_display_name():
    names = [entry.display_name for entry in LOSSES.values()]
    assert all(names)
    assert len(set(names)) == len(names)
    assert display_name("sum_nsm") == "ΣNSM"
    assert display_name("something else") == "something else"


def test_any_ranking_loss_takes_any_surrogate():
    embeddings = torch.nn.functional.normalize(
        torch.randn(6, 3, generator=torch.Generator().manual_seed(0)), dim=1
    )
    labels = torch.tensor([[0, 0], [0, 0], [0, 1], [1, 2], [1, 2], [1, 3]])
    for make in (HAPLoss, ROADMAPLoss, SupNDCGLoss, SupRecallLoss):
        one, other = (make(surrogate=SigmoidSurrogate(0.2), engine=engine) for engine in ("kernel", "torch"))
        torch.testing.assert_close(one(embeddings, labels), other(embeddings, labels))
