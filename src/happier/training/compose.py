"""Hydra overrides -> a checked `TrainConfig`; all faults at once, each with the nearest name.

The groups are composed by Hydra. Values are then set one by one, so that every fault is reported: Hydra
itself stops at the first. Sweeps (``-m``) run through Hydra's own sweeper and launcher.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import torch
from hydra import compose as hydra_compose
from hydra import initialize_config_module
from hydra import main as hydra_main
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from happier.errors import ConfigError, did_you_mean, first_line
from happier.losses import LOSSES
from happier.training.config import RENAMED, TrainConfig, flatten

log = logging.getLogger(__name__)

__all__ = ["combinations", "compose", "quoted", "sweep"]

_MODULE = "happier.conf"
_NAME = "config"
_GROUPS = ("data", "model", "loss", "optimizer", "transform", "sampler", "recipe")
# Left out of a run's default name: it starts with the recipe and the loss, the others do not affect results.
_NOT_IN_NAME = ("recipe", "loss", "run", "data.manifest", "data.workers", "training.tensorboard")
# Options of losses that take Python objects, which a configuration cannot name.
_OBJECTS = ("generator", "relevance")


def compose(overrides: Sequence[str]) -> TrainConfig:
    """Compose the configuration of one run.

    Args:
        overrides: as on the command line: ``recipe=emoji``, ``loss=nsm``, ``training.epochs=3``.

    Raises:
        ConfigError: lists every unknown choice, unknown key, and value of the wrong type or range.

    >>> compose(["recipe=small", "data.manifest=a.csv", "training.epochs=3"]).training.epochs
    3
    """
    choices, values, faults = _parse(overrides)
    config = _compose_groups(choices, faults, _recipe_for_device(choices, values))
    _apply_loss_defaults(config)
    keys = {value.key_or_group for value in values}
    if "training.epochs" in keys and "training.steps" not in keys:
        config.training.steps = None
    if "training.steps" in keys:
        config.training.least_epochs = 0  # of the recipe; who names the steps wants no more
    for value in values:
        faults += _set(config, value.key_or_group, value.value())
    if faults:
        raise _faulty(faults)
    try:
        typed = cast(TrainConfig, OmegaConf.to_object(config))
    except OmegaConfBaseException as error:
        raise _faulty([first_line(error)]) from error
    if typed.run is None:
        typed = replace(typed, run=_run_name(typed, overrides))
    if faults := typed.faults():
        raise _faulty(faults)
    return typed


def sweep(overrides: Sequence[str], run: Callable[[TrainConfig], None]) -> None:
    """Run every combination of the comma-separated overrides through Hydra's sweeper and launcher.

    Raises:
        ConfigError: a combination is faulty; nothing is run then.
    """
    for job in combinations(overrides):
        compose(job)
    _register()

    def task(_: DictConfig) -> None:
        run(compose(list(HydraConfig.get().overrides.task)))

    with _as_hydra_reads_it(["happier train", *overrides, "--multirun"]):
        hydra_main(config_path=f"pkg://{_MODULE}", config_name=_NAME, version_base="1.3")(task)()


@contextmanager
def _as_hydra_reads_it(arguments: list[str]) -> Iterator[None]:
    """Hydra takes its arguments from the command line, and by default exits the process on errors."""
    before, sys.argv = sys.argv, arguments
    os.environ.setdefault("HYDRA_FULL_ERROR", "1")
    try:
        yield
    finally:
        sys.argv = before


def quoted(path: Path) -> str:
    """A path as an override's value, whatever characters it has."""
    text = str(path).replace("\\", "\\\\").replace("'", "\\'")
    return f"'{text}'"


def _parser() -> OverridesParser:
    return OverridesParser.create()


def _parse(overrides: Sequence[str]) -> tuple[list[Override], list[Override], list[str]]:
    """Choices of groups, values of keys, and what is neither."""
    choices, values, faults = [], [], []
    for text in overrides:
        try:
            override = _parser().parse_override(text)
        except HydraException:
            faults.append(f"{text!r} is not of the form key=value")
            continue
        if override.is_hydra_override():
            continue  # of the sweeper and the launcher
        if override.is_sweep_override():
            faults.append(f"{text!r} has several values: add -m for a sweep, or quote the value")
        elif override.is_add() or override.is_delete() or override.is_force_add():
            faults.append(f"{text!r}: keys cannot be added or removed; write key=value")
        elif override.key_or_group in _GROUPS:
            choices.append(override)
        else:
            values.append(override)
    return choices, values, faults


def _recipe_for_device(choices: Sequence[Override], values: Sequence[Override]) -> str | None:
    """The recipe that stands for ``folder``: a head on kept features where there is no GPU to fine-tune on.

    What is said of ``model.train`` decides, where it is said.
    """
    recipe = [choice.value() for choice in choices if choice.key_or_group == "recipe"][-1:] or ["folder"]
    if recipe != ["folder"]:
        return None
    said = [value.value() for value in values if value.key_or_group == "model.train"][-1:]
    if said:
        return "folder_cpu" if said == ["head"] else None
    if torch.cuda.is_available():
        log.warning("recipe=folder: there is a GPU, so all weights are trained; model.train=head is faster")
        return None
    log.warning(
        "recipe=folder: there is no GPU, so a head is trained on features of the frozen network, which are "
        "kept; model.train=all fine-tunes instead"
    )
    return "folder_cpu"


