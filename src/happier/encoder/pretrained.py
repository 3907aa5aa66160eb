"""A model on disk and on the hub: ``model.safetensors``, ``model.json`` and a model card.

The settings name the weights by their fingerprint. New weights are first written under a name of their own,
then the settings are replaced, then the weights get their usual name: a kill at any moment leaves a pair that
loads, the old one or the new.
"""

from __future__ import annotations

import math
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

from pydantic import Field

from happier.encoder.head import Head
from happier.encoder.model_card import model_card
from happier.encoder.weights import read_tensors, write_tensors
from happier.errors import CheckpointError, OptionError, first_line
from happier.storage.atomic import atomic_file, scratch_folder, sync
from happier.storage.disk_errors import disk_errors
from happier.storage.lock import locked
from happier.storage.records import Record, SealedRecord, read_record, write_record
from happier.version import __version__

if TYPE_CHECKING:
    from happier.encoder.encoder import Encoder

__all__ = ["ModelSettings", "load_model", "model_settings", "push_model", "save_model"]

WEIGHTS_FILE: Final = "model.safetensors"
SETTINGS_FILE: Final = "model.json"
# Of a run's directory, where there may be no model yet.
RUN_CONFIG_FILE: Final = "config.yaml"
CARD_FILE: Final = "README.md"
_Positive = Annotated[float, Field(gt=0)]
_HINT: Final = "copy the model again (if you edited the file yourself, remove its checksum)"


class _Input(Record):
    """See `happier.data.InputConfig`."""

    size: Annotated[int, Field(ge=1, le=1 << 15)]
    crop: Annotated[float, Field(gt=0, le=1)]
    interpolation: Literal["bilinear", "bicubic"]
    mean: tuple[float, float, float]
    std: tuple[_Positive, _Positive, _Positive]


class ModelSettings(SealedRecord):
    """The content of ``model.json``: all that is needed beside the weights."""

    format: Literal[1]
    happier: str
    backbone: str
    dim: Annotated[int, Field(ge=1, le=1 << 20)]
    transform: str
    image_size: Annotated[int, Field(ge=1, le=1 << 15)] | None
    # Models of earlier versions were trained with ImageNet's mean and standard deviation.
    input: _Input | None = None
    freeze_batch_norm: bool
    level_names: list[str]
    fingerprint: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    metrics: dict[str, float] = Field(default_factory=dict)
    # Models of earlier versions have the paper's head.
    head: Literal["linear", "mlp"] = "linear"
    hidden: Annotated[int, Field(ge=1, le=1 << 20)] = Head.hidden
    dropout: Annotated[float, Field(ge=0, lt=1)] = Head.dropout
    pooling: Literal["backbone", "average", "gem", "cls"] = "backbone"


def model_settings(encoder: Encoder) -> ModelSettings:
    """What ``model.json`` says of an encoder."""
    return ModelSettings(
        format=1,
        happier=__version__,
        backbone=encoder.backbone_name,
        dim=encoder.dim,
        transform=encoder.transform,
        image_size=encoder.image_size,
        input=_Input(**asdict(encoder.input_config)),
        freeze_batch_norm=encoder.freeze_batch_norm,
        level_names=list(encoder.level_names),
        fingerprint=encoder.fingerprint,
        # JSON has no NaN: undefined metrics are left out.
        metrics={name: float(value) for name, value in encoder.metrics.items() if math.isfinite(value)},
        head=encoder.head_shape.kind,  # type: ignore[arg-type]
        hidden=encoder.head_shape.hidden,
        dropout=encoder.head_shape.dropout,
        pooling=encoder.pooling_name,  # type: ignore[arg-type]
    )


def save_model(encoder: Encoder, directory: Path) -> Path:
    """Write weights, settings and card.

    Raises:
        CheckpointError: the directory cannot be written to; an existing model is kept.
    """
    settings = model_settings(encoder)
    with disk_errors(directory, error=CheckpointError), locked(directory):
        new = _unnamed_weights(directory, settings.fingerprint)
        for left in directory.glob(_unnamed_weights(directory, "*").name):
            if left != new:
                left.unlink(missing_ok=True)
        # Beside the usual name, whose leftovers of any fingerprint the next writer removes.
        with scratch_folder(directory / WEIGHTS_FILE) as scratch:
            write_tensors(encoder.state_dict(), scratch / WEIGHTS_FILE)
            (scratch / WEIGHTS_FILE).replace(new)
            sync(directory)
        write_record(settings, directory / SETTINGS_FILE)
        new.replace(directory / WEIGHTS_FILE)
        with atomic_file(directory / CARD_FILE) as part:
            part.write_text(model_card(settings, title=directory.resolve().name), encoding="utf-8")
    return directory


