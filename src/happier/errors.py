"""All errors that a user can cause, as one tree.

    HappierError
    ├── InputError            arrays: shape, dtype, NaN, empty
    ├── TaxonomyError         labels that do not form a tree
    ├── OptionError           an option out of range or unknown
    ├── MissingExtraError     a feature whose optional dependency is not installed
    ├── DataError             files: manifests, images, data sets
    │   ├── ManifestError
    │   ├── ImageError
    │   │   └── UnreadableImagesError    all of them, with a reason each
    │   └── FetchError
    ├── BusyError             another command is changing the same thing
    ├── ConfigError           a training configuration
    ├── CheckpointError       a checkpoint or model file
    ├── TrainingError         a run that cannot continue
    ├── SearchError           an index
    │   └── EngineUnavailableError   the server that holds its vectors does not answer
    └── ServerError           a server that refuses or does not answer

The command line prints any of them in one line and exits with code 2.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches

from happier.version import DISTRIBUTION


def did_you_mean(name: object, known: Iterable[object]) -> str:
    """A hint at the nearest known name, to append to an error message; empty if none is near.

    Names are compared without regard to case. A name of several parts, ``group.key``, is also found by its
    last part.

    Args:
        name: what was given.
        known: what could have been given.

    >>> did_you_mean("hapier", ["happier", "nsm"])
    " (did you mean 'happier'?)"
    >>> did_you_mean("Training.epochs", ["training.epochs"]), did_you_mean("epochs", ["training.epochs"])
    (" (did you mean 'training.epochs'?)", " (did you mean 'training.epochs'?)")
    >>> did_you_mean("xyz", ["happier"])
    ''
    """
    given = str(name)
    names = {str(entry).casefold(): str(entry) for entry in known if str(entry) != given}
    close = get_close_matches(given.casefold(), names, n=1, cutoff=0.5)
    if not close:
        last = given.casefold().rsplit(".", 1)[-1]
        close = [entry for entry in names if entry.rsplit(".", 1)[-1] == last][:1]
    return f" (did you mean {names[close[0]]!r}?)" if close else ""


def first_line(error: BaseException) -> str:
    r"""The first non-empty line of an error's message, or its class where there is none.

    >>> first_line(ValueError("not a number\nhint: ...")), first_line(EOFError())
    ('not a number', 'EOFError')
    """
    lines = (line.strip() for line in str(error).splitlines())
    return next((line for line in lines if line), type(error).__name__)


class HappierError(Exception):
    """Parent of all errors that a user can cause and fix."""


class InputError(HappierError, ValueError):
    """An array has the wrong shape, type or values."""


class TaxonomyError(HappierError, ValueError):
    """Labels do not form a tree."""


class OptionError(HappierError, ValueError):
    """An option is unknown or out of range."""


class MissingExtraError(HappierError, ImportError):
    """A feature needs an optional dependency that is not installed."""

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(f"this needs the package {package!r}: pip install '{DISTRIBUTION}[{extra}]'")
        self.package = package
        self.extra = extra


class DataError(HappierError):
    """A data set on disk is faulty."""


class ManifestError(DataError, ValueError):
    """A manifest has faults; the message lists them all."""


class ImageError(DataError):
    """An image cannot be read; the message names its path."""


class UnreadableImagesError(ImageError):
    """Images that cannot be read.

    Args:
        reasons: a message for each file; the first is that of the error.
    """

    def __init__(self, reasons: Mapping[str, str]) -> None:
        super().__init__(next(iter(reasons.values())))
        self.reasons = dict(reasons)


class FetchError(DataError):
    """A data set cannot be fetched."""


class BusyError(HappierError):
    """Another command is changing the same directory."""


class ConfigError(HappierError, ValueError):
    """A training configuration has faults; the message lists them all."""


class CheckpointError(HappierError):
    """A checkpoint or model file cannot be used."""


class TrainingError(HappierError):
    """A training run cannot continue."""


class SearchError(HappierError):
    """An index cannot be built, read or searched."""


class EngineUnavailableError(SearchError):
    """The server that holds an index's vectors does not answer; it may later."""


class ServerError(HappierError):
    """A server refused a request, or does not answer.

    Attributes:
        status: of the answer; None where there is none.
    """

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status
