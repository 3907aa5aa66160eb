"""A small catalogue: a tree of three levels, vectors that lie around their classes."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from happier.data import Manifest

LEVELS = ("kind", "group", "item")


@dataclass
class Catalogue:
    manifest: Manifest
    vectors: np.ndarray

    def part(self, rows):
        return Catalogue(self.manifest.take(rows), self.vectors[rows])


def make_catalogue(
    count: int, *, dim: int = 32, seed: int = 0, prefix: str = "", unknown: bool = True
) -> Catalogue:
    """``count`` images of 4 kinds, 12 groups and 36 items, some with unknown labels."""
    generator = np.random.default_rng(seed)
    item = generator.integers(0, 36, count)
    table = pd.DataFrame(
        {
            "path": [f"{prefix}{number:05d}.png" for number in range(count)],
            "split": "test",
            "kind": [f"kind {number // 9}" for number in item],
            "group": [f"group/{number // 3}" for number in item],  # a slash in a name must not matter
            "item": [f'"{number}\\ é' for number in item],
        }
    )
    if unknown:
        table.loc[table.index % 17 == 3, "item"] = ""
        table.loc[table.index % 31 == 5, ["group", "item"]] = ""
    centres = np.random.default_rng(1).standard_normal((36, dim))
    vectors = centres[item] + 0.7 * generator.standard_normal((count, dim))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    manifest = Manifest(table, levels=LEVELS, root=Path("/images"), name="catalogue")
    return Catalogue(manifest, vectors.astype(np.float32))


@pytest.fixture(scope="session")
def new_catalogue():
    return make_catalogue


@pytest.fixture(scope="session")
def catalogue():
    return make_catalogue(700)


@pytest.fixture(scope="session")
def milvus_server(tmp_path_factory):
    """A real Milvus server in a process of its own; test processes share it: a machine runs only one."""
    if os.environ.get("MILVUS_SERVER_TESTS") != "1":
        pytest.skip("a real Milvus server takes minutes: `make test-milvus` runs these tests")
    from tests.search.milvus_standalone import TOKEN, NotInstallableError, join_server, leave_server

    alone = "PYTEST_XDIST_WORKER" not in os.environ
    shared = tmp_path_factory.mktemp("milvus") if alone else tmp_path_factory.getbasetemp().parent / "milvus"
    shared.mkdir(exist_ok=True)
    try:
        server = join_server(shared)
    except NotInstallableError as reason:
        pytest.skip(str(reason))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MILVUS_TOKEN", TOKEN)
        patch.setenv("MILVUS_URI", server.uri)
        yield server
    leave_server(shared)
