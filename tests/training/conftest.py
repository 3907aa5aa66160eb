"""A small data set with held-out classes."""

import pytest
from shapes import make_shapes


@pytest.fixture(autouse=True)
def cache(tmp_path_factory, monkeypatch):
    """Features that runs share are shared by the tests, too."""
    monkeypatch.setenv("HAPPIER_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))


@pytest.fixture(scope="session")
def shapes(tmp_path_factory):
    return make_shapes(tmp_path_factory.mktemp("shapes"))


@pytest.fixture
def small(shapes):
    """Overrides of a run of a few steps: 12 batches in 4 epochs."""
    return [
        "recipe=small",
        f"data.manifest={shapes}",
        "training.epochs=4",
        "training.batch_size=32",
        "training.tensorboard=false",
        "evaluation.every=0",
        "data.workers=0",
    ]
