"""The calls of the JSON API, independent of how they are sent."""

from __future__ import annotations

import mimetypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from happier.errors import InputError

ImageFile = Path | str | bytes


@dataclass(frozen=True)
class Call:
    """One request.

    Attributes:
        method, path: of HTTP.
        values: of the address; None is left out.
        fields: of a form.
        files: of a form.
    """

    method: str
    path: str
    values: Mapping[str, Any] = field(default_factory=dict)
    fields: Mapping[str, Any] = field(default_factory=dict)
    files: Sequence[ImageFile] = ()

    def options(self) -> dict[str, Any]:
        """What httpx takes.

        Raises:
            InputError: a file cannot be read.
        """
        values = {name: value for name, value in self.values.items() if value is not None}
        options: dict[str, Any] = {"params": values}
        if self.files:
            options |= {"files": [("file", _part(file)) for file in self.files], "data": dict(self.fields)}
        return options


def _part(file: ImageFile) -> tuple[str, bytes, str]:
    if isinstance(file, bytes):
        return "image", file, "application/octet-stream"
    path = Path(file)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error
    return path.name, data, mimetypes.guess_type(path.name)[0] or "application/octet-stream"


def search_call(
    *,
    image: ImageFile | None,
    item: str | None,
    upload: str | None,
    k: int,
    within: str,
    label: str | None,
    side: str,
) -> Call:
    """A search with an image, or with what the server has already.

    Raises:
        InputError: not exactly one of them.
    """
    if sum(one is not None for one in (image, item, upload)) != 1:
        raise InputError(
            "search with one of: an image, the id of an image of the index, the key of an upload"
        )
    values = {"k": k, "within": within or None, "label": label, "side": side}
    if image is not None:
        return Call("POST", "/api/search", values, files=[image])
    return Call("GET", "/api/search", {"id": item, "upload": upload, **values})


def items_call(*, within: str, offset: int, limit: int, side: str) -> Call:
    """Images of a branch."""
    return Call(
        "GET", "/api/items", {"within": within or None, "offset": offset, "limit": limit, "side": side}
    )


def add_call(images: Sequence[ImageFile], *, class_path: str, ids: Sequence[str], side: str) -> Call:
    """Images to add.

    Raises:
        InputError: none, or one that is a path by itself.
    """
    if isinstance(images, str | bytes | Path) or not images:
        raise InputError("add_images takes a sequence of images: add_images([...])")
    fields = {"class_path": class_path, "id": list(ids)}
    return Call("POST", "/api/images", {"side": side}, fields, images)
