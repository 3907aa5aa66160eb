"""What computes a backbone's features: torch, or what gives the same numbers faster.

    torch         eager, channels-last; any device, any precision
    onnxruntime   CPU, fp32; the backbone exported once to ONNX and kept in the cache
    compile       torch.compile; worth its minutes of compiling for large sets

``auto`` takes onnxruntime on a CPU, where the export exists or is worth its time, else torch. A backend is
compared with eager float32 on the first images: vectors that differ (cosine below 0.9999) are not used.
"""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from happier.errors import HappierError, OptionError, first_line
from happier.extras import needs_extra
from happier.storage.atomic import atomic_file

if TYPE_CHECKING:
    from happier.encoder.encoder import Encoder

__all__ = ["BACKENDS", "check_backend", "feature_function"]

log = logging.getLogger(__name__)
BACKENDS: Final = ("auto", "torch", "onnxruntime", "compile")
SAME_COSINE: Final = 0.9999
# Exporting a network takes as long as some hundred images; below that it must be in the cache already.
_WORTH_EXPORTING: Final = 256
# Finding out whether it exists takes as long as a few images.
_WORTH_LOOKING: Final = 16
_COMPARED: Final = 4
# Of eight images of 224 px. More at a time are no faster, and hold memory for each layer of each image.
_PIXELS_AT_ONCE: Final = 8 * 224 * 224
Features = Callable[[Tensor], Tensor]


def check_backend(name: str, precision: str) -> None:
    """Raises `OptionError` for an unknown backend, or one that has no such precision."""
    if name not in BACKENDS:
        raise OptionError(f"backend must be one of {', '.join(BACKENDS)}, got {name!r}")
    if name == "onnxruntime" and precision != "fp32":
        raise OptionError(f"the backend onnxruntime computes in fp32, not in {precision}; use backend torch")


@contextmanager
def feature_function(encoder: Encoder, *, precision: str, backend: str, images: int) -> Iterator[Features]:
    """Yield a function: images ``[B, 3, H, W]`` -> features ``[B, F]``, on the encoder's device.

    Args:
        encoder: whose backbone computes.
        precision: fp32, bf16 or fp16.
        backend: one of `BACKENDS`.
        images: how many will be computed.

    Raises:
        OptionError: no such backend; or it was asked for by name and gives other vectors than torch.
    """
    check_backend(backend, precision)
    chosen = _choose(encoder, precision, images) if backend == "auto" else backend

    def eager(batch: Tensor) -> Tensor:
        return encoder.features(batch.to(encoder.device))

    with encoder.inference(precision):
        if chosen == "torch":
            yield eager
        else:
            required = backend != "auto"
            fast = _compiled(encoder) if chosen == "compile" else _onnxruntime(encoder, required=required)
            yield _Compared(fast, eager, chosen, required=required)


def _choose(encoder: Encoder, precision: str, images: int) -> str:
    installed = all(importlib.util.find_spec(name) for name in ("onnxruntime", "onnxscript"))
    if encoder.device.type != "cpu" or precision != "fp32" or not installed or images < _WORTH_LOOKING:
        return "torch"
    return "onnxruntime" if images >= _WORTH_EXPORTING or _onnx_file(encoder).is_file() else "torch"


class _Compared:
    """A fast function, compared with the eager one on the first images."""

    def __init__(self, fast: Features, eager: Features, name: str, *, required: bool) -> None:
        self.fast, self.eager, self.name, self.required = fast, eager, name, required
        self.compared = False

    def __call__(self, batch: Tensor) -> Tensor:
        if not self.compared:
            self._compare(batch[:_COMPARED])
        return self.fast(batch)

    def _compare(self, batch: Tensor) -> None:
        expected, found = self.eager(batch).float(), self.fast(batch).float()
        cosine = float(F.cosine_similarity(expected, found).min())
        self.compared = True
        if cosine >= SAME_COSINE:
            return
        what = f"the backend {self.name} differs from float32 (cosine {cosine:.6f})"
        if self.required:
            raise OptionError(f"{what}; use backend torch")
        log.warning("%s; using torch instead", what)
        self.fast = self.eager


def _compiled(encoder: Encoder) -> Features:
    compiled = torch.compile(encoder.features)
    return lambda batch: compiled(batch.to(encoder.device))


def _onnx_file(encoder: Encoder) -> Path:
    from happier.data import cache_folder

    return cache_folder() / "onnx" / f"{encoder.backbone_fingerprint[:24]}-{encoder.preprocess.size}.onnx"


def _onnxruntime(encoder: Encoder, *, required: bool) -> Features:
    try:
        session = _onnx_session(encoder)
    except HappierError:
        raise
    # A network that the exporter does not know, a broken installation: torch computes any.
    except Exception as error:
        what = f"onnxruntime cannot run {encoder.backbone_name} ({first_line(error)[:200]})"
        if required:
            raise OptionError(f"{what}; use backend torch") from error
        log.warning("%s; using torch instead", what)
        return encoder.features

    def run(batch: Tensor) -> Tensor:
        at_once = max(1, _PIXELS_AT_ONCE // (batch.shape[2] * batch.shape[3]))
        parts = [
            session.run(None, {"images": part.float().contiguous().numpy()})[0]
            for part in torch.split(batch, at_once)
        ]
        return torch.from_numpy(np.concatenate(parts))

    return run


def _onnx_session(encoder: Encoder) -> Any:
    with needs_extra("train"):
        import onnxruntime
    path = _onnx_file(encoder)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    # Threads that spin while they wait take the time of those that decode.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")

    def open_session() -> Any:
        if not path.is_file():
            _export_backbone(encoder, path)
        return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])

    try:
        return open_session()
    except Exception:  # noqa: BLE001 - onnxruntime's errors have no common parent
        path.unlink(missing_ok=True)  # damaged: export it again
        return open_session()


def _export_backbone(encoder: Encoder, path: Path) -> None:
    from happier.encoder.export import export_module

    log.info("exporting %s for onnxruntime, once", encoder.backbone_name)
    # The exporter traces what inference mode would hide from it.
    with torch.inference_mode(mode=False), torch.no_grad(), atomic_file(path) as part:
        network = nn.Sequential(encoder.backbone, encoder.pooling).eval()
        export_module(network, encoder.preprocess.size, part, output="features", by_tracing=True)
