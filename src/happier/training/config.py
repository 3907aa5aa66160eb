"""What a run is made of: one typed dataclass for each Hydra group, and the rules for their values."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

from omegaconf import OmegaConf

from happier.data.augmentation import Augmentation
from happier.data.transforms import PRESETS
from happier.encoder import Head
from happier.encoder.head import HEADS
from happier.encoder.pooling import POOLINGS
from happier.errors import ConfigError, OptionError
from happier.losses import LOSSES
from happier.losses.option_checks import check_type
from happier.losses.registry import takes_attributes
from happier.training.loggers import LOGGERS

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

# Keys that affect a run's location or speed, never its outcome.
CHANGEABLE_ON_RESUME = frozenset(
    {
        "run",
        "data.manifest",  # rows and labels are compared by their digest
        "data.workers",
        "data.in_memory",
        "data.feature_folder",
        "training.checkpoint_minutes",
        "training.checkpoint_steps",
        "training.tensorboard",
        "training.logger",
    }
)
RENAMED: Final = {"loss.form": "loss.engine"}
"""Keys that had another name in earlier versions."""


class Rule(NamedTuple):
    """What a value must be, in words and as a test."""

    text: str
    holds: Callable[[Any], bool]


def _between(low: float, high: float, *, above: bool = False, below: bool = False) -> Rule:
    """A number from `low` to `high`; `above` and `below` exclude the ends. NaN is never valid."""
    start = f"more than {low:g}" if above else f"{low:g} or more"
    end = "" if high == math.inf else f" and below {high:g}" if below else f" and at most {high:,}"
    finite = "" if high < math.inf else ", finite"

    def holds(value: Any) -> bool:
        return bool((low < value if above else low <= value) and (value < high if below else value <= high))

    return Rule(f"{start}{end}{finite}", lambda value: holds(value) and value < math.inf)


def _one_of(*names: str) -> Rule:
    return Rule(f"one of {', '.join(names)}", lambda value: value in names)


_COUNT, _POSITIVE_COUNT = _between(0, 2**31), _between(1, 2**31)
_RATE, _POSITIVE = _between(0, math.inf), _between(0, math.inf, above=True)
_OPTIMIZER = _one_of("adam", "adamw", "sgd")
RULES: Final[dict[str, Rule]] = {
    "seed": _between(0, 2**63 - 1),
    "data.workers": _between(0, 1024),
    "data.views": _between(0, 1000),
    "model.dim": _between(1, 65_536),
    "model.pooling": _one_of(*POOLINGS),
    "model.train": _one_of("all", "head"),
    "model.head": _one_of(*HEADS),
    "model.hidden": _between(1, 65_536),
    "model.dropout": _between(0, 1, below=True),
    "optimizer.name": _OPTIMIZER,
    "optimizer.lr": _POSITIVE,
    "optimizer.head_factor": _POSITIVE,
    "optimizer.weight_decay": _RATE,
    "optimizer.momentum": _RATE,
    "optimizer.eta_min": _RATE,
    "optimizer.proxies.name": _OPTIMIZER,
    "optimizer.proxies.lr": _POSITIVE,
    "optimizer.proxies.weight_decay": _RATE,
    "optimizer.proxies.momentum": _RATE,
    "optimizer.proxies.eta_min": _RATE,
    "transform.preset": _one_of(*PRESETS),
    "transform.size": _between(8, 4096),
    "transform.normalize": _one_of("imagenet", "backbone"),
    "transform.crop_scale": _between(0, 1, above=True),
    "transform.crop_ratio": _between(1, 100),
    "transform.rotate": _between(0, 360),
    "transform.colour": _between(0, 1, below=True),
    "sampler.name": _one_of("m_per_class", "hierarchical", "attributes"),
    "sampler.per_class": _POSITIVE_COUNT,
    "sampler.batches_per_pair": _POSITIVE_COUNT,
    "training.epochs": _POSITIVE_COUNT,
    "training.steps": _POSITIVE_COUNT,
    "training.least_epochs": _COUNT,
    "training.batch_size": _between(2, 2**20),
    "training.micro_batch": _POSITIVE_COUNT,
    "training.warmup_epochs": _COUNT,
    "training.precision": _one_of("fp32", "bf16", "fp16"),
    "training.clip_norm": _POSITIVE,
    "training.memory": _COUNT,
    "training.log_every": _POSITIVE_COUNT,
    "training.checkpoint_minutes": Rule("more than 0", lambda value: value > 0),
    "training.checkpoint_steps": _POSITIVE_COUNT,
    "training.logger": _one_of(*LOGGERS),
    "evaluation.every": _COUNT,
    "evaluation.batch_size": _between(1, 2**20),
    "evaluation.patience": _POSITIVE_COUNT,
    "evaluation.keep": _one_of("best", "last"),
}
"""Rules for single values; an optional value may also be null."""


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
    features: str | None = None
    """A .npy file of vectors, one for each row of the manifest, to train a head on; no image is read."""
    feature_folder: str | None = None
    """Where the features of a frozen backbone are kept; by default in the cache, shared by all runs."""
    views: int = 0
    """Augmented views of each image, beside the image itself, that a head is trained on."""


@dataclass
class ModelConfig:
    """Which encoder, see `happier.Encoder`."""

    backbone: str = "resnet50.tv_in1k"
    dim: int = 512
    pretrained: str | None = "imagenet"
    freeze_batch_norm: bool = True
    gradient_checkpointing: bool = False
    pooling: str = "backbone"
    """`backbone` for the network's own, `average`, `gem` with a power that is learnt, or `cls`."""
    train: str = "all"
    """`all`, or `head`: the backbone is frozen, and its features are computed once."""
    head: str = "linear"
    """`linear` (the paper's), or `mlp`: one hidden layer with GELU and dropout."""
    hidden: int = Head.hidden
    """Width of the hidden layer of `mlp`."""
    dropout: float = Head.dropout
    """Share of its hidden units that a step leaves out."""
    start: str | None = None
    """A run or saved model to start from: backbone and head are its own, as are their shapes."""


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
    """Which preprocessing; the fields below `size` control the augmentation of the preset `small`."""

    preset: str = "sop"
    size: int | None = None
    normalize: str = "imagenet"
    """Mean and standard deviation of pixels: ``imagenet``, or ``backbone`` for those of its training."""
    crop_scale: float = Augmentation.crop_scale
    """Smallest share of the area that a random crop keeps."""
    crop_ratio: float = Augmentation.crop_ratio
    """Largest stretch of a random crop."""
    rotate: float = Augmentation.rotate
    """Largest turn in degrees."""
    flip: bool = Augmentation.flip
    """Mirror half of the images."""
    colour: float = Augmentation.colour
    """Largest relative change of brightness, contrast and of each channel."""


