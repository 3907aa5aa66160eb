"""Hugging Face ``datasets`` on disk, and its ``imagefolder``.

    dataset.save_to_disk(PATH)      data-00000-of-00001.arrow ..., in a folder for each split of several
    the cache of load_dataset       NAME-train.arrow, NAME-test-00000-of-00002.arrow ...
    imagefolder                     train/owl/1.jpg, or train/metadata.csv with a column file_name

Images inside Arrow files stay where they are: each row of the manifest names a part of one
(`happier.storage.regular_file`). The package ``datasets`` is not needed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa

from happier.data.importers.folder import read_folder
from happier.data.importers.split_names import known_split, split_of
from happier.data.manifest import Manifest, default_levels
from happier.errors import DataError, OptionError, did_you_mean, first_line
from happier.storage.regular_file import part_of_file
from happier.storage.tables import read_csv


def read_hugging_face(source: Path, *, levels: Sequence[str] | None = None) -> Manifest:
    """Read what ``datasets`` stored in a folder; images are not copied.

    Args:
        source: the folder.
        levels: label columns, coarse to fine; by default the columns of type ClassLabel, few classes first.

    Raises:
        DataError: there is no such data, or it has no column of images.
        OptionError: no such columns.
    """
    files = sorted(source.rglob("*.arrow"))
    if not files:
        return _image_folder(source, levels)
    parts = [
        _table(source, file, levels) for file in files if not file.name.startswith(("cache-", "indices"))
    ]
    if not parts:
        raise DataError(f"{source} has only intermediate results of datasets: use save_to_disk")
    if len({names for names, _ in parts}) > 1:
        raise DataError(f"the Arrow files of {source} have different label columns: import them one by one")
    names = parts[0][0]
    table = pd.DataFrame([row for _, rows in parts for row in rows], columns=["path", "split", *names])
    return Manifest(table, levels=names, root=source)


class _Columns(NamedTuple):
    """What the features say: the column of images, and the names of each class label."""

    image: str
    classes: dict[str, list[str]]


def _table(
    source: Path, file: Path, levels: Sequence[str] | None
) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Names of the levels and rows of the manifest of one Arrow file."""
    name = file.relative_to(source)
    split = split_of(name)
    try:
        with pa.memory_map(str(file)) as mapped:
            start = mapped.read_buffer(1).address if mapped.size() else 0
            mapped.seek(0)
            try:
                reader: Any = pa.ipc.open_stream(mapped)
            except pa.ArrowInvalid:
                mapped.seek(0)
                reader = pa.ipc.open_file(mapped)
            schema = reader.schema
            columns = _columns(file, schema)
            names = _levels(file, schema, columns, levels)
            rows: list[tuple[str, ...]] = []
            for batch in _batches(reader):
                paths = _image_paths(file, name.as_posix(), batch.column(columns.image), start, mapped.size())
                labels = [_names(batch.column(one).to_pylist(), columns.classes.get(one)) for one in names]
                rows += [
                    (path, split, *row) for path, row in zip(paths, zip(*labels, strict=True), strict=True)
                ]
            return names, rows
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"cannot read {file}: {first_line(error)}") from error


def _batches(reader: Any) -> Iterator[Any]:
    if hasattr(reader, "num_record_batches"):
        return (reader.get_batch(number) for number in range(reader.num_record_batches))
    return iter(reader)


def _columns(file: Path, schema: pa.Schema) -> _Columns:
    """The image column and the class labels, from the features that ``datasets`` notes in the schema."""
    try:
        features = json.loads((schema.metadata or {})[b"huggingface"])["info"]["features"]
        kinds = {
            name: feature.get("_type") for name, feature in features.items() if isinstance(feature, dict)
        }
        classes = {
            name: [str(one) for one in features[name]["names"]]
            for name in kinds
            if kinds[name] == "ClassLabel"
        }
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        raise DataError(
            f"{file} was not written by datasets: it does not say what its columns are"
        ) from error
    images = [name for name, kind in kinds.items() if kind == "Image"]
    if len(images) != 1:
        raise DataError(f"{file} must have one column of images, got {len(images)}: {', '.join(kinds)}")
    return _Columns(images[0], classes)


