"""A run's directory: the only place that knows the names of its files.

    config.yaml             the configuration, complete
    metrics.jsonl           one line per logged step and per evaluation
    checkpoint/             last, previous, best
    model.safetensors       the best encoder so far, with model.json and a model card, README.md
    tensorboard/
    logger.json             what the run is called in the programs of training.logger, to continue there
    evaluation/             summary.json, per_query.parquet, and the embeddings of the rows evaluated
    report/                 index.html, data.json, ...

Two locks guard it, since a run may be evaluated while it is trained: one over the directory for training,
one over ``evaluation/``. Readers need none.
"""

from __future__ import annotations

import logging
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, final

import orjson
from pydantic import BaseModel, ConfigDict, ValidationError

from happier.encoder.pretrained import RUN_CONFIG_FILE, SETTINGS_FILE, WEIGHTS_FILE
from happier.errors import CheckpointError, ConfigError, OptionError, first_line
from happier.storage.atomic import atomic_file, is_leftover
from happier.storage.lock import LOCK_FILE, locked
from happier.storage.records import read_json
from happier.storage.regular_file import open_regular

if TYPE_CHECKING:
    from happier.encoder import Encoder

__all__ = ["RunDirectory"]

log = logging.getLogger(__name__)
# A configuration takes about 3 KiB; a larger file is not one of ours.
DEEPEST_CONFIG = 32
LARGEST_CONFIG_BYTES = 1 << 20


@final
class RunDirectory:
    """The files of one run; none needs to exist yet.

    Args:
        path: the directory.

    >>> RunDirectory("runs/emoji").config_file.as_posix()
    'runs/emoji/config.yaml'
    """

    def __init__(self, path: Path | str) -> None:
        self.path: Final = Path(path)
        self.config_file: Final = self.path / RUN_CONFIG_FILE
        self.metrics_file: Final = self.path / "metrics.jsonl"
        self.checkpoint_folder: Final = self.path / "checkpoint"
        self.weights_file: Final = self.path / WEIGHTS_FILE
        self.settings_file: Final = self.path / SETTINGS_FILE
        self.model_card: Final = self.path / "README.md"
        self.tensorboard_folder: Final = self.path / "tensorboard"
        self.logger_file: Final = self.path / "logger.json"
        self.evaluation_folder: Final = self.path / "evaluation"
        self.summary_file: Final = self.evaluation_folder / "summary.json"
        self.per_query_file: Final = self.evaluation_folder / "per_query.parquet"
        self.embeddings_folder: Final = self.evaluation_folder / "embeddings"
        self.report_folder: Final = self.path / "report"

    def __repr__(self) -> str:
        return f"RunDirectory({str(self.path)!r})"

    @property
    def has_config(self) -> bool:
        """Whether it is the directory of a run."""
        return self.config_file.is_file()

    @property
    def has_model(self) -> bool:
        """Whether the run has saved an encoder."""
        return self.settings_file.is_file()

    @property
    def is_free(self) -> bool:
        """Whether a new run may start here: there is nothing, or what a kill before the first file leaves."""
        if not self.path.is_dir():
            return not self.path.exists()
        return all(
            entry.name == LOCK_FILE or is_leftover(entry, self.config_file) for entry in self.path.iterdir()
        )

    def check_output(self, path: Path) -> None:
        """Refuse to write a result over a file of the run, or over the manifest that it names.

        Raises:
            OptionError: the path is such a file.
        """
        files = (
            self.config_file,
            self.metrics_file,
            self.weights_file,
            self.settings_file,
            self.model_card,
            self.logger_file,
        )
        target = path.resolve()
        if target in [file.resolve() for file in files] or any(
            target.is_relative_to(folder.resolve())
            for folder in (self.checkpoint_folder, self.evaluation_folder)
        ):
            raise OptionError(f"{path} is a file of the run {self.path}; choose another name")
        if self._manifest_file == target:
            raise OptionError(f"{path} is the manifest of the run {self.path}; choose another name")

    @property
    def _manifest_file(self) -> Path | None:
        """The manifest that the configuration names, where it can be read."""
        with suppress(ConfigError):
            name = (self.read_config().get("data") or {}).get("manifest")
            return None if name is None else Path(name).resolve()
        return None

    def locked(self, *, wait: bool = True) -> AbstractContextManager[None]:
        """Hold the lock of the run, for training; see `happier.storage.lock.locked`."""
        return locked(self.path, wait=wait)

    def evaluation_locked(self, *, wait: bool = True) -> AbstractContextManager[None]:
        """Hold the lock of ``evaluation/``, for embedding the run's rows and for storing figures."""
        return locked(self.evaluation_folder, wait=wait)

    def read_config(self) -> dict[str, Any]:
        """The configuration as plain data.

        Raises:
            ConfigError: there is none, or it is damaged.
        """
        return _parse_config(self.read_config_text(), self.config_file)

    def read_config_text(self) -> str:
        """The text of the configuration file.

        Raises:
            ConfigError: there is none, or it is not text.
        """
        try:
            with open_regular(self.config_file) as file:
                content = file.read(LARGEST_CONFIG_BYTES + 1)
        except OSError as error:
            raise ConfigError(f"cannot read {self.config_file}: {error.strerror}") from error
        if len(content) > LARGEST_CONFIG_BYTES:
            raise ConfigError(f"{self.config_file} is damaged: it is larger than 1 MiB")
        try:
            return content.decode("utf-8")
        except UnicodeDecodeError as error:
            raise ConfigError(f"{self.config_file} is damaged: it is not UTF-8 ({error.reason})") from None

    def write_config(self, text: str) -> None:
        """Write the configuration, YAML; the write is atomic.

        Raises:
            DataError: it cannot be written.
        """
        with atomic_file(self.config_file) as part:
            part.write_text(text, encoding="utf-8")

    def read_history(self) -> tuple[dict[str, Any], ...]:
        """The lines of ``metrics.jsonl``; none where the run has logged nothing yet.

        A last line that was cut off by a kill is left out; any other line that cannot be read is left out
        with a warning.

        Raises:
            CheckpointError: the file exists and cannot be read.
        """
        try:
            with open_regular(self.metrics_file) as file:
                content = file.read()
        except (FileNotFoundError, NotADirectoryError):
            return ()
        except OSError as error:
            raise CheckpointError(f"cannot read {self.metrics_file}: {error.strerror}") from error
        lines = content.split(b"\n")
        entries = []
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                entry = orjson.loads(line)
                _HistoryLine.model_validate(entry)
            except (ValidationError, orjson.JSONDecodeError):
                if number < len(lines):
                    log.warning("%s: line %d is damaged and left out", self.metrics_file, number)
                continue
            entries.append(entry)
        return tuple(entries)

    def read_model(self) -> Encoder:
        """The best encoder so far.

        Raises:
            CheckpointError: there is none yet, or its files are damaged.
        """
        from happier.encoder import Encoder

        return Encoder.from_pretrained(self.path)

    def read_summary(self) -> dict[str, Any] | None:
        """What the last `happier evaluate` stored, null for undefined figures; None where it has not run.

        Raises:
            CheckpointError: the file is damaged.
        """
        if not self.summary_file.is_file():
            return None
        summary = read_json(self.summary_file, hint="run `happier evaluate` again")
        if not isinstance(summary, dict):
            raise CheckpointError(f"{self.summary_file} is damaged; run `happier evaluate` again")
        return summary