@dataclass
class SamplerConfig:
    """Which batches."""

    name: str = "m_per_class"
    per_class: int = 4
    """Images of each class in a batch; of the sampler by attributes: that share an attribute."""
    batches_per_pair: int = 5
    """Of the hierarchical sampler: batches for each pair of coarse classes in an epoch."""


@dataclass
class TrainingConfig:
    """The loop."""

    epochs: int = 75
    steps: int | None = None
    """Steps of the whole run, instead of epochs; with few classes the batch is as large as they can fill."""
    least_epochs: int = 0
    """With `steps`: go on until each image was seen this often, where there are many."""
    batch_size: int = 256
    """Images of a step over all ranks."""
    micro_batch: int | None = None
    """Images held with their graph at a time on a rank; the gradient is that of the full batch."""
    warmup_epochs: int = 0
    """Epochs at the start with a frozen backbone; the schedules start after them."""
    precision: str = "fp32"
    """Of the network, with bf16 also of products with proxies; rankings are computed in fp32."""
    clip_norm: float | None = None
    """Clip the encoder's gradient to this norm; the proxies' gradient is not clipped."""
    memory: int = 0
    """Embeddings of earlier batches that the loss also compares with."""
    log_every: int = 10
    """Steps between lines in metrics.jsonl."""
    checkpoint_minutes: float = 5.0
    checkpoint_steps: int | None = None
    tensorboard: bool = True
    logger: str | None = None
    """Write the figures to `csv`, `wandb` (Weights & Biases) or `mlflow`, too."""


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
    """Count the query in its own class, as the authors' evaluation does; of no effect with attributes."""
    batch_size: int = 128
    patience: int | None = None
    """Stop after this many evaluations without a better H-AP."""
    keep: str = "best"
    """The weights that the run ends with: of the "best" evaluation, or the "last"."""


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

    @property
    def by_attributes(self) -> bool:
        """Whether relevance comes from attributes instead of labels, in the loss and in evaluations."""
        return takes_attributes(str(self.loss.get("name")))

    def faults(self) -> list[str]:
        """Every rule that a value breaks, in one line each."""
        values = flatten(self)
        found = [
            f"{key} must be {rule.text}, got {values[key]!r}"
            for key, rule in RULES.items()
            if values[key] is not None and not rule.holds(values[key])
        ]
        found += self._loss_faults()
        if self.data.manifest is None and self.data.name is None:
            found.append(
                "data.manifest must name a manifest (see `happier data import` and `happier data fetch`)"
            )
        if self.model.train != "head" and (self.data.features or self.data.views):
            found.append("data.features and data.views are for model.train=head")
        if self.data.features and self.data.views:
            found.append("data.views must be 0 with data.features: vectors cannot be augmented")
        if self.data.in_memory and self.transform.preset != "small":
            found.append("data.in_memory must be left out unless transform.preset is small")
        if self.sampler.name == "attributes" and not self.by_attributes:
            found.append(
                f"sampler=attributes is for loss=hap_attributes; loss={self.loss.get('name')} takes labels"
            )
        if self.training.warmup_epochs >= max(self.training.epochs, 1):
            found.append(
                f"training.warmup_epochs must be below training.epochs ({self.training.epochs}), "
                f"got {self.training.warmup_epochs!r}"
            )
        return found

    def _loss_faults(self) -> list[str]:
        """Options of the wrong type; unknown names are found where the loss is built."""
        entry, found = LOSSES.get(str(self.loss.get("name"))), []
        types = entry.option_types if entry else {}
        for option, value in self.loss.items():
            try:
                if option in types:
                    check_type(f"loss.{option}", value, types[option])
            except OptionError as error:
                found.append(str(error))
        return found


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
    """What differs between two configurations, except for keys that do not change the outcome.

    A key that an older stored one lacks counts as its current default.
    """
    after = flatten(asked)
    before = {RENAMED.get(key, key): value for key, value in flatten(stored).items()}
    loss = LOSSES.get(str(after.get("loss.name")))
    options = loss.options if loss is not None else {}
    defaults = {**flatten(TrainConfig()), **{f"loss.{name}": value for name, value in options.items()}}
    before = {**{key: defaults[key] for key in after.keys() & defaults.keys()}, **before}
    return [
        f"{key} was {before.get(key)!r}, is {after.get(key)!r}"
        for key in sorted(before.keys() | after.keys())
        if key not in CHANGEABLE_ON_RESUME and before.get(key) != after.get(key)
    ]
