"""Cars196: body type > make > model; the first 98 models train, the others test.

    cars_annos.mat, car_ims/                             the one-folder release, or
    devkit/cars_meta.mat, devkit/cars_train_annos.mat,
    cars_test_annos_withlabels.mat, cars_train/, cars_test/

Body type and make are read from the model's name ("Audi TT Hatchback 2011").
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from happier.data.importers.release import require, warn_of_difference
from happier.data.manifest import Manifest
from happier.errors import DataError, first_line
from happier.extras import needs_extra

PUBLISHED = {"train": (8_054, 98), "test": (8_131, 98)}
TRAINING_MODELS = 98
_RELEASE = "Cars196"

_MAKES_OF_TWO_WORDS = ("AM General", "Aston Martin", "Land Rover")
_TYPES = {
    "Cab": "Pickup",
    "Convertible": "Convertible",
    "Coupe": "Coupe",
    "Hatchback": "Hatchback",
    "Minivan": "Minivan",
    "SUV": "SUV",
    "Sedan": "Sedan",
    "SuperCab": "Pickup",
    "Van": "Van",
    "Wagon": "Wagon",
}
# Models whose names do not include the body type.
_UNSAID = {
    "Acura Integra Type R": "Coupe",
    "Acura TL Type-S": "Sedan",
    "Buick Regal GS": "Sedan",
    "Chevrolet Cobalt SS": "Coupe",
    "Chevrolet Corvette Ron Fellows Edition Z06": "Coupe",
    "Chevrolet Corvette ZR1": "Coupe",
    "Chevrolet HHR SS": "Wagon",
    "Chevrolet TrailBlazer SS": "SUV",
    "Dodge Challenger SRT8": "Coupe",
    "Dodge Charger SRT-8": "Sedan",
    "FIAT 500 Abarth": "Hatchback",
    "Jaguar XK XKR": "Coupe",
}


def type_and_make(model: str) -> tuple[str, str]:
    """Body type and make from a model's name; the last word that names a body counts.

    >>> type_and_make("Rolls-Royce Phantom Drophead Coupe Convertible 2012")
    ('Convertible', 'Rolls-Royce')
    """
    make = next((make for make in _MAKES_OF_TWO_WORDS if model.startswith(make)), model.split()[0])
    said = [_TYPES[word] for word in model.split() if word in _TYPES]
    unsaid = next((body for name, body in _UNSAID.items() if model.startswith(name)), None)
    return (said[-1] if said else unsaid or "Other"), make


def read_cars(source: Path) -> Manifest:
    """Read the release in either of its two forms."""
    try:
        models, images = _annotations(source)
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
        raise DataError(f"cannot read the annotations of {source}: {error!r}") from error
    rows = []
    for path, number in images:
        if not 1 <= number <= len(models) or not models[number - 1].strip():
            raise DataError(f"{source}: {path} has the class {number}, but there are {len(models)} classes")
        split = "train" if number <= TRAINING_MODELS else "test"
        # A model's name may hold a slash ("Ram C/V"), which stays part of the name.
        rows.append((path, split, *type_and_make(models[number - 1]), models[number - 1]))
    levels = ("type", "make", "model")
    table = pd.DataFrame(rows, columns=["path", "split", *levels])
    return warn_of_difference(Manifest(table, levels=levels, root=source, name="cars"), PUBLISHED)


def _annotations(source: Path) -> tuple[list[str], list[tuple[str, int]]]:
    """The names of the models, and path and model number of each image."""
    if (source / "cars_annos.mat").exists():
        content = _load(require(source, "cars_annos.mat", release=_RELEASE))
        names = content["class_names"]
        images = [(str(entry.relative_im_path), entry) for entry in _entries(content)]
    else:
        names = _load(require(source, "devkit/cars_meta.mat", release=_RELEASE))["class_names"]
        images = []
        for folder, file in (
            ("cars_train", "devkit/cars_train_annos.mat"),
            ("cars_test", "cars_test_annos_withlabels.mat"),
        ):
            content = _load(require(source, file, release=_RELEASE))
            images += [(f"{folder}/{entry.fname}", entry) for entry in _entries(content)]
    models = [str(name) for name in np.atleast_1d(names)]
    # "class" is a keyword of Python.
    return models, [(path, int(getattr(entry, "class"))) for path, entry in images]


def _load(path: Path) -> dict[str, Any]:
    with needs_extra("data"):
        from scipy.io import loadmat  # type: ignore[import-untyped]
    try:
        content: dict[str, Any] = loadmat(path, squeeze_me=True, struct_as_record=False)
    # On damaged bytes the reader can raise almost anything.
    except Exception as error:
        raise DataError(f"cannot read {path}: {first_line(error)}") from error
    return content


def _entries(content: dict[str, Any]) -> list[Any]:
    if "annotations" not in content:
        raise DataError(f"the annotation file has no 'annotations', only {sorted(content)}")
    return list(np.atleast_1d(content["annotations"]))
