"""Smooth stand-ins for the step function that counts who is ranked before whom."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final, final

from happier.errors import OptionError, did_you_mean
from happier.losses.option_checks import check_positive, check_type, is_finite


@final
@dataclass(frozen=True)
class StepSurrogate:
    """The bounds of the step function that make the H-AP loss an upper bound of ``1 - H-AP``.

        H_down(t) = sigmoid(t / tau)                    for t <= 0
                    sigmoid(t / tau) + start            for 0 < t <= delta
                    rho (t - delta) + offset            for t > delta
        H_up(t)   = gamma t                             for t <= 0
                    min(nu t + mu, 1)                   for t > 0

    where ``t`` is the score of another item minus that of the item being ranked. ``H_down`` is at least the
    step ``H`` (``H(0) = 0``) and counts items of a lower level into the rank; ``H_up`` is at most ``H`` and
    counts items of a higher level into the hierarchical rank. All other pairs are counted with ``H`` itself
    and have no gradient.

    Attributes:
        tau: temperature of the sigmoid.
        rho: slope beyond ``delta``.
        delta: margin; where the straight line begins.
        start: jump at 0; 0.5 or more makes ``H_down`` an upper bound on ``(0, delta]``.
        offset: value at which the line begins; None continues the sigmoid (1.4933 with the paper's values).
        gamma: slope of ``H_up`` below 0.
        nu: slope of ``H_up`` above 0.
        mu: value of ``H_up`` just above 0.
        hrank: whether the hierarchical rank has a surrogate; without it that rank is counted with ``H``.

    Reference:
        Ramzi et al., Hierarchical Average Precision Training for Pertinent Image Retrieval, ECCV 2022,
        section 3.2 and supplementary A.3. The paper prints ``max`` in ``H_up``, which would not be a lower
        bound.

    >>> surrogate = StepSurrogate()
    >>> round(surrogate.line_offset, 4)
    1.4933
    """

    tau: float = 0.01
    rho: float = 100.0
    delta: float = 0.05
    start: float = 0.5
    offset: float | None = None
    gamma: float = 10.0
    nu: float = 25.0
    mu: float = 0.5
    hrank: bool = True
    line_offset: float = field(init=False, repr=False)

    def __post_init__(self) -> None:
        check_positive("tau", self.tau)
        for name, value in (("rho", self.rho), ("delta", self.delta), ("gamma", self.gamma), ("nu", self.nu)):
            if not (is_finite(value) and value >= 0):
                raise OptionError(f"{name} must be a finite number of 0 or more, got {value!r}")
        offset = self.offset
        check_type("start", self.start, float)
        check_type("offset", offset, float | None)
        check_type("mu", self.mu, float)
        check_type("hrank", self.hrank, bool)
        if offset is None:
            offset = 1 / (1 + math.exp(-min(self.delta / self.tau, 700.0))) + self.start
        object.__setattr__(self, "line_offset", float(offset))


@final
@dataclass(frozen=True)
class SigmoidSurrogate:
    """A plain sigmoid for every pair, with a gradient everywhere.

        H(t) ~ sigmoid(t / tau)

    It tends to the step function as ``tau`` tends to 0, but bounds it from neither side: the baseline of the
    paper's ablation, and Smooth-AP when there is one level.

    Attributes:
        tau: temperature.

    Reference:
        Brown et al., Smooth-AP: Smoothing the Path Towards Large-Scale Image Retrieval, ECCV 2020.

    >>> SigmoidSurrogate().tau
    0.01
    """

    tau: float = 0.01

    def __post_init__(self) -> None:
        check_positive("tau", self.tau)


Surrogate = StepSurrogate | SigmoidSurrogate


def surrogate_numbers(surrogate: Surrogate) -> tuple[float, ...]:
    """Tau, rho, delta, start, offset, gamma, nu, mu, for compiled code; a sigmoid has tau, and zeros.

    >>> surrogate_numbers(SigmoidSurrogate(0.05))[:2]
    (0.05, 0.0)
    """
    if isinstance(surrogate, StepSurrogate):
        p = surrogate
        own = (p.tau, p.rho, p.delta, p.start, p.line_offset, p.gamma, p.nu, p.mu)
        return tuple(float(value) for value in own)
    return (float(surrogate.tau), *(0.0,) * 7)


STEP_PRESETS: Final = {
    # The paper's text.
    "paper": StepSurrogate(),
    # The authors' published configurations: hierarchical rank without a surrogate, offset rounded down.
    "authors": StepSurrogate(offset=1.44, hrank=False),
}
KINDS: Final = ("step", "sigmoid")


def step_surrogate(preset: str, **changes: Any) -> StepSurrogate:
    """A preset with some of its parameters changed; a change of None keeps the preset's value.

    Raises:
        OptionError: an unknown preset, or a parameter out of range.

    >>> step_surrogate("authors", tau=0.05).tau
    0.05
    """
    if preset not in STEP_PRESETS:
        hint = did_you_mean(preset, STEP_PRESETS)
        raise OptionError(f"unknown preset {preset!r}{hint}; one of {', '.join(STEP_PRESETS)}")
    known = {entry.name for entry in fields(StepSurrogate) if entry.init}
    assert known >= set(changes)
    return replace(
        STEP_PRESETS[preset], **{name: value for name, value in changes.items() if value is not None}
    )


def choose_surrogate(surrogate: Surrogate | None, preset: str) -> Surrogate:
    """The surrogate that was given, or else the preset's.

    Raises:
        OptionError: both were given, or an unknown preset.
    """
    if surrogate is None:
        return step_surrogate(preset)
    if not isinstance(surrogate, Surrogate):
        raise OptionError(
            f"surrogate must be a StepSurrogate or a SigmoidSurrogate, got {type(surrogate).__name__}"
        )
    if preset != "paper":
        raise OptionError(
            f"preset={preset!r} has no effect together with surrogate={surrogate!r}: give one of them"
        )
    return surrogate


def surrogate_from_options(
    surrogate: Surrogate | str | None = None, preset: str = "paper", **values: Any
) -> Surrogate:
    """A surrogate from plain values, as a configuration has them.

    Args:
        surrogate: ``"step"`` (also None), ``"sigmoid"``, or a surrogate, which is then returned.
        preset: a key of `STEP_PRESETS`.
        values: parameters of the surrogate; None keeps the default. The sigmoid has ``tau`` only.

    Raises:
        OptionError: an unknown name, a parameter out of range, or one that the surrogate does not have.

    >>> surrogate_from_options("sigmoid", tau=0.05)
    SigmoidSurrogate(tau=0.05)
    """
    plain = STEP_PRESETS["paper"]
    given = {
        name: value
        for name, value in values.items()
        if value is not None and not (name != "tau" and value == getattr(plain, name))
    }
    if isinstance(surrogate, Surrogate):
        if changed := [name for name in given if name != "tau" or given[name] != plain.tau]:
            raise OptionError(f"{', '.join(changed)} has no effect together with surrogate={surrogate!r}")
        return choose_surrogate(surrogate, preset)
    if surrogate in (None, "step"):
        return step_surrogate(preset, **values)
    if surrogate != "sigmoid":
        hint = did_you_mean(surrogate, KINDS)
        raise OptionError(f"unknown surrogate {surrogate!r}{hint}; one of {', '.join(KINDS)}")
    if preset != "paper":
        raise OptionError(f"preset={preset!r} has no effect together with surrogate='sigmoid'")
    if others := [name for name in given if name != "tau"]:
        raise OptionError(f"surrogate='sigmoid' has tau only, got {', '.join(others)}")
    return SigmoidSurrogate(**given)
