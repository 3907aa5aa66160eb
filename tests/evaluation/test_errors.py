"""Bad input: one clear error that says what came and what was expected."""

import numpy as np
import pytest
import torch

import happier
from happier.errors import InputError, OptionError, TaxonomyError

VECTORS = np.eye(4, dtype=np.float32)
LABELS = np.array([[0, 0], [0, 0], [0, 1], [1, 2]])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((VECTORS[0], LABELS), r"embeddings must be a float array \[items, dimensions\], got shape \(4,\)"),
        ((np.zeros((0, 4)), LABELS), r"at least one row and column, got shape \(0, 4\)"),
        ((VECTORS.astype(int), LABELS), "embeddings must be floating point .* got dtype int64"),
        ((torch.eye(4).long(), LABELS), "floating point"),
        ((VECTORS.astype(complex), LABELS), "floating point"),
        ((np.where(VECTORS == 1, np.nan, 0), LABELS), "embeddings must be finite, row 0 holds NaN"),
        ((np.vstack([VECTORS[:3], [[np.inf] * 4]]), LABELS), "row 3"),
        ((VECTORS, LABELS[:3]), "one row per embedding, got 3 rows for 4 queries"),
        ((VECTORS, LABELS, VECTORS), "gallery and gallery_labels must be given together"),
        ((VECTORS, LABELS, None, LABELS), "gallery and gallery_labels must be given together"),
        ((VECTORS, LABELS, VECTORS[:, :2], LABELS), "same dimension, got 4 and 2"),
        ((VECTORS, LABELS, VECTORS, LABELS[:, :1]), "same levels, got 2 and 1"),
        ((VECTORS, LABELS, VECTORS, LABELS[:2]), "2 for a gallery of 4"),
        ((VECTORS, LABELS, np.full((4, 4), np.nan), LABELS), "gallery must be finite"),
        ((VECTORS, LABELS, VECTORS, LABELS, [1, 2, 3, 4]), "ids and gallery_ids must be given together"),
        ((VECTORS, LABELS, None, None, None, [1, 2, 3, 4]), "gallery_ids were given without a gallery"),
        ((VECTORS, LABELS, None, None, [1, 2]), r"ids must hold one id per row, shape \(4,\), got \(2,\)"),
        ((VECTORS, LABELS, None, None, [0.5, 1, 2, 3]), "ids must be integers or strings"),
        ((VECTORS, LABELS, VECTORS, LABELS, list("abcd"), [1, 2, 3, 4]), "both be integers or both strings"),
        ((VECTORS, None), "labels may be None only"),
        ((VECTORS * 3e38, LABELS), "too large for their scores"),
        ((VECTORS.astype(np.float64) * 1e300, LABELS), "huge"),
    ],
)
def test_bad_arrays_are_refused(arguments, message):
    with pytest.raises(InputError, match=message):
        happier.evaluate(*arguments)


def test_a_known_label_below_an_unknown_one_is_refused():
    with pytest.raises(TaxonomyError, match=r"gallery_labels\[1\] is \[-1, 3\]"):
        happier.evaluate(VECTORS, LABELS, VECTORS[:2], [[0, 0], [-1, 3]])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ties": "random"}, "ties must be 'worst' or 'best', got 'random'"),
        ({"ks": (0,)}, "ks must be whole numbers from 1 to"),
        ({"block_size": 0}, "block_size must be 1 or more"),
        ({"threads": -1}, "threads must be 1 or more"),
        ({"engine": "jax"}, "engine must be 'kernel' or 'torch'"),
        ({"engine": "kernel", "device": "meta"}, "runs on the CPU only"),
        ({"relevance": 1.0}, "relevance must be a relevance object or a function"),
        ({"relevance": happier.LevelRelevance([1.0])}, "one value for each of the 2 levels"),
        ({"relevance": lambda q: np.ones((len(q), 3))}, r"shape \(4, 4\), got \(4, 3\)"),
        ({"relevance": lambda q: -np.ones((len(q), 4))}, "0 or more"),
    ],
)
def test_bad_options_are_refused(options, message):
    with pytest.raises((OptionError, InputError), match=message):
        happier.evaluate(VECTORS, LABELS, **options)


def test_all_derive_from_one_error():
    for error in (InputError, OptionError, TaxonomyError):
        assert issubclass(error, happier.HappierError)
        assert issubclass(error, ValueError)
