"""Several images as one query, against a loop over scalars."""

import math

import numpy as np
import pytest

from happier.errors import InputError
from happier.search.rocchio import rocchio


def slow_rocchio(positive, negative, weight):
    """The same, one number at a time."""
    summed = []
    for at in range(len(positive[0])):
        value = sum(float(one[at]) for one in positive) / len(positive)
        if len(negative):
            value -= weight * sum(float(one[at]) for one in negative) / len(negative)
        summed.append(value)
    length = math.sqrt(sum(value * value for value in summed))
    return [value / length for value in summed]


def unit(generator, count, dim=9):
    vectors = generator.standard_normal((count, dim))
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


@pytest.mark.parametrize(("wanted", "unwanted"), [(1, 0), (2, 0), (1, 1), (3, 5), (16, 16)])
@pytest.mark.parametrize("weight", [0.25, 1.0])
def test_it_is_the_loop(wanted, unwanted, weight):
    generator = np.random.default_rng(wanted + unwanted)
    positive, negative = unit(generator, wanted), unit(generator, unwanted)
    found = rocchio(positive, negative, weight=weight)
    np.testing.assert_allclose(found, slow_rocchio(positive, negative, weight), atol=1e-6)
    assert found.dtype == np.float32
    assert np.linalg.norm(found) == pytest.approx(1)


def test_one_image_alone_is_itself():
    (vector,) = unit(np.random.default_rng(0), 1)
    np.testing.assert_allclose(rocchio(vector[None]), vector, atol=1e-7)


def test_it_moves_towards_and_away():
    query, more, less = unit(np.random.default_rng(1), 3)
    assert rocchio(np.stack([query, more])) @ more > query @ more
    assert rocchio(query[None], less[None]) @ less < query @ less


def test_what_cannot_be_searched_for_is_refused():
    (vector,) = unit(np.random.default_rng(0), 1)
    with pytest.raises(InputError, match="at least one image"):
        rocchio(np.zeros((0, 4), dtype=np.float32))
    with pytest.raises(InputError, match="cancel each other out"):
        rocchio(np.stack([vector, -vector]))
