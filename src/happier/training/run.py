"""A configuration -> the run directory that it belongs to, trained by one command at a time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict

from happier import distributed
from happier.errors import BusyError, ConfigError, TrainingError
from happier.runs.run_directory import RunDirectory
from happier.storage.atomic import remove_leftovers
from happier.storage.disk_errors import disk_errors
from happier.training.config import TrainConfig, differences, to_yaml

__all__ = ["open_run", "run_for_training"]


def open_run(config: TrainConfig) -> RunDirectory:
    """Make the run's directory, or check that an existing one belongs to this configuration.

    Raises:
        ConfigError: the directory holds a run of another configuration, or something else.
        TrainingError: the directory cannot be written.
    """
    run = _checked(config)
    if not run.has_config:
        with disk_errors(run.path, error=TrainingError):
            run.path.mkdir(parents=True, exist_ok=True)
            run.write_config(to_yaml(config))
    return run


@contextmanager
def run_for_training(config: TrainConfig) -> Iterator[RunDirectory]:
    """The run's directory, as `open_run` gives it, locked by the first rank until the block ends.

    What a killed process left half-written is removed.

    Raises:
        BusyError: another command is training there.
        ConfigError, TrainingError: see `open_run`.
    """
    with ExitStack() as held:

        def lock_and_open() -> None:
            run = _checked(config)  # first: nothing is written into a directory that is not a run
            with disk_errors(run.path, error=TrainingError):
                try:
                    held.enter_context(run.locked(wait=False))
                except BusyError as error:
                    raise BusyError(f"{error}, or choose another directory with run=DIR") from None
                open_run(config)
                for file in (run.config_file, run.weights_file, run.settings_file, run.model_card):
                    remove_leftovers(file)

        distributed.on_first_rank(lock_and_open)
        yield RunDirectory(config.run_dir)


def _checked(config: TrainConfig) -> RunDirectory:
    """The run's directory, which is free or holds a run of this configuration."""
    run = RunDirectory(config.run_dir)
    with disk_errors(run.path, error=TrainingError):
        if run.has_config:
            if differ := differences(run.read_config(), asdict(config)):
                raise ConfigError(
                    f"{run.path} holds a run with another configuration: {'; '.join(differ)}; "
                    "choose another directory with run=DIR, or remove this one"
                )
        elif not run.is_free:
            raise ConfigError(f"{run.path} exists and is not a run; choose another directory with run=DIR")
    return run
