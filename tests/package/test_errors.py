"""The hint at the nearest name."""

from __future__ import annotations

import doctest

import happier.errors
from happier.errors import did_you_mean


def test_examples_of_the_docstring():
    found = doctest.testmod(happier.errors)
    assert found.attempted
    assert not found.failed


def test_the_name_itself_is_no_hint():
    assert did_you_mean("nsm", ["nsm"]) == ""
    assert did_you_mean("nsm", []) == ""
