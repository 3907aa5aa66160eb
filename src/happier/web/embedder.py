"""Vectors of new images: one thread computes, and all images that wait for it make one batch."""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import ExitStack
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

from PIL.Image import Image

from happier.arrays import Float32Array
from happier.errors import first_line

if TYPE_CHECKING:
    from torch import Tensor

    from happier.encoder import Encoder

log = logging.getLogger("happier.web")
_Waiting = SimpleQueue["tuple[Tensor, Future[Float32Array]] | None"]
MAX_BATCH = 32
# How long the end of the process waits for the last batch.
STOP_SECONDS = 10.0
# The exported network is used for as long as the server runs, so that it is always worth exporting.
_MANY_IMAGES = 1_000_000


class Embedder:
    """A model that embeds for many requests at once.

    A batch is what arrived while the one before it was computed: a request that is alone never waits for
    others, and under load none waits for more than one batch before its own.

    Attributes:
        encoder: the model.
    """

    def __init__(self, encoder: Encoder) -> None:
        self.encoder = encoder
        self._waiting: _Waiting = SimpleQueue()
        self._start = threading.Lock()
        self._thread: threading.Thread | None = None

    def embed(self, image: Image) -> Float32Array:
        """The vector ``[D]`` of an image."""
        return self.embed_tensor(self.encoder.preprocess(image.convert("RGB")))

    def embed_tensor(self, tensor: Tensor) -> Float32Array:
        """The vector ``[D]`` of a preprocessed image ``[3, H, W]``."""
        with self._start:
            if self._thread is None:
                self._thread = threading.Thread(
                    target=_serve, args=(self.encoder, self._waiting), name="happier-embed", daemon=True
                )
                self._thread.start()
                weakref.finalize(self, _stop, self._waiting, self._thread)
        result: Future[Float32Array] = Future()
        self._waiting.put((tensor, result))
        return result.result()

    @property
    def queued(self) -> int:
        """Images that wait to be embedded."""
        return self._waiting.qsize()


def _stop(waiting: _Waiting, thread: threading.Thread) -> None:
    """End the thread and wait for it: torch aborts if it frees tensors while the interpreter ends."""
    waiting.put(None)
    if thread is not threading.current_thread():
        thread.join(STOP_SECONDS)


def _serve(encoder: Encoder, waiting: _Waiting) -> None:
    """Embed what is queued until None is; it holds no reference to the `Embedder`, which ends it that way."""
    with ExitStack() as stack:
        compute = _start(encoder, stack)
        while (first := waiting.get()) is not None:
            batch = [first]
            while len(batch) < MAX_BATCH:
                try:
                    one = waiting.get_nowait()
                except Empty:
                    break
                if one is None:
                    waiting.put(None)
                    break
                batch.append(one)
            _compute(compute, batch)


def _start(encoder: Encoder, stack: ExitStack) -> Callable[[Tensor], Float32Array]:
    """What computes vectors: the fastest that starts, else torch, else a function that raises the error."""
    from happier.encoder.vector_models import embedding_function

    try:
        return stack.enter_context(embedding_function(encoder, "fp32", "auto", _MANY_IMAGES))
    except Exception as error:  # noqa: BLE001 - no place for the exported network, a broken onnxruntime
        log.warning("embedding with torch: %s", first_line(error))
    try:
        return stack.enter_context(embedding_function(encoder, "fp32", "torch", _MANY_IMAGES))
    except Exception as error:  # noqa: BLE001 - raised where it is asked for, else requests would wait for ever
        fault = error

    def fail(_: Tensor) -> Float32Array:
        raise fault

    return fail


def _compute(
    compute: Callable[[Tensor], Float32Array], batch: list[tuple[Tensor, Future[Float32Array]]]
) -> None:
    import torch

    try:
        vectors = compute(torch.stack([tensor for tensor, _ in batch]))
    # Whatever it is, it belongs to those who wait for it.
    except Exception as error:  # noqa: BLE001
        for _, result in batch:
            result.set_exception(error)
        return
    for (_, result), vector in zip(batch, vectors, strict=True):
        result.set_result(vector)
