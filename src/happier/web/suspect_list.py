"""The suspects of an index with what was decided about each."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from happier.curation.corrections import Correction, CorrectionsFile
from happier.curation.labelled_vectors import LabelledVectors
from happier.curation.suspects import Kind, Suspect, find_suspects
from happier.errors import InputError, OptionError
from happier.web.indexed_model import IndexedModel

MOST_IMAGES = 100_000
"""Of an index whose suspects are found while the page waits: every image is compared with every other."""
# How long the end of the process waits for a block of comparisons.
STOP_SECONDS = 10.0


class _StoppedError(Exception):
    """Nobody needs the suspects any more."""


@dataclass(frozen=True)
class SuspectPage:
    """Some suspects.

    Attributes:
        ready: false while they are being found.
        suspects: with the decision about each, or None.
        total: number that there are of this kind.
        decided: number of these that are decided.
    """

    ready: bool
    suspects: Sequence[tuple[Suspect, Correction | None]]
    total: int
    decided: int


class SuspectList:
    """Finds the suspects of an index once, in a thread of its own, and keeps decisions about them.

    Args:
        model: the index.
        corrections: where decisions go; None for a server that only reads.
    """

    def __init__(self, model: IndexedModel, corrections: CorrectionsFile | None = None) -> None:
        self._model, self._corrections = model, corrections
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()
        self._done = False
        self._found: list[Suspect] = []
        self._problem: InputError | None = None

    @property
    def model(self) -> IndexedModel:
        """The state of the index that they are of."""
        return self._model

    @property
    def writable(self) -> bool:
        """Whether decisions are kept."""
        return self._corrections is not None

    def page(self, kind: Kind | None, offset: int, limit: int) -> SuspectPage:
        """Some of the suspects; starts to find them if that has not been started.

        Raises:
            InputError: too many images, or no labels to suspect.
        """
        if not self._is_done():
            return SuspectPage(False, (), 0, 0)
        if self._problem is not None:
            raise self._problem
        decided = self._decisions()
        pairs = [
            (one, decided.get((one.id, "" if one.id else one.label)))
            for one in self._found
            if kind is None or one.kind == kind
        ]
        done = sum(decision is not None for _, decision in pairs)
        return SuspectPage(True, pairs[offset : offset + limit], len(pairs), done)

    def decide(self, correction: Correction) -> int:
        """Keep a decision; returns how many there are.

        Raises:
            OptionError: the server only reads, or it is not a decision.
            SearchError: no such image or class.
        """
        if self._corrections is None:
            raise OptionError("this server only reads; start it with --corrections FILE to decide")
        if correction.id:
            self._model.index.row(correction.id)
        self._model.tree.node(correction.label)
        self._model.tree.node(correction.class_path)
        return self._corrections.record(correction)

    def _decisions(self) -> dict[tuple[str, str], Correction]:
        if self._corrections is None or not self._corrections.path.exists():
            return {}
        return {one.subject: one for one in self._corrections.read()}

    def _is_done(self) -> bool:
        with self._lock:
            if self._thread is None or not (self._done or self._thread.is_alive()):
                self._thread = threading.Thread(target=self._find, name="happier-suspects", daemon=True)
                self._thread.start()
                weakref.finalize(self, _end, self._stop, self._thread)
            # Small catalogues are done before the page would ask again.
            self._thread.join(0.2)
            return self._done

    def _go_on(self, compared: int, total: int) -> None:  # noqa: ARG002
        """Called after each block of comparisons.

        Raises:
            _StoppedError: the process ends, or a newer state of the index is shown.
        """
        if self._stop.is_set() or self._model.stop.is_set():
            raise _StoppedError

    def _find(self) -> None:
        index = self._model.index
        try:
            if len(index) > MOST_IMAGES:
                raise InputError(
                    f"the page finds suspects among at most {MOST_IMAGES:,} images, the index has "
                    f"{len(index):,}: use `happier data suspects`"
                )
            vectors = LabelledVectors(np.asarray(index.vectors), index.items)
            self._found = find_suspects(vectors, progress=self._go_on)
        except InputError as error:
            self._problem = error
        except _StoppedError:
            return
        self._done = True


def _end(stop: threading.Event, thread: threading.Thread) -> None:
    """Stop the thread and wait for it: one that computes while the interpreter ends can abort the process."""
    stop.set()
    if thread is not threading.current_thread():
        thread.join(STOP_SECONDS)
