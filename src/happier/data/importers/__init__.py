"""Published releases and users' own images -> manifests. One module per format."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from happier.data.importers.cars import read_cars
from happier.data.importers.cub import read_cub
from happier.data.importers.dyml import read_dyml_animal, read_dyml_product, read_dyml_vehicle
from happier.data.importers.folder import read_folder
from happier.data.importers.gldv2 import read_gldv2
from happier.data.importers.hugging_face import read_hugging_face
from happier.data.importers.inat import read_inat_base, read_inat_full
from happier.data.importers.inat2021 import read_inat2021
from happier.data.importers.inshop import read_inshop
from happier.data.importers.revisited import read_roxford, read_rparis
from happier.data.importers.sop import read_sop
from happier.data.importers.table import read_csv_table
from happier.data.importers.webdataset import read_webdataset
from happier.data.manifest import Manifest
from happier.errors import DataError, OptionError, did_you_mean

RELEASES: dict[str, Callable[[Path], Manifest]] = {
    "sop": read_sop,
    "inat-base": read_inat_base,
    "inat-full": read_inat_full,
    "inat2021": read_inat2021,
    "dyml-vehicle": read_dyml_vehicle,
    "dyml-animal": read_dyml_animal,
    "dyml-product": read_dyml_product,
    "cub": read_cub,
    "cars": read_cars,
    "inshop": read_inshop,
    "gldv2": read_gldv2,
    "roxford": read_roxford,
    "rparis": read_rparis,
}
OWN: dict[str, Callable[..., Manifest]] = {
    "folder": read_folder,
    "hf": read_hugging_face,
    "webdataset": read_webdataset,
}
"""Folders of users' own images, whose levels may be named."""
KINDS = (*RELEASES, *OWN, "csv")


def import_manifest(
    kind: str, source: Path | str, *, levels: Sequence[str] | None = None, root: Path | str | None = None
) -> Manifest:
    """Make a manifest from a release or from your own images.

    Args:
        kind: one of `KINDS`.
        source: folder of the release or of the images, or the CSV.
        levels: level names, coarse to fine; for users' own images only.
        root: folder that the paths of a ``csv`` are relative to.

    Raises:
        OptionError: no such kind, or an option that it does not have.
        DataError: the source is not what the kind expects.
    """
    if kind not in KINDS:
        raise OptionError(
            f"the kind must be one of {', '.join(KINDS)}, got {kind!r}{did_you_mean(kind, KINDS)}"
        )
    if levels is not None and kind in RELEASES:
        raise OptionError(f"the levels of {kind} are fixed; only {', '.join(OWN)} and csv take level names")
    if root is not None and kind != "csv":
        raise OptionError(f"the paths of {kind} are relative to its own folder; only csv takes a root")
    source = Path(source)
    if kind == "csv":
        return read_csv_table(source, levels=levels, root=None if root is None else Path(root))
    try:
        if not source.is_dir():
            raise DataError(f"{source} is not a folder; {kind} is imported from a folder")
        return OWN[kind](source, levels=levels) if kind in OWN else RELEASES[kind](source)
    except OSError as error:
        raise DataError(f"cannot read {error.filename or source}: {error.strerror}") from error
