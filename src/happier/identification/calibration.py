"""Votes -> probabilities: what became of such votes in the index itself.

At a branch, an image is of a class that the index lacks, or it chooses between the children that got votes
and another known child. Each level has its own parameters:

    p(new)                =  1 / (1 + exp(-(n0 + n1 z + n2 log m + n3 g + n4 v)))
    p(child c | known)    ~  exp( (b0 + b1 z + b2 v) log share_c + (b3 + b4 z + b5 v) share_c + b6 d_c
                                  + b7 h_c + b8 log h_c + [c leads] (l0 + l1 log m + l2 v) )
    p(another | known)    ~  exp( a0 + a1 z + a2 log m + a3 v )

where ``m`` is the largest share, ``z`` the similarity of the nearest vote and ``g`` how far it stands out of
the last neighbour, both standardised, and ``d_c`` how much less similar the nearest vote for c is than the
nearest of all, over the standard deviation of g. ``h_c`` is the largest share that one deepest class within c
has: neighbours that agree on more than was asked are to be trusted more. The child with the largest share
leads. ``v`` is the log of the share of all votes that the branch got itself: where neighbours are of one mind
about the branch, they are to be trusted more within it.

The probability of a node is the product of the choices that lead to it. So it falls from parent to child, and
the children of a node sum to at most the node's own: the rest is another child or new. Without data the
probabilities are the shares of the votes, but for a little that is new or another child.
"""

from __future__ import annotations

from typing import Annotated

import numpy as np
from pydantic import Field, field_validator

from happier.arrays import FloatArray, IntArray
from happier.identification.choice import Mask, choice_probabilities
from happier.identification.votes import BranchVotes
from happier.storage.records import Record

__all__ = ["KNOWN_PRIOR", "NEW_SHARE", "Calibration", "LevelCalibration", "known_choice", "new_choice"]

NEW_SHARE = 0.1
"""Of the images to be identified, those expected to be of a finest class that the index lacks; of those, the
same share is expected to be of a new class at the level above, and so on."""
KNOWN_PRIOR = np.array([1.0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, -3, 0, 0, 0])
NEW_PARAMETERS = 5
_LEAST_SHARE = 1e-3
# Below this many images the probabilities are little more than shares of votes.
_FEW = 100

Count = Annotated[int, Field(ge=0)]
# Far beyond what is ever learnt: a stored file must not make probabilities overflow.
Parameter = Annotated[float, Field(ge=-1e6, le=1e6)]
_LEAST_DEVIATION = 1e-9
# Those of another version have other numbers of them.
Parameters = Annotated[list[Parameter], Field(min_length=1, max_length=64)]
Scale = Annotated[list[Parameter], Field(min_length=2, max_length=2)]


class LevelCalibration(Record):
    """The parameters of one level.

    Attributes:
        known: ``b0 .. b8, l0 .. l2, a0 .. a3``.
        new: ``n0 .. n4``.
        nearest: mean and standard deviation of the nearest vote's similarity.
        stands_out: the same of its distance from the last neighbour.
        images: left out one by one to learn from.
        new_images: of classes that were left out.
    """

    known: Parameters
    new: Parameters
    nearest: Scale
    stands_out: Scale
    images: Count
    new_images: Count

    @field_validator("nearest", "stands_out")
    @classmethod
    def _check_deviation(cls, value: list[float]) -> list[float]:
        if value[1] < _LEAST_DEVIATION:
            raise ValueError(f"a standard deviation must be above 0, got {value[1]:g}")
        return value

    def probabilities(self, votes: BranchVotes, children: IntArray) -> tuple[FloatArray, FloatArray]:
        """Probability of each child that got votes, given the branch, and that it is a new one.

        Args:
            votes: in P branches.
            children: how many children each branch has ``[P]``.

        Returns:
            ``[P, C]`` and ``[P]``; where there are no votes both are 0.
        """
        z = standardised(votes.nearest, self.nearest)
        apart = standardised(votes.stands_out, self.stands_out)
        new = choice_probabilities(*new_choice(votes, z, apart), np.asarray(self.new))[:, 1]
        alternatives = known_choice(votes, children, z, self.stands_out[1])
        known = choice_probabilities(*alternatives, np.asarray(self.known))
        voted = votes.voted
        return (
            np.where(voted[:, None], known[:, 1:] * (1 - new)[:, None], 0.0),
            np.where(voted, new, 0.0),
        )


