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

    @property
    def changes(self) -> bool:
        """Whether it changes the index."""
        return self.path == "/api/images"

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


@dataclass(frozen=True)
class Combination:
    """Images of a query beyond its first one.

    Attributes:
        more: ids of further images that results should be like.
        less: ids of images that they should not be like.
        more_uploads, less_uploads: the same by keys of uploads.

    >>> Combination(more=["owl.png"], less=["bat.png"]).values()
    {'more': ['owl.png'], 'upload': [], 'less': ['bat.png'], 'less_upload': []}
    """

    more: Sequence[str] = ()
    less: Sequence[str] = ()
    more_uploads: Sequence[str] = ()
    less_uploads: Sequence[str] = ()

    def values(self) -> dict[str, list[str]]:
        """By the names of the API."""
        given = {"more": self.more, "upload": self.more_uploads}
        given |= {"less": self.less, "less_upload": self.less_uploads}
        return {name: list(value) for name, value in given.items()}


def search_call(
    *,
    image: ImageFile | None,
    item: str | None,
    upload: str | None,
    combine: Combination | None,
    values: Mapping[str, Any],
) -> Call:
    """A search with an image, or with what the server has already.

    Raises:
        InputError: not exactly one of them, or an image that was not uploaded with others.
    """
    if sum(one is not None for one in (image, item, upload)) != 1:
        raise InputError(
            "search with one of: an image, the id of an image of the index, the key of an upload"
        )
    if image is not None:
        if combine is not None:
            raise InputError("upload the image first, and search with its key to combine it with others")
        return Call("POST", "/api/search", values, files=[image])
    others = (combine or Combination()).values()
    if upload is not None:
        others["upload"].insert(0, upload)
    return Call("GET", "/api/search", {"id": item, **others, **values})


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
