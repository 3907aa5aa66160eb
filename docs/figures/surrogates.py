"""The picture of the surrogates: how each counts another item, by how far it is ahead.

Every point is taken from the loss itself, so that the picture cannot differ from the code.
"""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
import numpy as np
import numpy.typing as npt
import torch
from matplotlib.figure import Figure

from happier.losses.objective import Objective
from happier.losses.ranking import ranking_loss
from happier.losses.surrogate import SigmoidSurrogate, Surrogate, step_surrogate
from happier.report.figures import STYLE

SURROGATES: dict[str, tuple[Surrogate, str]] = {
    "the paper's": (step_surrogate("paper"), "#d4572a"),
    "sigmoid, τ = 0.01": (SigmoidSurrogate(0.01), "#8d99a8"),
    "sigmoid, τ = 0.05 (HAPPIER_S)": (SigmoidSurrogate(0.05), "#2f6fb5"),
}


def counted(surrogate: Surrogate, t: npt.NDArray[np.float64]) -> tuple[npt.NDArray, npt.NDArray]:
    """What an item ahead by ``t`` counts: into the rank if of a lower level, into hrank if of a higher one.

    One query for each ``t`` has an item k with score 0 and another with score t. Where that one is a
    negative, the H-AP of the query is ``1 / rank(k)``. Where it is of a higher level, both are positives, and
    H-AP is the mean of ``hrank / rank`` of the two.
    """
    lower = 1 / _h_ap(surrogate, t, levels=(1, 0)) - 1
    behind = 1 / _h_ap(surrogate, -t, levels=(1, 0)) - 1  # k seen from the other item
    if isinstance(surrogate, SigmoidSurrogate):
        return lower, lower  # counts every pair alike
    other = (1 + (t < 0)) / (1 + behind)
    higher = (2 * _h_ap(surrogate, t, levels=(1, 2)) - other) * (1 + (t > 0)) - 1
    return lower, higher


def _h_ap(surrogate: Surrogate, t: npt.NDArray[np.float64], levels: tuple[int, int]) -> npt.NDArray:
    counts = torch.tensor([[levels.count(level) for level in range(3)]])
    objective = Objective.ap(counts, torch.tensor([[0.0, 1.0, 1.0]], dtype=torch.float64))
    scores = torch.from_numpy(np.stack([np.zeros_like(t), t], axis=1))
    values = [
        1 - ranking_loss(row[None], torch.tensor([levels]), objective, surrogate).item() for row in scores
    ]
    return np.array(values)


def draw_surrogates(path: Path) -> None:
    """Both surrogates as an SVG file."""
    t = np.linspace(-0.1, 0.1, 400)  # an even number of points: none at the jump
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(7.4, 3.3), layout="constrained")
        panels = figure.subplots(1, 2)
        for name, (surrogate, colour) in SURROGATES.items():
            for axes, counts in zip(panels, counted(surrogate, t), strict=True):
                axes.plot(t, counts, color=colour, linewidth=1.8, label=name)
        titles = ("lower level, into the rank: H_down", "higher level, into hrank: H_up")
        for axes, title in zip(panels, titles, strict=True):
            axes.step(
                [-0.1, 0, 0.1], [0, 0, 1], where="pre", color="#111111", linewidth=1.0, label="the step H"
            )
            axes.set(title=title, xlabel="score ahead of the item that is ranked", ylim=(-1.1, 3.1))
            axes.grid(alpha=0.2)
        handles, names = panels[0].get_legend_handles_labels()
        figure.legend(handles, names, loc="outside lower center", ncols=4, columnspacing=1.2)
        figure.savefig(path, metadata={"Date": None})
