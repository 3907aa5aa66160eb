"""How well an index names images, on real sets: every method, on average over several draws.

A draw takes half of the images of each class as queries and the others as the index, and one class in ten out
of the index. Vectors are features of EfficientNet-lite0, without any training. Even exactly right
probabilities have some expected calibration error on one draw, because a bin holds few queries: so it is
printed beside that of such probabilities, and beside that of all draws together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np

from experiments.features import backbone_features
from happier.arrays import Float32Array, FloatArray
from happier.data import Manifest, fetch
from happier.errors import ConfigError, did_you_mean
from happier.identification.experiment import (
    IdentificationFigures,
    IdentificationTrial,
    OpenSplit,
)
from happier.identification.measures import expected_calibration_error

SEEDS = tuple(range(200, 210))
_TIMES = 20


@dataclass(frozen=True)
class NamedSet:
    """Images to be named.

    Attributes:
        size: side in pixels that they are fetched in.
        side: in pixels, as the network sees them.
        split: only these; empty for all.
        classes: so many finest classes, drawn at random; 0 for all.
        images: at most so many of a class, drawn at random; 0 for all.
    """

    size: int
    side: int
    split: str = "test"
    classes: int = 0
    images: int = 0


SETS = {
    "emoji": NamedSet(192, 192),
    "wesnoth": NamedSet(192, 192),
    "glyphs": NamedSet(64, 128, classes=700),
    # Of its ten classes, five are for testing: too few to take one in ten away.
    "cifar10": NamedSet(64, 128, split="", images=400),
}


@dataclass(frozen=True)
class Draw:
    """The outcome of one draw.

    Attributes:
        figures: of all methods.
        confidence, right: of what is claimed down the tree ``[Q, L]``.
    """

    figures: IdentificationFigures
    confidence: FloatArray
    right: FloatArray


def identification_report(name: str, seeds: Sequence[int] = SEEDS) -> str:
    """The tables of one set as Markdown.

    Args:
        name: one of `SETS`.
        seeds: of the draws.

    Raises:
        ConfigError: no such set.
    """
    if name not in SETS:
        raise ConfigError(f"no set {name!r}{did_you_mean(name, SETS)}; there are {', '.join(SETS)}")
    manifest, vectors = _read(name)
    labels, ids = manifest.labels(), [str(one) for one in manifest.ids()]
    draws = []
    for seed in seeds:
        trial = IdentificationTrial(vectors, labels, OpenSplit.draw(labels, seed=seed), ids)
        claims = trial.down_the_tree
        draws.append(Draw(trial.figures(manifest.levels), claims.confidence, claims.right.astype(float)))
    first = draws[0].figures
    head = f"{name}: {first.indexed:,} images, {first.queries:,} queries; mean of {len(draws)} draws"
    return "\n\n".join([head, method_table(draws), calibration_table(draws)])


def method_table(draws: Sequence[Draw]) -> str:
    """A row for each method, means over the draws; wrong levels and classes at equal depth."""
    rows = []
    for of_method in zip(*(draw.figures.methods for draw in draws), strict=True):
        answers, equal = [one.answers for one in of_method], [one.at_depth for one in of_method]
        answered = [one.right for one in answers if not np.isnan(one.right)]
        accuracy = np.mean([one.accuracy for one in of_method], axis=0)
        rows.append(
            (
                of_method[0].name,
                _numbers(100 * accuracy, 1),
                _numbers(np.mean([one.calibration_error for one in of_method], axis=0), 3),
                f"{fmean(one.depth for one in answers):.2f}",
                f"{100 * fmean(answered):.1f}" if answered else "\u2013",
                f"{fmean(one.depth_at_right for one in of_method):.2f}",
                f"{fmean(one.wrong for one in equal):.2f}",
                f"{100 * fmean(one.severe for one in equal):.1f}",
                f"{fmean(one.new_auroc for one in of_method):.2f}",
            )
        )
    columns = ("accuracy, %", "ECE", "depth at 0.9", "right, %", "depth where 90 % are right")
    return _table(("", *columns, "wrong levels a query", "coarsest wrong, %", "AUROC, new"), rows)


def calibration_table(draws: Sequence[Draw]) -> str:
    """Expected calibration error at each level, and what is promised and kept."""
    generator = np.random.default_rng(0)
    confidence = np.concatenate([draw.confidence for draw in draws])
    right = np.concatenate([draw.right for draw in draws])
    rows = []
    for level, name in enumerate(draws[0].figures.levels):
        errors = [draw.figures.methods[0].calibration_error[level] for draw in draws]
        exact = [exact_error(draw.confidence[:, level], generator) for draw in draws]
        together = expected_calibration_error(confidence[:, level], right[:, level])
        promised, kept = float(confidence[:, level].mean()), float(right[:, level].mean())
        figures = fmean(errors), fmean(exact), together, promised, kept
        rows.append((name, *(f"{value:.3f}" for value in figures)))
    return _table(("level", "ECE", "of exact probabilities", "ECE, draws together", "promised", "kept"), rows)


def exact_error(confidence: FloatArray, generator: np.random.Generator) -> float:
    """Expected calibration error that exactly right probabilities would have on as many queries."""
    drawn = generator.random((_TIMES, len(confidence))) < confidence
    return fmean(expected_calibration_error(confidence, right) for right in drawn)


def _read(name: str) -> tuple[Manifest, Float32Array]:
    """The rows of a set, and their unit vectors."""
    chosen = SETS[name]
    path = fetch(name, size=chosen.size)
    manifest = Manifest.read(path)
    generator = np.random.default_rng(0)
    if chosen.split:
        manifest = manifest.select(chosen.split)
    finest = manifest.labels()[:, -1]
    if chosen.classes:
        kept = generator.choice(np.unique(finest), chosen.classes, replace=False)
        manifest = manifest.take(np.flatnonzero(np.isin(finest, kept)))
    elif chosen.images:
        rows = [
            generator.permutation(np.flatnonzero(finest == one))[: chosen.images] for one in np.unique(finest)
        ]
        manifest = manifest.take(np.sort(np.concatenate(rows)))
    vectors = backbone_features(path, manifest, side=chosen.side)
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return manifest, np.asarray(vectors / np.maximum(lengths, 1e-12), dtype=np.float32)


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _numbers(values: FloatArray, digits: int) -> str:
    return " ".join("\u2013" if np.isnan(value) else f"{value:.{digits}f}" for value in values)
