"""Options of a search engine: their names, defaults and ranges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from happier.errors import OptionError


@dataclass(frozen=True)
class Whole:
    """A whole number.

    Attributes:
        default: where the user gives none.
        low, high: the range that is allowed.
    """

    default: int
    low: int
    high: int


@dataclass(frozen=True)
class Text:
    """A text, one of ``choices`` where there are any."""

    default: str
    choices: tuple[str, ...] = ()


@dataclass(frozen=True)
class Share:
    """A number above 0 and up to 1."""

    default: float


Option = Whole | Text | Share
# An option of every engine: the share of the exact answer that a search must give.
RECALL = Share(0.95)


def asked_recall(options: Mapping[str, Any]) -> float:
    """The recall that the options ask for."""
    return float(options.get("recall", RECALL.default))


def check_options(engine: str, options: Mapping[str, Any], own: Mapping[str, Option]) -> dict[str, Any]:
    """The engine's own options with its defaults filled in; ``recall``, which every engine has, is checked.

    Raises:
        OptionError: an unknown name, or a value of the wrong kind or out of range.
    """
    known = {**own, "recall": RECALL}
    for name, value in options.items():
        if name not in known:
            have = ", ".join(known)
            raise OptionError(f"engine {engine!r} has no option {name!r}; it has: {have}")
        rule = known[name]
        if isinstance(rule, Whole):
            fits = isinstance(value, int) and not isinstance(value, bool) and rule.low <= value <= rule.high
            wanted = f"a whole number from {rule.low:,} to {rule.high:,}"
        elif isinstance(rule, Share):
            fits = isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= 1
            wanted = "a number above 0 and up to 1"
        else:
            fits = isinstance(value, str) and (not rule.choices or value in rule.choices)
            wanted = f"one of {', '.join(rule.choices)}" if rule.choices else "text"
        if not fits:
            raise OptionError(f"option {name!r} of engine {engine!r} must be {wanted}, got {value!r}")
    return {name: options.get(name, rule.default) for name, rule in own.items()}


def parse_options(pairs: Sequence[str]) -> dict[str, Any]:
    """Options as the command line gives them: ``name=value``, numbers as numbers.

    Raises:
        OptionError: not of this form.

    >>> parse_options(["effort=64", "recall=0.99", "uri=catalogue.db"])
    {'effort': 64, 'recall': 0.99, 'uri': 'catalogue.db'}
    """
    options: dict[str, Any] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise OptionError(f"an engine's option is written name=value, got {pair!r}")
        options[name] = _number(value)
    return options


def _number(value: str) -> int | float | str:
    # No option is a number of more digits, and Python reads only a limited number.
    if len(value) >= 20 or not value.replace(".", "", 1).isdecimal():
        return value
    return float(value) if "." in value else int(value)