def _unnamed_weights(directory: Path, fingerprint: str) -> Path:
    """Where weights are until the settings name them."""
    return directory / f".model-{fingerprint[:16]}.safetensors"


def load_model(kind: type[Encoder], source: Path | str) -> Encoder:
    """Build the encoder of a directory, a run, or a repository of the hub.

    Raises:
        CheckpointError: there is none, or its files are damaged or do not belong together.
    """
    directory = _find_model(source)
    settings = read_record(directory / SETTINGS_FILE, ModelSettings, hint=_HINT)
    while True:
        try:
            return _load(kind, directory, settings)
        except CheckpointError:
            # The model may have been replaced since its settings were read.
            newest = read_record(directory / SETTINGS_FILE, ModelSettings, hint=_HINT)
            if newest == settings:
                raise
            settings = newest


def _load(kind: type[Encoder], directory: Path, settings: ModelSettings) -> Encoder:
    from happier.data import InputConfig

    try:
        encoder = kind(
            settings.backbone,
            dim=settings.dim,
            transform=settings.transform,
            image_size=settings.image_size,
            input_config=InputConfig(**settings.input.model_dump()) if settings.input else InputConfig(),
            freeze_batch_norm=settings.freeze_batch_norm,
            level_names=settings.level_names,
            head=Head(settings.head, settings.hidden, settings.dropout),
            pooling=settings.pooling,
        )
        encoder.preprocess  # noqa: B018 - built now, so that a wrong preset shows here
    except (OptionError, ValueError, RuntimeError, AssertionError) as error:
        raise CheckpointError(f"{directory / SETTINGS_FILE} is damaged: {first_line(error)}") from error
    weights = _unnamed_weights(directory, settings.fingerprint)
    if not weights.is_file():
        weights = directory / WEIGHTS_FILE
    try:
        encoder.load_state_dict(read_tensors(weights))
    except RuntimeError as error:
        raise CheckpointError(f"{weights} does not fit {SETTINGS_FILE}: {first_line(error)}") from error
    if encoder.fingerprint != settings.fingerprint:
        raise CheckpointError(
            f"{weights} does not hold the weights that {SETTINGS_FILE} was written for: it is damaged, or of "
            "another model; copy both files together"
        )
    encoder.metrics = dict(settings.metrics)
    return encoder.eval()


def _find_model(source: Path | str) -> Path:
    directory = Path(source)
    if (directory / SETTINGS_FILE).is_file():
        return directory
    if (directory / RUN_CONFIG_FILE).is_file():
        raise CheckpointError(f"the run {directory} has no model yet: it ended before its first evaluation")
    text = str(source)
    if directory.exists() or text.count("/") != 1 or text.startswith((".", "/", "~")):
        raise CheckpointError(f"no model at {directory}: there is no {SETTINGS_FILE}")
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(text, allow_patterns=[SETTINGS_FILE, WEIGHTS_FILE, CARD_FILE]))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
        raise CheckpointError(
            f"{text} is neither a directory with {SETTINGS_FILE} nor a repository on the hub "
            f"({first_line(error)})"
        ) from error


def push_model(encoder: Encoder, repo_id: str, *, private: bool) -> str:
    """Upload weights, settings and card to the hub; return the repository's address.

    Raises:
        CheckpointError: the hub cannot be reached, or refuses.
    """
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    api = HfApi()
    try:
        repo = api.create_repo(repo_id, private=private, exist_ok=True)
        with tempfile.TemporaryDirectory() as folder:
            # The folder's name becomes the card's title.
            directory = save_model(encoder, Path(folder) / repo_id.split("/")[-1])
            api.upload_folder(
                repo_id=repo.repo_id,
                folder_path=directory,
                allow_patterns=[WEIGHTS_FILE, SETTINGS_FILE, CARD_FILE],
                commit_message="Upload model",
            )
    except (HfHubHTTPError, HFValidationError, OSError) as error:
        raise CheckpointError(f"cannot upload to {repo_id}: {first_line(error)}") from error
    return str(repo)
