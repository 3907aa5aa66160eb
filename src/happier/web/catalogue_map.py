"""Every image of an index as a point of a plane: near each other where the model finds them alike.

t-SNE of a hundred thousand vectors takes many minutes. Here t-SNE (openTSNE, from PCA positions) lays out a
sample, the landmarks; every other image is put at the weighted mean of the landmarks nearest to it. Up to
`LANDMARKS` images the map is t-SNE of them all.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from happier.extras import needs_extra
from happier.search.index import Index
from happier.web.thumbnails import ThumbnailStore

LANDMARKS = 3_000
NEIGHBOURS = 10
# How fast the weight of a landmark falls with its score.
TEMPERATURE = 0.05
GRID = 65_535
# Another number for another way to lay out, so that maps that were kept are not mixed up.
_LAYOUT = 2
_ROWS_AT_ONCE = 4_096

MapPositions = npt.NDArray[np.uint16]


class CatalogueMap:
    """The map of one state of an index: laid out once, kept beside the thumbnails.

    Args:
        index: the state.
        kept: where maps are kept.
        stop: set when the work should end early.
    """

    def __init__(self, index: Index, kept: ThumbnailStore, stop: threading.Event) -> None:
        self._index, self._kept, self._stop = index, kept, stop
        self._lock = threading.Lock()
        self._positions: MapPositions | None = None

    @property
    def ready(self) -> bool:
        """Whether `positions` returns at once."""
        return self._positions is not None

    def read(self) -> bool:
        """Take a map that was kept; returns whether there is one."""
        if self._positions is None:
            data = self._kept.get(self._key)
            if data is not None and len(data) == 4 * len(self._index):
                self._positions = np.frombuffer(data, dtype="<u2").reshape(-1, 2)
        return self._positions is not None

    def positions(self) -> MapPositions | None:
        """Where each row is ``[N, 2]``, 0 to `GRID`; None when stopped. Takes seconds the first time."""
        with self._lock:
            if not self.read():
                plane = lay_out(self._index.vectors, stop=self._stop.is_set)
                if plane is None:
                    return None
                self._positions = plane
                self._kept.put(self._key, plane.astype("<u2").tobytes())
        return self._positions

    @property
    def _key(self) -> str:
        return f"map-{_LAYOUT}-{self._index.version}"


def lay_out(
    vectors: npt.NDArray[np.float32], *, seed: int = 0, stop: Callable[[], bool] = lambda: False
) -> MapPositions | None:
    """Positions ``[N, 2]`` of unit vectors on a grid of 0 to `GRID`; None when stopped.

    Args:
        vectors: unit vectors ``[N, D]``.
        seed: of the sample and of t-SNE.
        stop: asked now and then whether to end early.
    """
    count = len(vectors)
    rows = np.arange(count)
    if count > LANDMARKS:
        rows = np.sort(np.random.default_rng(seed).choice(count, LANDMARKS, replace=False))
    landmarks = np.asarray(vectors[rows], dtype=np.float32)
    plane = _tsne(landmarks, seed, stop)
    if plane is None:
        return None
    placed = np.empty((count, 2))
    for start in range(0, count, _ROWS_AT_ONCE):
        if stop():
            return None
        part = slice(start, start + _ROWS_AT_ONCE)
        placed[part] = beside_landmarks(np.asarray(vectors[part], dtype=np.float32), landmarks, plane)
    placed[rows] = plane
    return _on_grid(placed)


def beside_landmarks(
    vectors: npt.NDArray[np.float32], landmarks: npt.NDArray[np.float32], plane: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """The weighted mean of the places of the nearest landmarks, for each vector.

        x = sum_l w_l x_l / sum_l w_l,    w_l = exp((s_l - max s) / `TEMPERATURE`)

    over the `NEIGHBOURS` landmarks l with the highest scores s.
    """
    scores = vectors @ landmarks.T  # [vector, landmark]
    count = min(NEIGHBOURS, len(landmarks))
    nearest = np.argpartition(-scores, count - 1, axis=1)[:, :count]
    near = np.take_along_axis(scores, nearest, axis=1).astype(np.float64)
    weights = np.exp((near - near.max(axis=1, keepdims=True)) / TEMPERATURE)
    weights /= weights.sum(axis=1, keepdims=True)
    return np.asarray((plane[nearest] * weights[:, :, None]).sum(axis=1))


def _tsne(
    vectors: npt.NDArray[np.float32], seed: int, stop: Callable[[], bool]
) -> npt.NDArray[np.float64] | None:
    if len(vectors) < 4:  # nothing to lay out
        return np.stack([np.arange(len(vectors)), np.zeros(len(vectors))], axis=1)
    with needs_extra("web"):
        from openTSNE import TSNE
    # Unit vectors: Euclidean neighbours are cosine neighbours. One job, so that a seed gives one map.
    reducer = TSNE(
        perplexity=min(30.0, (len(vectors) - 1) / 3),
        initialization="pca" if vectors.shape[1] > 1 else "random",
        neighbors="exact",
        random_state=seed,
        n_jobs=1,
        callbacks=lambda *_: stop(),
        callbacks_every_iters=20,
    )
    plane = np.asarray(reducer.fit(vectors), dtype=np.float64)
    return None if stop() else plane


def _on_grid(plane: npt.NDArray[np.float64]) -> MapPositions:
    """Turned so that it is as wide as possible, the same scale for both axes, in the middle of the square."""
    plane = plane - plane.mean(axis=0)
    plane = plane @ np.linalg.svd(plane.T @ plane)[0]
    low, high = plane.min(axis=0), plane.max(axis=0)
    size = max(float((high - low).max()), 1e-12)
    square = (plane - (low + high) / 2) / size + 0.5
    return np.asarray(np.rint(np.clip(square, 0, 1) * GRID), dtype=np.uint16)
