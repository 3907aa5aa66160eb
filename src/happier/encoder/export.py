"""Networks as ONNX files."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from happier.encoder.depthwise import plain_convolutions
from happier.extras import needs_extra
from happier.storage.atomic import atomic_file

if TYPE_CHECKING:
    from happier.encoder.encoder import Encoder

__all__ = ["export_module", "export_onnx"]


def export_onnx(encoder: Encoder, path: Path | str) -> Path:
    """Write the encoder as one ONNX file: ``images [batch, 3, H, W]`` -> ``embeddings [batch, dim]``.

    Raises:
        DataError: the file cannot be written there.
    """
    path = Path(path)
    training = encoder.training
    encoder.eval()
    try:
        with atomic_file(path) as part:
            export_module(encoder, encoder.preprocess.size, part, output="embeddings")
    finally:
        encoder.train(training)
    return path


def export_module(module: nn.Module, size: int, path: Path, *, output: str, by_tracing: bool = False) -> None:
    """Write a network: ``images [batch, 3, size, size]`` -> ``<output> [batch, ...]``.

    Args:
        module: the network.
        size: side of the images.
        path: file to write.
        output: name of the result.
        by_tracing: with torch's older exporter, which takes a second instead of fifteen.
    """
    with needs_extra("train"):
        import onnxscript  # noqa: F401 - what torch's exporter is built on
    device = next(module.parameters()).device
    images = (torch.zeros(2, 3, size, size, device=device),)
    names: dict[str, Any] = {"input_names": ["images"], "output_names": [output], "verbose": False}
    with warnings.catch_warnings(), plain_convolutions(module):
        warnings.simplefilter("ignore")  # of the exporter's own code
        if by_tracing:
            axes = {"images": {0: "batch"}, output: {0: "batch"}}
            torch.onnx.export(module, images, path, dynamic_axes=axes, dynamo=False, **names)
            return
        shapes = ({0: torch.export.Dim("batch", min=1)},)
        torch.onnx.export(
            module, images, path, dynamic_shapes=shapes, dynamo=True, external_data=False, **names
        )
