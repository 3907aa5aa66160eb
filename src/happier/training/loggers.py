"""The figures of a run in other programs: Lightning's own loggers, by name."""

from __future__ import annotations

import logging
import math
import os
import secrets
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from happier.errors import HappierError, TrainingError, first_line
from happier.extras import needs_extra
from happier.storage.records import SealedRecord, read_record, write_record

if TYPE_CHECKING:
    from happier.runs.run_directory import RunDirectory

__all__ = ["LOGGERS", "FigureLogger"]

log = logging.getLogger(__name__)


def _csv(run: RunDirectory, _known_as: str | None) -> Any:
    from lightning.pytorch.loggers import CSVLogger

    # A version for each start: Lightning would clear the file of an earlier one.
    return CSVLogger(run.path, name="csv")


def _wandb(run: RunDirectory, known_as: str | None) -> Any:
    import wandb  # noqa: F401 - Lightning's own message does not name our extra
    from lightning.pytorch.loggers import WandbLogger

    # An id of its own: two runs may have the same name.
    own = known_as or secrets.token_hex(4)
    return WandbLogger(name=run.path.name, id=own, save_dir=run.path, project="happier", resume="allow")


def _mlflow(run: RunDirectory, known_as: str | None) -> Any:
    import mlflow  # noqa: F401
    from lightning.pytorch.loggers import MLFlowLogger

    server = os.environ.get("MLFLOW_TRACKING_URI")
    return MLFlowLogger(
        experiment_name="happier",
        run_name=run.path.name,
        run_id=known_as,
        tracking_uri=server or f"sqlite:///{run.path.resolve() / 'mlflow.db'}",
        artifact_location=None if server else (run.path.resolve() / "mlartifacts").as_uri(),
    )


LOGGERS: Final[Mapping[str, Callable[[RunDirectory, str | None], Any]]] = {
    "csv": _csv,
    "wandb": _wandb,
    "mlflow": _mlflow,
}


class KnownAs(SealedRecord):
    """What ``logger.json`` holds: the id of the run in each program, by the name of its logger."""

    ids: dict[str, str]


class FigureLogger:
    """One of `LOGGERS`, writing into a run's directory or to a server under the run's name.

    A run that is resumed continues what it began there. Training outlives its logger: where a server is lost,
    a warning says so, once, and the figures are in the run's own files.

    Args:
        name: a key of `LOGGERS`.
        run: the run's directory.
        settings: its configuration, flat.

    Raises:
        CheckpointError: ``logger.json`` is damaged.
        MissingExtraError: the package is not installed.
        TrainingError: it cannot be started: no account, no server.
    """

    def __init__(self, name: str, run: RunDirectory, settings: Mapping[str, Any]) -> None:
        self._name = name
        known = _read_ids(run)
        known_as = known.get(name)
        try:
            with needs_extra("loggers"):
                self._logger = LOGGERS[name](run, known_as)
            if not known_as:
                self._logger.log_hyperparams(
                    {key: value for key, value in settings.items() if value is not None}
                )
        except HappierError:
            raise
        except Exception as error:
            # The classes of their errors have no parent in common.
            raise TrainingError(
                f"training.logger={name} cannot be started ({first_line(error)}); run without it"
            ) from error
        if name != "csv" and not known_as:
            write_record(KnownAs(ids={**known, name: self._logger.version}), run.logger_file)

    def write(self, group: str, values: Mapping[str, float], step: int) -> None:
        """Write figures of a step; undefined ones are left out."""
        # MLflow and TensorBoard accept no "@" in names.
        found = {f"{group}/{name.replace('@', '_at_')}": value for name, value in values.items()}
        finite = {name: value for name, value in found.items() if math.isfinite(value)}
        self._try(lambda: (self._logger.log_metrics(finite, step), self._logger.save()))

    def close(self, *, failed: bool = False) -> None:
        """Finish the run there."""
        self._try(lambda: self._logger.finalize("failed" if failed else "success"))
        if self._name == "wandb":
            self._try(lambda: self._logger.experiment.finish(exit_code=int(failed)))

    def _try(self, act: Callable[[], object]) -> None:
        if self._logger is None:
            return
        try:
            act()
        except Exception as error:
            if self._name == "csv":  # a full disk, which stops the run like every other file
                raise
            self._logger = None
            log.warning("training.logger=%s is lost (%s); training goes on", self._name, first_line(error))


def _read_ids(run: RunDirectory) -> dict[str, str]:
    if not run.logger_file.exists():
        return {}
    return read_record(run.logger_file, KnownAs, hint="remove it, and the run begins anew there").ids
