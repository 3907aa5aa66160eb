"""The figures of a run in other programs: Lightning's own loggers, by name."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from happier.errors import TrainingError, first_line
from happier.extras import needs_extra

__all__ = ["LOGGERS", "FigureLogger"]


def _csv(run: Path) -> Any:
    from lightning.pytorch.loggers import CSVLogger

    # A version for each start: Lightning would clear the file of an earlier one.
    return CSVLogger(run, name="csv")


def _wandb(run: Path) -> Any:
    import wandb  # noqa: F401 - Lightning's own message does not name our extra
    from lightning.pytorch.loggers import WandbLogger

    return WandbLogger(name=run.name, id=run.name, save_dir=run, project="happier", resume="allow")


def _mlflow(run: Path) -> Any:
    import mlflow  # noqa: F401
    from lightning.pytorch.loggers import MLFlowLogger

    return MLFlowLogger(experiment_name="happier", run_name=run.name, save_dir=str(run / "mlruns"))


LOGGERS: Final[Mapping[str, Callable[[Path], Any]]] = {"csv": _csv, "wandb": _wandb, "mlflow": _mlflow}


class FigureLogger:
    """One of `LOGGERS`, writing into, or under the name of, a run's directory.

    Args:
        name: a key of `LOGGERS`.
        run: the run's directory.
        settings: its configuration, flat.

    Raises:
        MissingExtraError: the package is not installed.
        TrainingError: it cannot be started: no account, no server.
    """

    def __init__(self, name: str, run: Path, settings: Mapping[str, Any]) -> None:
        self._name = name
        try:
            with needs_extra("loggers"):
                self._logger = LOGGERS[name](run)
            self._logger.log_hyperparams({key: value for key, value in settings.items() if value is not None})
        except (RuntimeError, ValueError, OSError) as error:
            raise TrainingError(
                f"training.logger={name} cannot be started ({first_line(error)}); run without it"
            ) from error

    def write(self, group: str, values: Mapping[str, float], step: int) -> None:
        """Write figures of a step; undefined ones are left out."""
        # MLflow and TensorBoard accept no "@" in names.
        found = {f"{group}/{name.replace('@', '_at_')}": value for name, value in values.items()}
        self._logger.log_metrics({name: one for name, one in found.items() if math.isfinite(one)}, step)
        self._logger.save()

    def close(self) -> None:
        """Finish the run there."""
        self._logger.finalize("success")
        if self._name == "wandb":
            import wandb

            wandb.finish()
