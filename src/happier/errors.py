"""Everything that a user can cause, as one tree.

    HappierError
    ├── InputError            arrays: shape, dtype, NaN, empty
    ├── TaxonomyError         labels that do not form a tree
    ├── OptionError           an option out of range or unknown
    ├── MissingExtraError     a feature whose optional dependency is not installed
    ├── DataError             files: manifests, images, data sets
    │   ├── ManifestError
    │   ├── ImageError
    │   └── FetchError
    ├── ConfigError           a training configuration
    ├── CheckpointError       a checkpoint or model file
    ├── TrainingError         a run that cannot go on
    └── SearchError           an index

The command line prints any of them in one line and exits with code 2.
"""


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
        super().__init__(f"this needs the package {package!r}: pip install 'happier[{extra}]'")


class DataError(HappierError):
    """A data set on disk is not as it should be."""


class ManifestError(DataError, ValueError):
    """A manifest has faults; the message lists them all."""


class ImageError(DataError):
    """An image cannot be read; the message names its path."""


class FetchError(DataError):
    """A data set cannot be fetched."""


class ConfigError(HappierError, ValueError):
    """A training configuration has faults; the message lists them all."""


class CheckpointError(HappierError):
    """A checkpoint or model file cannot be used."""


class TrainingError(HappierError):
    """A training run cannot go on."""


class SearchError(HappierError):
    """An index cannot be built, read or asked."""
