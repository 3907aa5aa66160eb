"""What a run is made of: one typed dataclass for each Hydra group, and the rules their values must keep."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from happier.errors import ConfigError

__all__ = [
    "DataConfig",
    "EvaluationConfig",
    "ModelConfig",
    "OptimizerConfig",
    "ProxyOptimizerConfig",
    "SamplerConfig",
    "TrainConfig",
    "TrainingConfig",
    "TransformConfig",
    "differences",
    "flatten",
    "to_yaml",
]

OPTIMIZERS = ("adam", "adamw", "sgd")
SAMPLERS = ("m_per_class", "hierarchical")
PRECISIONS = ("fp32", "bf16", "fp16")
# Keys that change where and how fast a run goes, never what comes out of it.
FREE_KEYS = frozenset(
    {
        "run",
        "data.manifest",  # a run knows its rows and labels by their digest
        "data.workers",
        "data.in_memory",
        "training.checkpoint_minutes",
        "training.checkpoint_steps",
        "training.tensorboard",
    }
)


@dataclass
class DataConfig:
    """Which images."""

    manifest: str | None = None
    """Parquet or CSV table, see `happier data`."""
    name: str | None = None
    """Data set to fetch where no manifest is given."""
    workers: int = 2
    """Processes that decode images; none are started where the images fit in memory."""
    in_memory: bool | None = None
    """Hold the decoded images as bytes; by default where the preset is `small` and they take up to 1 GiB."""


@dataclass
class ModelConfig:
    """Which encoder, see `happier.Encoder`."""

    backbone: str = "resnet50.tv_in1k"
    dim: int = 512
    pretrained: str | None = "imagenet"
    freeze_batch_norm: bool = True
    gradient_checkpointing: bool = False


@dataclass
class ProxyOptimizerConfig:
    """How the proxies of a loss are trained."""

    name: str = "adam"
    lr: float = 10.0
    weight_decay: float = 0.0
    momentum: float = 0.9
    eta_min: float = 0.1


@dataclass
class OptimizerConfig:
    """How the weights are trained: cosine from `lr` to `eta_min`."""

    name: str = "adam"
    lr: float = 1e-5
    """Rate of the backbone."""
    head_factor: float = 2.0
    """Rate of the head, as a multiple of the backbone's."""
    weight_decay: float = 1e-4
    momentum: float = 0.9
    """Of sgd, with Nesterov's correction."""
    eta_min: float = 0.0
    proxies: ProxyOptimizerConfig = field(default_factory=ProxyOptimizerConfig)


@dataclass
class TransformConfig:
    """Which preprocessing; what stands below `size` shapes the augmentation of the preset `small`."""

    preset: str = "sop"
    size: int | None = None
    crop_scale: float = 0.6
    """Smallest share of the area that a random crop keeps."""
    crop_ratio: float = 1.2
    """Largest stretch of a random crop."""
    rotate: float = 0.0
    """Largest turn in degrees."""
    flip: bool = False
    """Mirror half of the images."""
    colour: float = 0.2
    """Largest relative change of brightness, contrast and of each channel."""


@dataclass
class SamplerConfig:
    """Which batches."""

    name: str = "m_per_class"
    per_class: int = 4
    batches_per_pair: int = 5
    """Of the hierarchical sampler: batches for each pair of coarse classes in an epoch."""


@dataclass
class TrainingConfig:
    """The loop."""

    epochs: int = 75
    batch_size: int = 256
    """Images of a step over all ranks."""
    micro_batch: int | None = None
    """Images held with their graph at a time on a rank; the gradient is that of the full batch."""
    warmup_epochs: int = 0
    """Epochs at the start with a frozen backbone, during which the schedules wait."""
    precision: str = "fp32"
    clip_norm: float | None = None
    """Largest norm of the encoder's gradient, longer ones are cut to it; the proxies' is left as it is."""
    memory: int = 0
    """Embeddings of earlier batches that the loss also compares with."""
    log_every: int = 10
    """Steps between lines in metrics.jsonl."""
    checkpoint_minutes: float = 5.0
    checkpoint_steps: int | None = None
    tensorboard: bool = True


@dataclass
class EvaluationConfig:
    """The evaluation between epochs."""

    every: int = 1
    """Epochs between evaluations; the last epoch is always evaluated. 0: never."""
    split: str | None = None
    """By default val, else test, else query against gallery."""
    start: bool = False
    """Evaluate the untrained model too."""
    count_query: bool = False
    """Count the query in its own class, as the authors' evaluation does."""
    batch_size: int = 128
    patience: int | None = None
    """Stop after so many evaluations without a better H-AP."""


