"""The embedding pass: images a second of every backend, in one process, and the share that decoding takes.

Backends take turns on the same batch, so that whatever else the machine does slows them alike. Times are
those of the CPU. Weights are random: they do not change the speed.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from happier.bench.measure import alternating_cpu_seconds, cpu_seconds
from happier.bench.photographs import write_photographs
from happier.encoder import Encoder
from happier.encoder.inference_backends import feature_function
from happier.progress import Status

__all__ = ["NETWORKS", "EmbeddingSpeed", "measure_embedding"]

NETWORKS = {
    "lite0": "tf_efficientnet_lite0",
    "resnet50": "resnet50",
    "vit_small": "vit_small_patch16_224",
}
_WAYS = (("eager", "torch", "fp32"), ("bf16", "torch", "bf16"), ("onnxruntime", "onnxruntime", "fp32"))
_COMPILED = ("compile", "compile", "fp32")
_PHOTOGRAPHS = 16


@dataclass(frozen=True)
class EmbeddingSpeed:
    """One network at one size.

    Attributes:
        network: its short name.
        size: side of the images.
        rates: images a second of each way to compute, by name.
        decoding: images a second that one core decodes and preprocesses.
        cosine: least cosine of a way's features to those of eager float32, by name.
    """

    network: str
    size: int
    rates: dict[str, float]
    decoding: float
    cosine: dict[str, float]

    @property
    def best(self) -> str:
        """The fastest way whose vectors are those of eager float32."""
        return max((way for way in self.rates if self.cosine[way] >= 0.9999), key=self.rates.__getitem__)

    @property
    def speedup(self) -> float:
        """Of the best way over eager."""
        return self.rates[self.best] / self.rates["eager"]

    @property
    def decoding_share(self) -> float:
        """Share of decoding in the time of one core that decodes and computes the best way."""
        return self.rates[self.best] / (self.rates[self.best] + self.decoding)


def measure_embedding(
    networks: Sequence[str],
    sizes: Sequence[int],
    *,
    batch_size: int = 64,
    compiled: bool = False,
    status: Status,
) -> Iterator[EmbeddingSpeed]:
    """Measure networks at sizes, one row after the other.

    Args:
        networks: names of `NETWORKS`.
        sizes: sides of the images.
        batch_size: images at a time.
        compiled: also ``torch.compile``, which takes minutes.
        status: called with what is measured next.
    """
    ways = (*_WAYS, _COMPILED) if compiled else _WAYS
    with tempfile.TemporaryDirectory() as folder:
        photographs = write_photographs(Path(folder, f"{number}.jpg") for number in range(_PHOTOGRAPHS))
        for network in networks:
            for size in sizes:
                status(f"{network} at {size} px")
                encoder = Encoder(NETWORKS[network], dim=8, transform="inat", image_size=size).eval()
                yield _measure(network, encoder, ways, photographs, batch_size)


def _measure(
    network: str,
    encoder: Encoder,
    ways: Sequence[tuple[str, str, str]],
    photographs: list[Path],
    batch_size: int,
) -> EmbeddingSpeed:
    size = encoder.preprocess.size
    images = torch.randn(batch_size, 3, size, size, generator=torch.Generator().manual_seed(0))
    outputs: dict[str, Tensor] = {}
    with ExitStack() as open_backends:
        steps = [_step(encoder, way, images, outputs, open_backends) for way in ways]
        for step in steps:
            step()
        seconds = alternating_cpu_seconds(steps)
    decoding = cpu_seconds(lambda: [encoder.read_image(path) for path in photographs])
    expected = outputs["eager"]
    return EmbeddingSpeed(
        network,
        size,
        {name: batch_size / used for (name, _, _), used in zip(ways, seconds, strict=True)},
        len(photographs) / decoding,
        {name: float(torch.cosine_similarity(expected, found).min()) for name, found in outputs.items()},
    )


def _step(
    encoder: Encoder,
    way: tuple[str, str, str],
    images: Tensor,
    outputs: dict[str, Tensor],
    open_backends: ExitStack,
) -> Callable[[], None]:
    """One batch by one way; the backend is opened once."""
    name, backend, precision = way
    compute = open_backends.enter_context(
        feature_function(encoder, precision="fp32", backend=backend, images=10**6)
    )

    def step() -> None:
        with encoder.inference(precision):
            outputs[name] = compute(images).float()

    return step
