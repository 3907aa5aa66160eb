"""Does a tree that was built help where there is none? Heads trained on emoji without its groups.

The groups of emoji are discarded. A head on kept features of a frozen network is trained with HAPPIER under
four trees: the finest classes alone, a tree from WordNet by the emoji's names (the most frequent meaning,
unseen), one from clusters of the features, and the true one. All are evaluated under the true tree, on
classes that were not seen in training. Clusters are made of the means of all classes, those for testing among
them; no group is used.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from experiments.results import RESULTS
from experiments.running import evaluate_run, train_run
from happier.curation.taxonomy import compare_taxonomies
from happier.data import Manifest, fetch
from happier.data.taxonomies.class_paths import flat_classes, with_taxonomy
from happier.data.taxonomies.clusters import class_means, cluster_taxonomy
from happier.data.taxonomies.wordnet import WordNet
from happier.data.taxonomies.wordnet_taxonomy import first_meanings, wordnet_taxonomy
from happier.encoder import Encoder
from happier.encoder.features import FeatureStore
from happier.storage.atomic import atomic_file

FILE = RESULTS / "built_trees.json"
TREES = ("true tree", "finest classes alone", "WordNet", "clusters")
SIZE, LEVELS = 192, ("group", "subgroup")
KINDS = ("H-AP", "AP/", "severity@1")
HEAD = (
    "recipe=folder_head",
    "transform=small",
    f"transform.size={SIZE}",
    "transform.normalize=backbone",
)
BUDGET = ("training.steps=150", "training.batch_size=256")


def measure_built_trees(runs: Path, *, seeds: Sequence[int]) -> Path:
    """Train and evaluate what has no figures yet; returns the file with all figures.

    Args:
        runs: folder of the manifests and run directories.
        seeds: of the trainings.
    """
    folder = runs / "built_trees"
    folder.mkdir(parents=True, exist_ok=True)
    true = fetch("emoji", size=SIZE)
    found: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8")) if FILE.is_file() else {}
    first = _trained(folder / "true tree,seed=0", true, 0)
    for tree, path in _manifests(true, folder, first):
        entry = found.setdefault(tree, {"trees": {}, "seeds": {}})
        if tree in ("WordNet", "clusters") and not entry["trees"]:
            agreement = compare_taxonomies(Manifest.read(path), Manifest.read(true)).trees
            entry["trees"] = {"agreement": round(agreement.share, 4), "decided": round(agreement.decided, 4)}
        for seed in seeds:
            if str(seed) not in entry["seeds"]:
                entry["seeds"][str(seed)] = _figures(
                    _trained(folder / f"{tree},seed={seed}", path, seed), true
                )
                FILE.parent.mkdir(parents=True, exist_ok=True)
                with atomic_file(FILE) as part:
                    part.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
            print(f"{tree}, seed {seed}: H-AP {100 * entry['seeds'][str(seed)]['H-AP']:.2f}", flush=True)
    return FILE


def _manifests(true: Path, folder: Path, run: Path) -> Iterator[tuple[str, Path]]:
    """The manifest of each tree, in the order of `TREES`."""
    manifest = Manifest.read(true)
    classes = flat_classes(manifest)
    sizes = manifest.taxonomy().num_classes[:-1]
    yield TREES[0], true
    alone = Manifest(manifest.table, levels=manifest.levels[-1:], root=manifest.root, name=manifest.name)
    yield TREES[1], alone.write(folder / "alone.parquet")
    words = WordNet.fetch()
    by_names = wordnet_taxonomy(words, first_meanings(words, classes)[0], levels=LEVELS, sizes=sizes)
    yield TREES[2], with_taxonomy(manifest, by_names).write(folder / "wordnet.parquet")
    vectors = FeatureStore.open_or_compute(Encoder.from_pretrained(str(run)), manifest).vectors
    labels = np.searchsorted(classes, manifest.table[manifest.levels[-1]].tolist())
    means = class_means(vectors / np.linalg.norm(vectors, axis=1, keepdims=True), labels, len(classes))
    by_looks = cluster_taxonomy(means, classes, levels=LEVELS, sizes=sizes)
    yield TREES[3], with_taxonomy(manifest, by_looks).write(folder / "clusters.parquet")


def _trained(directory: Path, manifest: Path, seed: int) -> Path:
    if not (directory / "model.json").is_file():
        train_run([*HEAD, "loss=happier", *BUDGET], directory, manifest, seed=seed)
    return directory


def _figures(directory: Path, true: Path) -> dict[str, float]:
    """Metrics of a run on the test classes, under the true tree."""
    summary = evaluate_run(directory, manifest=true).summary
    return {name: round(value, 6) for name, value in summary.items() if name.startswith(KINDS)}
