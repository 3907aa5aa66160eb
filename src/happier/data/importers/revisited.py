"""Revisited Oxford and Paris: queries with easy, hard and junk images.

    gnd_roxford5k.pkl (gnd_rparis6k.pkl)   imlist, qimlist: names; gnd: bbx, easy, hard, junk of a query
    jpg/all_souls_000013.jpg ...

Queries are cut out by their box into ``queries/`` beside ``jpg/``, without loss. The columns ``easy``,
``hard`` and ``junk`` of the manifest name gallery images of each query, for `happier.evaluation.revisited`.
The label of a gallery image is the landmark of the queries that it is easy or hard for; all others are
unlabelled.

Reference:
    Radenović et al., Revisiting Oxford and Paris: Large-Scale Image Retrieval Benchmarking, CVPR 2018.
"""

from __future__ import annotations

import io
import math
import pickle
from pathlib import Path
from typing import Any, Final

import pandas as pd

from happier.data.image import read_image
from happier.data.importers.release import require
from happier.data.manifest import Manifest
from happier.errors import DataError, ImageError, first_line
from happier.storage.atomic import atomic_file
from happier.storage.regular_file import read_regular

GROUPS: Final = ("easy", "hard", "junk")
_LARGEST_BYTES: Final = 64 << 20
# All that an array of numbers or text needs to be read back; nothing of it runs code of the file's choice.
_ALLOWED: Final = {
    ("numpy", "dtype"),
    ("numpy", "ndarray"),
    ("_codecs", "encode"),
    ("__builtin__", "bytes"),  # an empty one
    ("builtins", "bytes"),
    *(
        (f"numpy.{core}.multiarray", name)
        for core in ("core", "_core")
        for name in ("_reconstruct", "scalar")
    ),
}


def read_roxford(source: Path) -> Manifest:
    """Revisited Oxford: 70 queries, 4,993 gallery images."""
    return _read(source, "roxford5k", "roxford")


def read_rparis(source: Path) -> Manifest:
    """Revisited Paris: 70 queries, 6,322 gallery images."""
    return _read(source, "rparis6k", "rparis")


def _read(source: Path, release: str, name: str) -> Manifest:
    path = require(source, f"gnd_{release}.pkl", release=release)
    truth = read_plain_pickle(path)
    names, queries, ground = _checked(path, truth)
    landmarks = [""] * len(names)
    rows = []
    for query, one in zip(queries, ground, strict=True):
        landmark = query.rpartition("_")[0] or query
        for place in (*one["easy"], *one["hard"]):
            landmarks[place] = landmarks[place] or landmark
        crop = _cut_out(source, query, one["bbx"])
        groups = [" ".join(names[place] for place in one[group]) for group in GROUPS]
        rows.append((crop, "query", query, landmark, *groups))
    rows += [
        (f"jpg/{image}.jpg", "gallery", image, landmark, "", "", "")
        for image, landmark in zip(names, landmarks, strict=True)
    ]
    table = pd.DataFrame(rows, columns=["path", "split", "id", "landmark", *GROUPS])
    return Manifest(table, levels=("landmark",), root=source, name=name)


class _PlainUnpickler(pickle.Unpickler):
    """Reads lists, dictionaries, text, numbers and arrays; refuses whatever could run code."""

    def find_class(self, module: str, name: str) -> Any:
        """What the file names, where it is allowed."""
        if (module, name) not in _ALLOWED:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which could run code")
        return super().find_class(module, name)


def read_plain_pickle(path: Path) -> Any:
    """The content of a pickle that holds data only.

    Raises:
        DataError: it holds anything else, or is damaged.
    """
    try:
        data = read_regular(path, largest=_LARGEST_BYTES)
        return _PlainUnpickler(io.BytesIO(data), encoding="latin1").load()
    # A damaged file makes the unpickler raise whatever its bytes happen to mean.
    except Exception as error:
        raise DataError(f"cannot read {path}: {first_line(error)}") from error


def _checked(path: Path, truth: Any) -> tuple[list[str], list[str], list[dict[str, list[Any]]]]:
    """Names of the images, names of the queries, and each query's box and groups.

    Raises:
        DataError: something is missing, or out of range.
    """
    try:
        names, queries = ([str(name) for name in truth[key]] for key in ("imlist", "qimlist"))
        ground: list[dict[str, list[Any]]] = [
            {
                "bbx": [float(value) for value in one["bbx"]],
                **{group: [int(place) for place in one[group]] for group in GROUPS},
            }
            for one in truth["gnd"]
        ]
    except (KeyError, TypeError, ValueError, IndexError, OverflowError) as error:
        raise DataError(f"{path} is not a ground truth of the revisited protocol: {error!r}") from error
    if len(ground) != len(queries):
        raise DataError(f"{path} has {len(queries)} queries and the ground truth of {len(ground)}")
    for query, one in zip(queries, ground, strict=True):
        if len(one["bbx"]) != 4 or not all(map(math.isfinite, one["bbx"])):
            raise DataError(f"{path}: the box of query {query} must have 4 numbers, got {one['bbx']}")
        for group in GROUPS:
            if wrong := [place for place in one[group] if not 0 <= place < len(names)]:
                raise DataError(f"{path}: {group} of query {query} has {wrong[0]}, of {len(names)} images")
    for name in (*names, *queries):
        if any(sign.isspace() or sign in "/\\" for sign in name):
            raise DataError(f"{path}: the name {name!r} must have no spaces and no folder")
    return names, queries, ground


def _cut_out(source: Path, query: str, box: list[float]) -> str:
    """Write the part of a query's image that is searched for; returns its path below the source."""
    image, crop = source / "jpg" / f"{query}.jpg", f"queries/{query}.png"
    left, top, right, bottom = (round(value) for value in box)
    try:
        with read_image(image) as whole, atomic_file(source / crop) as part:
            if not (0 <= left < right <= whole.width and 0 <= top < bottom <= whole.height):
                raise DataError(
                    f"{image} has {whole.width} x {whole.height} pixels, the query's box is {box}"
                )
            whole.crop((left, top, right, bottom)).save(part, format="PNG")
    except (OSError, ImageError) as error:
        raise DataError(f"cannot cut the query out of {image}: {first_line(error)}") from error
    return crop
