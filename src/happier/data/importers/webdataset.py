"""WebDataset: tar files whose members share a key, an image and its labels.

    train-000000.tar      n01.jpg n01.json   n02.jpg n02.json ...     {"kind": "bird", "item": "owl"}
    train-000001.tar      or n01.jpg n01.cls ...                       a class number or name

The images stay where they are: each row of the manifest names a part of a tar
(`happier.storage.regular_file`), so that samplers draw any image, and a pass in the manifest's order reads
the shards from start to end.
"""

from __future__ import annotations

import json
import tarfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from happier.data.importers.folder import SUFFIXES
from happier.data.importers.split_names import split_of
from happier.data.manifest import Manifest
from happier.errors import DataError, OptionError, first_line
from happier.storage.regular_file import part_of_file

_LARGEST_LABEL = 1 << 20


def read_webdataset(source: Path, *, levels: Sequence[str] | None = None) -> Manifest:
    """Read the index of each tar below a folder; no image is unpacked.

    Args:
        source: the folder; the split is a word of a tar's name, or its folder's name, else ``train``.
        levels: keys of the ``.json`` members, coarse to fine; by default the ``.cls`` members are the class.

    Raises:
        DataError: no tars, a damaged or compressed one, or a sample without an image or a label.
    """
    shards = sorted(source.rglob("*.tar"))
    if not shards:
        raise DataError(f"{source} has no .tar files; compressed ones must be unpacked first")
    names = tuple(levels) if levels is not None else ("class",)
    rows = [row for shard in shards for row in _rows(source, shard, names, from_json=levels is not None)]
    if not rows:
        raise DataError(f"the .tar files of {source} are empty")
    table = pd.DataFrame(rows, columns=["path", "split", "id", *names])
    return Manifest(table, levels=names, root=source)


def _rows(source: Path, shard: Path, names: tuple[str, ...], *, from_json: bool) -> Iterator[tuple[str, ...]]:
    """A row of the manifest for each sample of a tar."""
    file, split = shard.relative_to(source).as_posix(), split_of(shard.relative_to(source))
    for key, (image, members) in _samples(shard).items():
        where = f"{shard}, sample {key}"
        if image is None:
            raise DataError(f"{where}: it has no image ({', '.join(sorted(SUFFIXES))})")
        if from_json:
            labels = _json_labels(members.get(".json"), names, where)
        elif ".cls" in members:
            labels = (members[".cls"].decode(errors="replace").strip(),)
        else:
            raise OptionError(f"{where}: it has no .cls; name the keys of its .json with --levels")
        yield (part_of_file(file, *image), split, f"{file}/{key}", *labels)


def _samples(shard: Path) -> dict[str, tuple[tuple[int, int] | None, dict[str, bytes]]]:
    """Place and length of the image, and the label members, of each key.

    Raises:
        DataError: it is not an uncompressed tar, or a sample has two images.
    """
    images: dict[str, tuple[int, int]] = {}
    members: dict[str, dict[str, bytes]] = {}
    try:
        with tarfile.open(shard, "r:") as archive:
            for member in archive:
                if not member.isreg() or member.issparse():
                    continue
                folder, _, name = member.name.rpartition("/")
                stem, _, suffix = name.partition(".")
                key, suffix = f"{folder}/{stem}" if folder else stem, f".{suffix.lower()}"
                members.setdefault(key, {})
                if suffix in SUFFIXES:
                    if key in images:
                        raise DataError(f"{shard}, sample {key}: it has two images")
                    images[key] = (member.offset_data, member.size)
                elif suffix in (".json", ".cls") and member.size <= _LARGEST_LABEL:
                    content = archive.extractfile(member)
                    members[key][suffix] = content.read() if content is not None else b""
    except (tarfile.TarError, EOFError, OSError, ValueError) as error:
        raise DataError(f"cannot read {shard} as an uncompressed tar: {first_line(error)}") from error
    return {key: (images.get(key), found) for key, found in members.items()}


def _json_labels(data: bytes | None, names: tuple[str, ...], where: str) -> tuple[str, ...]:
    try:
        found: Any = json.loads(data or b"")
        return tuple("" if found.get(name) is None else str(found[name]) for name in names)
    except (ValueError, AttributeError, RecursionError) as error:
        raise DataError(f"{where}: its .json cannot be read ({first_line(error)})") from error
