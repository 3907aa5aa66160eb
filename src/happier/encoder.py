"""Images -> unit vectors: a timm backbone, pooling, layer norm, one linear layer; save, load, export, hub."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, final

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

import happier
from happier.atomic import atomic_file
from happier.depthwise import replace_depthwise
from happier.errors import CheckpointError, InputError, MissingExtraError, OptionError
from happier.model_card import model_card
from happier.weights import fingerprint, load_backbone_weights, read_tensors

if TYPE_CHECKING:
    from PIL.Image import Image

    from happier.data import ImageTransform, Manifest
    from happier.embeddings import Embeddings

__all__ = ["PRECISIONS", "Encoder", "Progress"]

PRECISIONS: Final[Mapping[str, torch.dtype | None]] = {
    "fp32": None,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
}
WEIGHTS_FILE = "model.safetensors"
SETTINGS_FILE = "model.json"


class Progress(Protocol):
    """What is told of items or steps done and of their total, as the work goes on."""

    def __call__(self, done: int, total: int) -> None:
        """Take note."""
        ...


@final
class Encoder(nn.Module):
    """A timm backbone with the paper's head: unit vectors whose inner product is the similarity.

        v = normalise( W norm(pool(backbone(x))) + b )

    where ``norm`` is a layer norm without affine part and ``normalise`` divides by the L2 norm.

    Args:
        backbone: any timm model name, such as ``resnet50.tv_in1k`` or ``vit_small_patch14_dinov2``.
        dim: length of the vectors.
        pretrained: None for random weights; ``imagenet`` for timm's own (from the hub, or its cache);
            ``package:efficientnet_lite0`` for weights installed by pip; else a ``.safetensors`` or ``.pth``
            file.
        transform: preset of the preprocessing, see `happier.data.build_transform`.
        image_size: side of the images in pixels; None for the preset's own.
        freeze_batch_norm: keep batch norm's statistics and affine parts as they came.
        gradient_checkpointing: compute the backbone twice in training to hold less memory.
        level_names: levels of the taxonomy it was trained for, coarse to fine.

    Reference:
        Ramzi et al., Hierarchical Average Precision Training for Pertinent Image Retrieval, ECCV 2022, B.2.

    >>> encoder = Encoder("test_resnet", dim=8, transform="small", image_size=32)
    >>> encoder(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 8])
    """

    def __init__(
        self,
        backbone: str = "resnet50",
        *,
        dim: int = 512,
        pretrained: str | None = None,
        transform: str = "sop",
        image_size: int | None = None,
        freeze_batch_norm: bool = False,
        gradient_checkpointing: bool = False,
        level_names: Sequence[str] = (),
    ) -> None:
        super().__init__()
        if dim < 1:
            raise OptionError(f"dim must be 1 or more, got {dim}")
        self.backbone_name: Final = backbone
        self.dim: Final = dim
        self.transform: Final = transform
        self.image_size: Final = image_size
        self.freeze_batch_norm: Final = freeze_batch_norm
        self.level_names = tuple(level_names)
        self.metrics: dict[str, float] = {}
        """What it scored when it was saved; part of the model card."""

        self.backbone = _build_backbone(backbone, pretrained, image_size)
        replace_depthwise(self.backbone)
        self.norm = nn.LayerNorm(self.backbone.num_features, elementwise_affine=False)
        self.head = nn.Linear(self.backbone.num_features, dim)
        if gradient_checkpointing:
            self.backbone.set_grad_checkpointing()
        self.train_backbone()
        # Convolutions over channels-last memory are up to five times as fast on a CPU.
        self.to(memory_format=torch.channels_last)

    def forward(self, images: Tensor) -> Tensor:
        """Unit vectors ``[B, dim]`` of images ``[B, 3, H, W]``."""
        images = images.contiguous(memory_format=torch.channels_last)
        embeddings = self.head(self.norm(self.backbone(images)))
        # Half precision would leave the norm off by a thousandth.
        return F.normalize(embeddings.float(), dim=-1)

    def train(self, mode: bool = True) -> Encoder:
        """Training or evaluation mode; frozen batch norm stays in evaluation."""
        super().train(mode)
        if self.freeze_batch_norm:
            for module in self._batch_norms():
                module.eval()
        return self

    def train_backbone(self, mode: bool = True) -> None:
        """Let the backbone's weights move, or hold them; frozen batch norm is held in any case."""
        self.backbone.requires_grad_(mode)
        if self.freeze_batch_norm:
            for module in self._batch_norms():
                module.requires_grad_(False)

    def trains_batch_norm(self) -> bool:
        """Whether a vector depends on its batch in training mode."""
        return not self.freeze_batch_norm and any(True for _ in self._batch_norms())

    def _batch_norms(self) -> Iterator[nn.Module]:
        return (module for module in self.backbone.modules() if isinstance(module, _BatchNorm))

    @cached_property
    def preprocess(self) -> ImageTransform:
        """The test transform: a PIL image -> a tensor ``[3, H, W]``."""
        from happier.data import build_transform

        return build_transform(self.transform, train=False, size=self.image_size)

    @property
    def fingerprint(self) -> str:
        """Sha256 of the weights: what was embedded by another model cannot be compared."""
        return fingerprint(self.state_dict())

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.head.weight.device

    def embed(
        self,
        images: Tensor | Sequence[Image | Path | str],
        *,
        batch_size: int = 64,
        precision: str = "fp32",
        progress: Progress | None = None,
    ) -> npt.NDArray[np.float32]:
        """Vectors ``[N, dim]`` of images: paths, PIL images, or preprocessed tensors ``[N, 3, H, W]``.

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
        with self.inference(precision):
            for start in range(0, len(images), batch_size):
                rows = images[start : start + batch_size]
                batch = (
                    rows if isinstance(rows, Tensor) else torch.stack([self._as_tensor(row) for row in rows])
                )
                vectors[start : start + batch_size] = self(batch.to(self.device)).cpu().numpy()
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
        if precision not in PRECISIONS:
            raise OptionError(f"precision must be one of {', '.join(PRECISIONS)}, got {precision!r}")
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
        progress: Progress | None = None,
    ) -> Embeddings:
        """Embed every row of a manifest into a directory, see `happier.embeddings.embed_manifest`."""
        from happier.embeddings import embed_manifest

        return embed_manifest(
            self,
            manifest,
            out_dir,
            batch_size=batch_size,
            precision=precision,
            workers=workers,
            progress=progress,
        )

    def settings(self) -> dict[str, Any]:
        """The content of ``model.json``: all that `from_pretrained` needs beside the weights."""
        return {
            "format": 1,
            "happier": happier.__version__,
            "backbone": self.backbone_name,
            "dim": self.dim,
            "transform": self.transform,
            "image_size": self.image_size,
            "freeze_batch_norm": self.freeze_batch_norm,
            "level_names": list(self.level_names),
            "fingerprint": self.fingerprint,
            # JSON has no NaN: undefined metrics are left out.
            "metrics": {name: value for name, value in self.metrics.items() if math.isfinite(value)},
        }

    def save_pretrained(self, directory: Path | str) -> Path:
        """Write ``model.safetensors``, ``model.json`` and a model card; each file whole or not at all."""
        from safetensors.torch import save_file

        directory = Path(directory)
        # safetensors wants row-major memory; channels-last is an order in memory only.
        tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in self.state_dict().items()}
        settings = self.settings()
        with atomic_file(directory / WEIGHTS_FILE) as part:
            save_file(tensors, part)
        with atomic_file(directory / SETTINGS_FILE) as part:
            part.write_text(json.dumps(settings, indent=2) + "\n")
        with atomic_file(directory / "README.md") as part:
            part.write_text(model_card(settings, settings["metrics"], title=directory.resolve().name))
        return directory

    @classmethod
    def from_pretrained(cls, source: Path | str) -> Encoder:
        """Load a saved model: a directory, a run of ``happier train``, or a repository id of the hub.

        Raises:
            CheckpointError: there is none, or its files do not belong together.
        """
        directory = _find_model(source)
        settings_file, weights_file = directory / SETTINGS_FILE, directory / WEIGHTS_FILE
        try:
            settings = json.loads(settings_file.read_text())
            encoder = cls(
                settings["backbone"],
                dim=settings["dim"],
                transform=settings["transform"],
                image_size=settings["image_size"],
                freeze_batch_norm=settings["freeze_batch_norm"],
                level_names=settings["level_names"],
            )
        except (ValueError, KeyError, TypeError) as error:
            raise CheckpointError(f"{settings_file} is not a model of happier: {error!r}") from error
        try:
            encoder.load_state_dict(read_tensors(weights_file))
        except RuntimeError as error:
            raise CheckpointError(f"{weights_file} does not fit {SETTINGS_FILE}: {error}") from error
        if encoder.fingerprint != settings["fingerprint"]:
            raise CheckpointError(
                f"{weights_file} are not the weights that {SETTINGS_FILE} was written for; "
                "copy both files together"
            )
        encoder.metrics = dict(settings.get("metrics", {}))
        return encoder.eval()

    def push_to_hub(self, repo_id: str, *, private: bool = False) -> str:
        """Upload weights, settings and card to the Hugging Face hub; returns the address."""
        import tempfile

        from huggingface_hub import HfApi

        api = HfApi()
        api.create_repo(repo_id, private=private, exist_ok=True)
        with tempfile.TemporaryDirectory() as folder:
            # The folder's name becomes the card's title.
            directory = self.save_pretrained(Path(folder) / repo_id.split("/")[-1])
            commit = api.upload_folder(repo_id=repo_id, folder_path=directory)
        return str(commit.repo_url)

    def export_onnx(self, path: Path | str) -> Path:
        """Write the encoder as one ONNX file: ``images [batch, 3, H, W]`` -> ``embeddings [batch, dim]``."""
        try:
            import onnxscript  # noqa: F401 - what torch's exporter is built on
        except ImportError as error:
            raise MissingExtraError("onnxscript", "train") from error
        path = Path(path)
        size = self.preprocess.size
        training = self.training
        self.eval()
        try:
            with atomic_file(path) as part:
                torch.onnx.export(
                    self,
                    (torch.zeros(2, 3, size, size, device=self.device),),
                    part,
                    input_names=["images"],
                    output_names=["embeddings"],
                    dynamic_shapes={"images": {0: torch.export.Dim("batch", min=1)}},
                    dynamo=True,
                    external_data=False,
                    verbose=False,
                )
        finally:
            self.train(training)
        return path


def _build_backbone(name: str, pretrained: str | None, image_size: int | None) -> Any:
    try:
        import timm
    except ImportError as error:
        raise MissingExtraError("timm", "train") from error
    architecture = name.split(".")[0]
    if not timm.is_model(architecture):
        raise OptionError(f"timm has no model {name!r}{_nearest(architecture, timm.list_models())}")
    options: dict[str, Any] = {}
    config = timm.get_pretrained_cfg(name, allow_unregistered=True)
    if image_size is not None and config is not None and config.fixed_input_size:
        options["img_size"] = image_size
    if pretrained != "imagenet":
        backbone = timm.create_model(name, pretrained=False, num_classes=0, **options)
        if pretrained is not None:
            load_backbone_weights(backbone, pretrained)
        return backbone
    try:
        return timm.create_model(name, pretrained=True, num_classes=0, **options)
    except (OSError, RuntimeError) as error:
        raise CheckpointError(
            f"the ImageNet weights of {name} cannot be had from the hub "
            f"({(str(error).splitlines() or [''])[0]}); give a local file, or "
            "pretrained='package:efficientnet_lite0' with backbone='tf_efficientnet_lite0', "
            "which needs no network"
        ) from error


def _nearest(name: str, known: Sequence[str]) -> str:
    import difflib

    near = difflib.get_close_matches(name, known, n=3)
    return f"; did you mean {' or '.join(near)}?" if near else ""


def _find_model(source: Path | str) -> Path:
    directory = Path(source)
    if (directory / SETTINGS_FILE).is_file():
        return directory
    if (directory / "config.yaml").is_file():
        raise CheckpointError(f"the run {directory} has no model yet: it ended before its first evaluation")
    text = str(source)
    if directory.exists() or text.count("/") != 1 or text.startswith((".", "/", "~")):
        raise CheckpointError(f"no model at {directory}: there is no {SETTINGS_FILE}")
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(text, allow_patterns=[SETTINGS_FILE, WEIGHTS_FILE, "README.md"]))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
        raise CheckpointError(
            f"{text} is neither a directory with {SETTINGS_FILE} nor a repository that the hub gives "
            f"({(str(error).splitlines() or [''])[0]})"
        ) from error