class Calibration(Record):
    """How an index turns votes into probabilities.

    Attributes:
        temperature: T of the votes.
        levels: coarse to fine.
        images: of the index that it was learnt from.
    """

    temperature: Annotated[float, Field(ge=1e-6, le=1e6)]
    levels: list[LevelCalibration]
    images: Count

    @property
    def current(self) -> bool:
        """Whether its parameters are those of this version."""
        expected = len(KNOWN_PRIOR), NEW_PARAMETERS
        return all((len(level.known), len(level.new)) == expected for level in self.levels)

    @property
    def rough(self) -> bool:
        """Whether there was too little to learn from at some level."""
        return any(min(level.images, level.new_images) < _FEW for level in self.levels)

    def describe(self) -> str:
        """In one line."""
        text = f"on {self.images:,} images, votes at temperature {self.temperature:g}"
        if self.rough:
            fewest = min(min(level.images, level.new_images) for level in self.levels)
            text += f"; rough: {fewest} images at the scarcest level, {_FEW} wanted"
        return text


def standardised(values: FloatArray, scale: list[float]) -> FloatArray:
    """Values less their mean, over their standard deviation; 0 where undefined."""
    mean, deviation = scale
    return np.where(np.isfinite(values), (np.where(np.isfinite(values), values, 0) - mean) / deviation, 0.0)


def known_choice(
    votes: BranchVotes, children: IntArray, z: FloatArray, scale: float
) -> tuple[FloatArray, Mask]:
    """The alternatives within the known children: another, and each that got votes; features, available.

    Args:
        votes: in P branches.
        children: how many known children each branch has ``[P]``.
        z: similarity of the nearest vote, standardised ``[P]``.
        scale: that differences of similarity are measured in.
    """
    share = np.log(np.clip(votes.share, _LEAST_SHARE, 1))
    agreed = _agreed(votes)
    pairs, width = share.shape
    features = np.zeros((pairs, 1 + width, len(KNOWN_PRIOR)))
    for first, values in ((0, share), (3, votes.share)):
        features[:, 1:, first] = values
        features[:, 1:, first + 1] = values * z[:, None]
        features[:, 1:, first + 2] = values * agreed[:, None]
    features[:, 1:, 6] = votes.behind / scale
    features[:, 1:, 7] = votes.deepest
    features[:, 1:, 8] = np.log(np.clip(votes.deepest, _LEAST_SHARE, 1)) * votes.there
    leader = 1 + votes.share.argmax(axis=1)
    features[np.arange(pairs), leader, 9:12] = np.stack([np.ones(pairs), _largest(votes), agreed], axis=1)
    features[:, 0, 12:] = np.stack([np.ones(pairs), z, _largest(votes), agreed], axis=1)
    another = votes.there.sum(axis=1) < children
    no_votes = ~votes.voted  # then nothing matters, but one alternative must be there
    return features, np.concatenate([(another | no_votes)[:, None], votes.there], axis=1)


def new_choice(votes: BranchVotes, z: FloatArray, apart: FloatArray) -> tuple[FloatArray, Mask]:
    """The alternatives known and new; features and available."""
    described = np.stack([np.ones(len(z)), z, _largest(votes), apart, _agreed(votes)], axis=1)
    features = np.stack([np.zeros_like(described), described], axis=1)
    return features, np.ones(features.shape[:2], dtype=bool)


def _agreed(votes: BranchVotes) -> FloatArray:
    return np.asarray(np.log(np.clip(votes.of_all, _LEAST_SHARE, 1)))


def _largest(votes: BranchVotes) -> FloatArray:
    return np.asarray(np.log(np.clip(votes.share.max(axis=1), _LEAST_SHARE, 1)))
