"""A small encoder and some images: fixtures that several folders of tests share."""

import pandas as pd
import pytest
import torch
from noise import write_noise

from happier import Encoder
from happier.data import Manifest


@pytest.fixture(scope="module")
def encoder():
    torch.manual_seed(0)
    made = Encoder("test_resnet", dim=16, transform="small", image_size=32, level_names=["kind", "item"])
    return made.eval()


@pytest.fixture
def manifest(tmp_path):
    names = [f"{number}.png" for number in range(11)]
    for number, name in enumerate(names):
        write_noise(tmp_path / name, number)
    table = pd.DataFrame(
        {"path": names, "split": "test", "kind": "k", "item": [str(n % 3) for n in range(len(names))]}
    )
    return Manifest(table, levels=["kind", "item"], root=tmp_path)