@dataclass
class TrainConfig:
    """A whole run."""

    recipe: str = "folder"
    run: str | None = None
    """Directory of the run; by default runs/RECIPE-LOSS and what else was set."""
    seed: int = 0
    data: DataConfig = field(default_factory=DataConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    loss: dict[str, Any] = field(default_factory=dict)
    loss_defaults: dict[str, Any] = field(default_factory=dict)
    """Options that a recipe gives to each loss by name; they go into `loss`."""
    optimizer_defaults: dict[str, Any] = field(default_factory=dict)
    """Options of the optimiser that a recipe gives to losses by name; they go into `optimizer`."""
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    transform: TransformConfig = field(default_factory=TransformConfig)
    sampler: SamplerConfig = field(default_factory=SamplerConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)

    @property
    def run_dir(self) -> Path:
        """Directory of the run."""
        if self.run is None:
            raise ConfigError("run must name the directory of the run")
        return Path(self.run)

    def faults(self) -> list[str]:
        """Every rule that a value breaks, in one line each."""
        found: list[str] = []

        def rule(holds: bool, key: str, text: str) -> None:
            if not holds:
                found.append(f"{key} must be {text}, got {_get(self, key)!r}")

        def one_of(key: str, known: tuple[str, ...]) -> None:
            rule(_get(self, key) in known, key, f"one of {', '.join(known)}")

        training, optimizer = self.training, self.optimizer
        if self.data.manifest is None and self.data.name is None:
            found.append(
                "data.manifest must name a manifest (see `happier data import` and `happier data fetch`)"
            )
        rule(self.data.workers >= 0, "data.workers", "0 or more")
        rule(self.model.dim >= 1, "model.dim", "1 or more")
        one_of("optimizer.name", OPTIMIZERS)
        one_of("optimizer.proxies.name", OPTIMIZERS)
        for key in ("optimizer.lr", "optimizer.proxies.lr", "optimizer.head_factor"):
            rule(_get(self, key) > 0, key, "more than 0")
        for key in ("weight_decay", "momentum", "eta_min"):
            rule(_get(optimizer, key) >= 0, f"optimizer.{key}", "0 or more")
            rule(_get(optimizer.proxies, key) >= 0, f"optimizer.proxies.{key}", "0 or more")
        rule(self.transform.size is None or self.transform.size >= 8, "transform.size", "8 or more")
        rule(0 < self.transform.crop_scale <= 1, "transform.crop_scale", "more than 0 and at most 1")
        rule(self.transform.crop_ratio >= 1, "transform.crop_ratio", "1 or more")
        rule(0 <= self.transform.colour < 1, "transform.colour", "0 or more and below 1")
        if self.data.in_memory and self.transform.preset != "small":
            found.append("data.in_memory must be left out unless transform.preset is small")
        one_of("sampler.name", SAMPLERS)
        rule(self.sampler.per_class >= 1, "sampler.per_class", "1 or more")
        rule(self.sampler.batches_per_pair >= 1, "sampler.batches_per_pair", "1 or more")
        rule(training.epochs >= 1, "training.epochs", "1 or more")
        rule(training.batch_size >= 2, "training.batch_size", "2 or more")
        rule(training.micro_batch is None or training.micro_batch >= 1, "training.micro_batch", "1 or more")
        rule(
            0 <= training.warmup_epochs < max(training.epochs, 1),
            "training.warmup_epochs",
            f"0 or more and below training.epochs ({training.epochs})",
        )
        one_of("training.precision", PRECISIONS)
        rule(training.clip_norm is None or training.clip_norm > 0, "training.clip_norm", "more than 0")
        rule(training.memory >= 0, "training.memory", "0 or more")
        rule(training.log_every >= 1, "training.log_every", "1 or more")
        rule(training.checkpoint_minutes > 0, "training.checkpoint_minutes", "more than 0")
        rule((training.checkpoint_steps or 1) >= 1, "training.checkpoint_steps", "1 or more")
        rule(self.evaluation.every >= 0, "evaluation.every", "0 or more")
        rule(self.evaluation.batch_size >= 1, "evaluation.batch_size", "1 or more")
        rule((self.evaluation.patience or 1) >= 1, "evaluation.patience", "1 or more")
        return found


def _get(config: Any, key: str) -> Any:
    return flatten(config)[key]


def flatten(config: Any) -> dict[str, Any]:
    """Dataclass or mapping -> {"training.epochs": 75, ...}.

    >>> flatten({"training": {"epochs": 2}, "seed": 0})
    {'training.epochs': 2, 'seed': 0}
    """
    flat: dict[str, Any] = {}
    items = (
        [(item.name, vars(config)[item.name]) for item in fields(config)]
        if is_dataclass(config)
        else list(config.items())
    )
    for key, value in items:
        if is_dataclass(value) or (isinstance(value, dict) and value):
            flat.update({f"{key}.{inner}": leaf for inner, leaf in flatten(value).items()})
        else:
            flat[key] = value
    return flat


def to_yaml(config: TrainConfig) -> str:
    """The whole configuration, as in a run's config.yaml."""
    return OmegaConf.to_yaml(asdict(config))


def differences(stored: Any, asked: Any) -> list[str]:
    """What stands differently in two configurations, but for the keys that do not change the outcome."""
    before, after = flatten(stored), flatten(asked)
    return [
        f"{key} was {before.get(key)!r}, is {after.get(key)!r}"
        for key in sorted(before.keys() | after.keys())
        if key not in FREE_KEYS and before.get(key) != after.get(key)
    ]
