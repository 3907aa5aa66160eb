"""Images added to and removed from an index over the network, through the same lock as the command line."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from happier.data import Manifest
from happier.data.class_path import split as split_path
from happier.data.image import open_image
from happier.errors import InputError, OptionError
from happier.search.index import Index
from happier.storage.atomic import atomic_file, make_folder
from happier.web.images import decode

if TYPE_CHECKING:
    from happier.web.explorer import Explorer
    from happier.web.indexed_model import IndexedModel


class CatalogueWriter:
    """Changes the indexes of an explorer.

    Args:
        explorer: whose indexes; it shows a change when that is complete.
        folder: where the files of added images go, each named by its content.
    """

    def __init__(self, explorer: Explorer, folder: Path) -> None:
        self._explorer, self._folder = explorer, folder.absolute()
        self._changing = threading.Lock()
        try:
            make_folder(self._folder)
        except OSError as error:
            raise OptionError(f"images cannot be added to {folder}: {error.strerror}") from error

    @property
    def folder(self) -> Path:
        """Where the files go."""
        return self._folder

    def add(
        self, key: str, files: Sequence[bytes], class_path: str, ids: Sequence[str]
    ) -> tuple[Index, list[str]]:
        """Add images of one class.

        Args:
            key: of the index, ``a`` to ``d``.
            files: the images.
            class_path: their class; empty where it is unknown.
            ids: of the images; none for checksums of their content.

        Returns:
            The index after the change, and the ids of the images.

        Raises:
            ImageError: one is not an image, damaged, or too large; nothing is added.
            InputError: ids that do not fit or are taken, an image that is there, or a class that is too deep.
        """
        model = self._explorer.model(key)
        names = split_path(class_path)
        if len(names) > len(model.index.levels):
            raise InputError(f"{class_path!r} has {len(names)} levels, the index {len(model.index.levels)}")
        if ids and len(ids) != len(files):
            raise InputError(f"give one id for each image: {len(files)} images, {len(ids)} ids")
        if not all(one.strip() for one in ids):
            raise InputError("an id must not be empty; without any the images are named by their content")
        file_names = [_file_name(data) for data in files]
        chosen = list(ids) or file_names
        if len(set(chosen)) < len(chosen):
            raise InputError("two of the images have the same id")
        if len(set(file_names)) < len(file_names):
            raise InputError("two of the images are the same")
        _refuse_known(self._newest(key), chosen, file_names)  # before anything is written
        rows = {"path": file_names, "split": "test", "id": chosen}
        for level, name in zip(model.index.levels, [*names, *[""] * len(model.index.levels)], strict=False):
            rows[level] = name
        manifest = Manifest(pd.DataFrame(rows), levels=model.index.levels, root=self._folder)
        paths = [self._keep(data, name) for data, name in zip(files, file_names, strict=True)]
        embedder = model.embedder
        vectors = np.stack([embedder.embed_tensor(embedder.encoder.read_image(path)) for path in paths])
        with self._changing:
            changed = self._newest(key).beside()
            _refuse_known(changed, chosen, file_names)
            changed.add(manifest, vectors, fingerprint=model.index.head.fingerprint)
            self._explorer.show(key, changed)
        return changed, chosen

    def delete(self, key: str, ids: Sequence[str]) -> Index:
        """Remove images; their files stay.

        Raises:
            SearchError: an id is not there, or nothing would be left.
        """
        with self._changing:
            changed = self._newest(key).beside()
            changed.delete(ids)
            self._explorer.show(key, changed)
        return changed

    def _newest(self, key: str) -> Index:
        self._explorer.refresh()
        model: IndexedModel = self._explorer.model(key)
        return model.index

    def _keep(self, data: bytes, name: str) -> Path:
        """Write an image's file, as it came: its vector must be that of the file."""
        path = self._folder / name
        if not path.exists():
            with atomic_file(path) as part:
                part.write_bytes(data)
        return path


def _file_name(data: bytes) -> str:
    """The name of an image's file, after its content.

    Raises:
        ImageError: it is not an image, damaged, or too large.
    """
    decode(data, name="the image")  # whole, and of an accepted size
    kind = (open_image(data).format or "image").lower()
    return f"{hashlib.sha256(data).hexdigest()[:32]}.{kind}"


def _refuse_known(index: Index, ids: Sequence[str], file_names: Sequence[str]) -> None:
    """Raises `InputError` where the index has an image with one of the ids, or one of the images."""
    taken = [one for one in ids if one in index]
    if taken:
        raise InputError(f"the index has an image with the id {taken[0]!r} already; delete it first")
    same = index.items.table["path"].str.endswith(tuple(file_names))
    if same.any():
        known = index.ids[int(same.to_numpy().argmax())]
        raise InputError(f"the index has this image already, with the id {known!r}")
