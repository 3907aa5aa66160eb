"""Images -> unit vectors: a timm backbone, pooling, layer norm, a head."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, final

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from happier.arrays import Float32Array
from happier.encoder.backbone import backbone_input, build_backbone
from happier.encoder.depthwise import replace_depthwise
from happier.encoder.head import Head, HeadOnly, unit_vectors
from happier.encoder.pooling import set_pooling
from happier.encoder.weights import fingerprint
from happier.errors import InputError, OptionError
from happier.progress import Progress

if TYPE_CHECKING:
    from PIL.Image import Image

    from happier.data import ImageTransform, InputConfig, Manifest
    from happier.encoder.embeddings import Embeddings

__all__ = ["PRECISIONS", "Encoder"]

PRECISIONS: Final[Mapping[str, torch.dtype | None]] = {
    "fp32": None,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
}


@final
class Encoder(nn.Module):
    """A timm backbone with a head: unit vectors whose inner product is the similarity.

        v = normalise( head(norm(pool(backbone(x)))) )

    where ``norm`` is a layer norm without affine part, ``head`` the paper's ``W x + b`` unless another is
    asked for, and ``normalise`` divides by the L2 norm.

    Args:
        backbone: any timm model name, such as ``resnet50.tv_in1k`` or ``vit_small_patch14_dinov2``.
        dim: length of the vectors.
        pretrained: None for random weights; ``imagenet`` for timm's own (from the hub, or its cache);
            ``package:efficientnet_lite0`` for weights installed by pip; ``hub:imageomics/bioclip`` for a
            repository of the hub; else a ``.safetensors`` or ``.pth`` file.
        transform: preset of the preprocessing, see `happier.data.build_transform`.
        image_size: side of the images in pixels; None for the preset's own.
        input_config: mean, standard deviation and the like of the images; by default those that the backbone
            was trained with, which timm knows.
        freeze_batch_norm: keep batch norm's statistics and affine parts as they came.
        gradient_checkpointing: compute the backbone twice in training to hold less memory.
        level_names: levels of the taxonomy it was trained for, coarse to fine.
        head: ``linear``, ``mlp``, or a `happier.encoder.Head`.
        pooling: ``backbone`` for the network's own; ``average``; ``gem``, see
            `happier.encoder.pooling.GeM`; or ``cls``, the class token of a transformer.

    Reference:
        Ramzi et al., Hierarchical Average Precision Training for Pertinent Image Retrieval, ECCV 2022, B.2.

    >>> encoder = Encoder("test_resnet", dim=8, transform="small", image_size=32)
    >>> encoder(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 8])
    """

    def __init__(  # noqa: PLR0913 - the fields of model.json
        self,
        backbone: str = "resnet50",
        *,
        dim: int = 512,
        pretrained: str | None = None,
        transform: str = "sop",
        image_size: int | None = None,
        input_config: InputConfig | None = None,
        freeze_batch_norm: bool = False,
        gradient_checkpointing: bool = False,
        level_names: Sequence[str] = (),
        head: str | Head = "linear",
        pooling: str = "backbone",
    ) -> None:
        super().__init__()
        if dim < 1:
            raise OptionError(f"dim must be 1 or more, got {dim}")
        self.backbone_name: Final = backbone
        self.dim: Final = dim
        self.transform: Final = transform
        self.image_size: Final = image_size
        self.input_config: Final = input_config or backbone_input(backbone)
        self.freeze_batch_norm: Final = freeze_batch_norm
        self.pooling_name: Final = pooling
        self.head_shape: Final = head if isinstance(head, Head) else Head(head)
        self.level_names = tuple(level_names)
        self.metrics: dict[str, float] = {}
        """What it scored when it was saved; part of the model card."""

        self.backbone = build_backbone(backbone, pretrained, self._side)
        replace_depthwise(self.backbone)
        self.pooling = set_pooling(self.backbone, backbone, pooling)
        self.norm = nn.LayerNorm(self.backbone.num_features, elementwise_affine=False)
        self.head = self.head_shape.build(self.backbone.num_features, dim)
        if gradient_checkpointing:
            self.backbone.set_grad_checkpointing()
        self.train_backbone()
        # Convolutions over channels-last memory are up to five times as fast on a CPU.
        self.to(memory_format=torch.channels_last)

    def forward(self, images: Tensor) -> Tensor:
        """Unit vectors ``[B, dim]`` of images ``[B, 3, H, W]``."""
        return self.head_forward(self.features(images))

    def features(self, images: Tensor) -> Tensor:
        """What backbone and pooling make ``[B, F]`` of images ``[B, 3, H, W]``."""
        features: Tensor = self.pooling(self.backbone(images.contiguous(memory_format=torch.channels_last)))
        return features

    def head_forward(self, features: Tensor) -> Tensor:
        """Unit vectors ``[B, dim]`` of features ``[B, F]``."""
        return unit_vectors(features, self.norm, self.head)

    def head_only(self) -> HeadOnly:
        """The part behind the backbone as a module of its own, with the same weights."""
        return HeadOnly(self.norm, self.head)

    def train(self, mode: bool = True) -> Encoder:
        """Training or evaluation mode; frozen batch norm stays in evaluation."""
        super().train(mode)
        if self.freeze_batch_norm:
            for module in self._batch_norms():
                module.eval()
        return self

    def train_backbone(self, mode: bool = True) -> None:
        """Let the weights of backbone and pooling move, or hold them; frozen batch norm is always held."""
        self.backbone.requires_grad_(mode)
        self.pooling.requires_grad_(mode)
        if self.freeze_batch_norm:
            for module in self._batch_norms():
                module.requires_grad_(False)

    def trains_batch_norm(self) -> bool:
        """Whether a vector depends on its batch in training mode."""
        return not self.freeze_batch_norm and any(True for _ in self._batch_norms())

    def _batch_norms(self) -> Iterator[nn.Module]:
        return (module for module in self.backbone.modules() if isinstance(module, _BatchNorm))

    @property
    def _side(self) -> int | None:
        """The images' side for networks that are built for one; None leaves it to the network."""
        return (
            self.input_config.size
            if self.transform == "backbone" and not self.image_size
            else self.image_size
        )

    @cached_property
    def preprocess(self) -> ImageTransform:
        """The test transform: a PIL image -> a tensor ``[3, H, W]``."""
        from happier.data import build_transform

        return build_transform(
            self.transform, train=False, size=self.image_size, input_config=self.input_config
        )

    @property
    def fingerprint(self) -> str:
        """Sha256 of the weights: what was embedded by another model cannot be compared."""
        return fingerprint(self.state_dict(), self._pooling_mark)

    @property
    def backbone_fingerprint(self) -> str:
        """Sha256 of the weights of backbone and pooling: models that share it share features."""
        return fingerprint({**self.backbone.state_dict(), **self.pooling.state_dict()}, self._pooling_mark)

    @property
    def _pooling_mark(self) -> str:
        """What the weights do not show: two poolings may have the same."""
        return "" if self.pooling_name == "backbone" else self.pooling_name

    @property
    def feature_dim(self) -> int:
        """Numbers per image that the backbone gives to the head."""
        return int(self.backbone.num_features)

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return next(self.head.parameters()).device

    def embed(
        self,
        images: Tensor | Sequence[Image | Path | str],
        *,
        batch_size: int = 64,
        precision: str = "fp32",
        backend: str = "auto",
        progress: Progress | None = None,
    ) -> Float32Array:
        """Vectors ``[N, dim]`` of images: paths, PIL images, or preprocessed tensors ``[N, 3, H, W]``.

        Args:
            images: what to embed.
            batch_size: images at a time.
            precision: fp32, bf16 or fp16.
            backend: what computes, see `happier.encoder.inference_backends`.
            progress: called with the images done and their number.

        Raises:
            ImageError: a file cannot be read; the message names it.
            InputError: not a sequence of images.
        """
        if isinstance(images, str | Path):
            raise InputError(f"embed takes a sequence of images, got one path; use embed([{str(images)!r}])")
        if isinstance(images, Tensor) and images.ndim != 4:
            raise InputError(f"images must be a tensor [N, 3, H, W], got shape {tuple(images.shape)}")
        if batch_size < 1:
            raise OptionError(f"batch_size must be 1 or more, got {batch_size}")
        vectors = np.empty((len(images), self.dim), dtype=np.float32)
        from happier.encoder.vector_models import embedding_function

        with embedding_function(self, precision, backend, len(images)) as compute:
            for start in range(0, len(images), batch_size):
                rows = images[start : start + batch_size]
                batch = (
                    rows if isinstance(rows, Tensor) else torch.stack([self._as_tensor(row) for row in rows])
                )
                vectors[start : start + batch_size] = compute(batch)
                if progress is not None:
                    progress(min(start + batch_size, len(images)), len(images))
        return vectors

    def read_image(self, path: Path | str) -> Tensor:
        """A file, preprocessed: ``[3, H, W]``."""
        from happier.data import decode_image

        tensor: Tensor = self.preprocess(decode_image(path, at_least=self.preprocess.decode_at_least))
        return tensor

    def _as_tensor(self, image: Image | Path | str) -> Tensor:
        if isinstance(image, str | Path):
            return self.read_image(image)
        tensor: Tensor = self.preprocess(image.convert("RGB"))
        return tensor

    @contextmanager
    def inference(self, precision: str = "fp32") -> Iterator[None]:
        """Evaluation mode, no gradients, the precision asked for; the mode before it comes back after."""
        check_precision(precision)
        dtype = PRECISIONS[precision]
        training = self.training
        self.eval()
        try:
            with (
                torch.inference_mode(),
                torch.autocast(self.device.type, dtype=dtype, enabled=dtype is not None),
            ):
                yield
        finally:
            self.train(training)

    def embed_manifest(
        self,
        manifest: Manifest,
        out_dir: Path | str,
        *,
        batch_size: int = 64,
        precision: str = "fp32",
        workers: int = 0,
        backend: str = "auto",
        progress: Progress | None = None,
    ) -> Embeddings:
        """Embed every row of a manifest into a directory, see `happier.encoder.embeddings.embed_manifest`."""
        from happier.encoder.embeddings import embed_manifest

        return embed_manifest(
            self,
            manifest,
            out_dir,
            batch_size=batch_size,
            precision=precision,
            workers=workers,
            backend=backend,
            progress=progress,
        )

    def settings(self) -> dict[str, Any]:
        """The content of ``model.json``: all that `from_pretrained` needs beside the weights."""
        from happier.encoder.pretrained import model_settings

        return model_settings(self).model_dump()

    def save_pretrained(self, directory: Path | str) -> Path:
        """Write ``model.safetensors``, ``model.json`` and a model card.

        An existing model is replaced as a whole: at any moment the old one or the new one loads.

        Raises:
            CheckpointError: the directory cannot be written to.
        """
        from happier.encoder.pretrained import save_model

        return save_model(self, Path(directory))

    @classmethod
    def from_pretrained(cls, source: Path | str) -> Encoder:
        """Load a saved model: a directory, a run of ``happier train``, or a repository id of the hub.

        Raises:
            CheckpointError: there is none, or its files are damaged or do not belong together.
        """
        from happier.encoder.pretrained import load_model

        return load_model(cls, source)

    def push_to_hub(self, repo_id: str, *, private: bool = False) -> str:
        """Upload weights, settings and card to the Hugging Face hub; returns the address.

        Raises:
            CheckpointError: the hub cannot be reached, or refuses.
        """
        from happier.encoder.pretrained import push_model

        return push_model(self, repo_id, private=private)

    def export_onnx(self, path: Path | str) -> Path:
        """Write the encoder as one ONNX file: ``images [batch, 3, H, W]`` -> ``embeddings [batch, dim]``."""
        from happier.encoder.export import export_onnx

        return export_onnx(self, path)


def check_precision(precision: str) -> None:
    """Raises `OptionError` where there is no such precision."""
    if precision not in PRECISIONS:
        raise OptionError(f"precision must be one of {', '.join(PRECISIONS)}, got {precision!r}")