def _compose_groups(choices: Sequence[Override], faults: list[str], recipe: str | None) -> DictConfig:
    """Compose the groups with a valid choice, and this recipe if given; record the others as faults."""
    _register()
    if GlobalHydra.instance().is_initialized():  # inside a sweep
        return _compose_initialized(choices, faults, recipe)
    with initialize_config_module(_MODULE, version_base="1.3"):
        return _compose_initialized(choices, faults, recipe)


def _compose_initialized(choices: Sequence[Override], faults: list[str], recipe: str | None) -> DictConfig:
    loader = GlobalHydra.instance().config_loader()
    good = []
    for choice in choices:
        group, wanted = choice.key_or_group, str(choice.value())
        known = loader.get_group_options(group)
        if wanted in known:
            good.append(f"{group}={wanted}")
        else:
            faults.append(
                f"{group}={wanted} is unknown{did_you_mean(wanted, known)}; there are {', '.join(known)}"
            )
    if recipe is None:
        return hydra_compose(_NAME, overrides=good)
    config = hydra_compose(
        _NAME,
        overrides=[*(choice for choice in good if not choice.startswith("recipe=")), f"recipe={recipe}"],
    )
    config.recipe = "folder"
    return config


def _register() -> None:
    """Register the types with Hydra, and one choice in the group loss for each loss of the registry."""
    store = ConfigStore.instance()
    store.store(name="schema", node=TrainConfig)
    for name, entry in LOSSES.items():
        options = {key: value for key, value in entry.options.items() if key not in _OBJECTS}
        store.store(group="loss", name=name, node={"name": name, **options})


def _apply_loss_defaults(config: DictConfig) -> None:
    """Options, its own and the optimiser's, that the recipe gives to the chosen loss; drop the others."""
    own = config.loss_defaults.get(config.loss.name, {})
    for option, value in own.items():
        if option not in config.loss:
            raise ConfigError(
                f"recipe {config.recipe} sets loss_defaults.{config.loss.name}.{option}, which that loss "
                f"does not have{did_you_mean(option, list(config.loss))}"
            )
        config.loss[option] = value
    config.loss_defaults = {}
    try:
        config.optimizer.merge_with(config.optimizer_defaults.get(config.loss.name, {}))
    except OmegaConfBaseException as error:
        raise ConfigError(
            f"recipe {config.recipe} sets optimizer_defaults.{config.loss.name}: {first_line(error)}"
        ) from error
    config.optimizer_defaults = {}


def _set(config: DictConfig, key: str, value: Any) -> list[str]:
    """Set one value; returns what is wrong with it."""
    if key in RENAMED:
        log.warning("%s is now called %s", key, RENAMED[key])
        key = RENAMED[key]
    known = list(flatten(OmegaConf.to_container(config, resolve=False)))
    if key not in known:
        group = key.split(".")[0]
        where = f" of loss={config.loss.name}" if group == "loss" else ""
        return [f"unknown key {key}{where}{did_you_mean(key, known)}"]
    before = OmegaConf.select(config, key)
    try:
        OmegaConf.update(config, key, value, merge=False)
    except OmegaConfBaseException as error:
        return [f"{key}={value}: {first_line(error)}"]
    # The options of losses are typed by their defaults alone.
    if key.startswith("loss.") and not _same_kind(before, value):
        return [f"{key}={value}: must be {_kind(before)}, got {_kind(value)}"]
    return []


def _same_kind(before: Any, value: Any) -> bool:
    if before is None or value is None:
        return True
    if isinstance(before, float) and type(value) is int:
        return True
    return type(before) is type(value) or not isinstance(before, bool | int | float | str)


def _kind(value: Any) -> str:
    return {bool: "true or false", int: "a whole number", float: "a number", str: "a word"}.get(
        type(value), type(value).__name__
    )


def _run_name(config: TrainConfig, overrides: Iterable[str]) -> str:
    """A directory that the same command finds again, and another command does not."""
    parts = [config.recipe, str(config.loss["name"])]
    for text in sorted(overrides):
        key = text.split("=")[0]
        if key not in _NOT_IN_NAME and not key.startswith(("hydra.", "hydra/")):
            parts.append(text.replace("/", "_"))
    return "runs/" + "-".join(parts)


def combinations(overrides: Sequence[str]) -> list[list[str]]:
    """Every job of a sweep over choices, in the order in which the basic sweeper runs them.

    Raises:
        ConfigError: an override cannot be read.

    >>> combinations(["loss=nsm,happier", "seed=0"])
    [['loss=nsm', 'seed=0'], ['loss=happier', 'seed=0']]
    """
    try:
        parsed = _parser().parse_overrides(list(overrides))
    except HydraException as error:
        raise _faulty([first_line(error)]) from error
    jobs: list[list[str]] = [[]]
    for override in parsed:
        if override.is_hydra_override():
            continue
        key = override.get_key_element()
        if override.is_sweep_override() and override.is_discrete_sweep():
            texts = [f"{key}={value}" for value in override.sweep_string_iterator()]
        elif override.is_sweep_override():
            continue  # an interval: another sweeper draws from it
        else:
            texts = [override.input_line or f"{key}={override.get_value_element_as_str()}"]
        jobs = [[*job, text] for job in jobs for text in texts]
    return jobs


def _faulty(faults: Sequence[str]) -> ConfigError:
    count = f"{len(faults)} errors" if len(faults) > 1 else "an error"
    return ConfigError(f"the configuration has {count}: {'; '.join(faults)}")
