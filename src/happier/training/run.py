"""A run's directory: which configuration it belongs to, and what is stored of it.

config.yaml           the configuration, complete
metrics.jsonl         one line per logged step and per evaluation
checkpoint/           last, previous, best
model.safetensors     the best encoder so far, with model.json and a model card
tensorboard/
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError  # type: ignore[import-untyped]

from happier.atomic import atomic_file
from happier.errors import ConfigError, TrainingError
from happier.training.config import TrainConfig, differences, to_yaml

__all__ = ["open_run", "read_config", "writing_to"]

CONFIG_FILE = "config.yaml"


def open_run(config: TrainConfig) -> Path:
    """Make the run's directory, or check that the one there belongs to this configuration.

    Raises:
        ConfigError: the directory holds a run of another configuration, or something else.
    """
    directory = config.run_dir
    if (directory / CONFIG_FILE).is_file():
        if differ := differences(read_config(directory), asdict(config)):
            raise ConfigError(
                f"{directory} holds a run of another configuration: {'; '.join(differ)}; "
                "choose another directory with run=DIR, or remove this one"
            )
        return directory
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise ConfigError(f"{directory} is there and is not a run; choose another directory with run=DIR")
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"cannot make the directory of the run, {directory}: {error.strerror}") from error
    with atomic_file(directory / CONFIG_FILE) as part:
        part.write_text(to_yaml(config))
    return directory


@contextmanager
def writing_to(directory: Path) -> Iterator[None]:
    """Turn a full disk, or one that cannot be written to, into an error that says what to do.

    Raises:
        TrainingError: in the place of the system's own error.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO):
            raise
        raise TrainingError(
            f"cannot write to {directory} ({error.strerror}); the last checkpoint is intact: free some "
            "space, then run the same command again"
        ) from error


def read_config(directory: Path) -> dict[str, Any]:
    """The configuration of a run as plain data.

    Raises:
        ConfigError: there is none, or it is not YAML.
    """
    path = directory / CONFIG_FILE
    try:
        content = OmegaConf.to_container(OmegaConf.load(path))
    except (OSError, ValueError, OmegaConfBaseException, YAMLError) as error:
        raise ConfigError(f"cannot read {path} ({error})") from error
    if not isinstance(content, dict):
        raise ConfigError(f"{path} does not hold a configuration")
    return {str(key): value for key, value in content.items()}
