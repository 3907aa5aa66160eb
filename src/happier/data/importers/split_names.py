"""The names that others give to our splits."""

from __future__ import annotations

from pathlib import PurePath

from happier.data.manifest import SPLITS

_OTHER_NAMES = {"validation": "val", "valid": "val", "dev": "val", "training": "train", "testing": "test"}


def known_split(name: str) -> str | None:
    """Our name of a split, None where it is none.

    >>> known_split("validation"), known_split("birds")
    ('val', None)
    """
    return name if name in SPLITS else _OTHER_NAMES.get(name)


def split_of(path: PurePath) -> str:
    """The split that a file's name has as a word, or its folder as its name; else ``train``.

    >>> split_of(PurePath("mnist-validation-00000-of-00002.arrow")), split_of(PurePath("test/0.tar"))
    ('val', 'test')
    """
    words = path.name.replace("_", "-").replace(".", "-").split("-")
    candidates = [*words, *reversed(path.parts[:-1])]
    return next((split for name in candidates if (split := known_split(name))), "train")