class _HistoryLine(BaseModel):
    """What every line of ``metrics.jsonl`` holds, in addition to its own figures."""

    model_config = ConfigDict(strict=True, extra="allow")
    kind: str
    step: int
    epoch: int | None = None
    loss: float | None = None
    metrics: dict[str, float | None] | None = None


class _Section(BaseModel):
    model_config = ConfigDict(extra="allow")


class _Data(_Section):
    manifest: str | None = None
    name: str | None = None


class _Loss(_Section):
    name: str | None = None


class _KnownConfig(_Section):
    """The parts of a configuration that are read outside of training; it checks all of it."""

    data: _Data | None = None
    loss: _Loss | None = None
    model: dict[str, Any] | None = None
    training: dict[str, Any] | None = None


def _parse_config(text: str, path: Path) -> dict[str, Any]:
    from omegaconf import OmegaConf
    from yaml import AliasEvent, CollectionEndEvent, CollectionStartEvent, parse

    depth = 0
    try:
        for event in parse(text):
            # Aliases can refer to aliases: a few lines could expand to fill the memory.
            if isinstance(event, AliasEvent):
                raise ConfigError(f"{path} is damaged: it has YAML aliases, which a run never writes")
            # The time that parsing takes grows with the square of the depth.
            depth += isinstance(event, CollectionStartEvent) - isinstance(event, CollectionEndEvent)
            if depth > DEEPEST_CONFIG:
                raise ConfigError(f"{path} is damaged: it is nested more than {DEEPEST_CONFIG} deep")
        content = OmegaConf.to_container(OmegaConf.create(text))
    except ConfigError:
        raise
    # A damaged file makes the parsers raise whatever its text happens to mean.
    except Exception as error:
        raise ConfigError(f"{path} is not a configuration: {first_line(error)}") from error
    # A plain text parses as a mapping of that text to nothing.
    if not isinstance(content, dict) or all(value is None for value in content.values()):
        raise ConfigError(f"{path} does not hold a configuration")
    values = {str(key): value for key, value in content.items()}
    try:
        _KnownConfig.model_validate(values)
    except ValidationError as fault:
        first = fault.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise ConfigError(f"{path} is damaged: {where}: {first['msg']}") from None
    return values