def _levels(
    file: Path, schema: pa.Schema, columns: _Columns, levels: Sequence[str] | None
) -> tuple[str, ...]:
    if levels is None:
        if not columns.classes:
            others = [name for name in schema.names if name != columns.image]
            raise OptionError(
                f"{file} has no ClassLabel; name the label columns with --levels: {', '.join(others)}"
            )
        return tuple(sorted(columns.classes, key=lambda name: len(columns.classes[name])))
    if missing := [name for name in levels if name not in schema.names]:
        raise OptionError(f"{file} has no column {missing[0]!r}{did_you_mean(missing[0], schema.names)}")
    return tuple(levels)


def _names(values: list[Any], classes: list[str] | None) -> list[str]:
    """Labels as text, "" where one is unknown."""
    if classes is None:
        return ["" if value is None else str(value) for value in values]
    return ["" if value is None or value < 0 else classes[value] for value in values]


def _image_paths(file: Path, name: str, images: Any, start: int, size: int) -> list[str]:
    """Where the bytes of each image are: a part of the Arrow file, or a file of its own."""
    storage = images.storage if isinstance(images, pa.ExtensionArray) else images
    if not pa.types.is_struct(storage.type):
        raise DataError(
            f"{file}: its images are {storage.type}, not bytes and path; cast them to Image first"
        )
    content, paths = storage.field("bytes"), storage.field("path").to_pylist()
    known, wide = content.is_valid().to_pylist(), pa.types.is_large_binary(content.type)
    _, offsets, data = content.buffers()
    ends = np.frombuffer(offsets, dtype=np.int64 if wide else np.int32) if offsets else np.zeros(1, np.int32)
    ends = ends[content.offset : content.offset + len(content) + 1]
    first = data.address - start if data is not None else 0
    found = []
    for row, inside in enumerate(known):
        if not inside:
            if not paths[row]:
                raise DataError(f"{file}: row {row + 1} has neither the bytes nor the path of an image")
            found.append(str(paths[row]))
            continue
        place, end = first + int(ends[row]), first + int(ends[row + 1])
        if not 0 <= place <= end <= size:
            raise DataError(f"{file} is compressed; store it again with save_to_disk")
        found.append(part_of_file(name, place, end - place))
    return found


def _image_folder(source: Path, levels: Sequence[str] | None) -> Manifest:
    """``imagefolder``: class folders, below folders of splits or not, or a ``metadata.csv`` for each."""
    splits = {folder: known_split(folder.name) for folder in sorted(source.iterdir()) if folder.is_dir()}
    parts = {folder: split for folder, split in splits.items() if split}
    if not parts or len(parts) < len(splits):
        parts = {source: "train"}
    tables = []
    for folder, split in parts.items():
        prefix = "" if folder == source else f"{folder.name}/"
        one = _metadata(folder) if (folder / "metadata.csv").is_file() else read_folder(folder).table
        tables.append(one.assign(split=split, path=prefix + one["path"]))
    table = pd.concat(tables, ignore_index=True)
    names = tuple(levels) if levels is not None else default_levels(table)
    if levels is not None and not (source / "metadata.csv").exists() and not set(levels) <= set(table):
        table = table.rename(columns=dict(zip(default_levels(table), levels, strict=False)))
    return Manifest(table, levels=names, root=source)


def _metadata(folder: Path) -> pd.DataFrame:
    path = folder / "metadata.csv"
    table = read_csv(path, error=DataError)
    if "file_name" not in table:
        raise DataError(f"{path} must have a column file_name; it has {', '.join(table.columns)}")
    return table.rename(columns={"file_name": "path"})
