"""The distribution's name and version."""

import warnings
from importlib.metadata import PackageNotFoundError, distribution, version

DISTRIBUTION = "happier-retrieval"

__version__ = version(DISTRIBUTION)


def warn_of_namesake() -> None:
    """Warn if the distribution ``happier``, another project with the same import name, is installed too."""
    try:
        files = distribution("happier").files or []
    except PackageNotFoundError:
        return
    if any(file.parts[0] == "happier" for file in files):
        warnings.warn(
            f"the distribution 'happier' is another project and has overwritten files of {DISTRIBUTION}: "
            f"pip uninstall happier {DISTRIBUTION}, then pip install {DISTRIBUTION}",
            stacklevel=3,
        )
