"""Small files of settings: JSON that is checked against a schema where it is read.

An undefined number (NaN, infinity) is written as null: JSON has no other word for it.
"""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any, TypeVar

import orjson
import xxhash
from pydantic import BaseModel, ConfigDict, ValidationError

from happier.errors import CheckpointError, DataError, HappierError
from happier.storage.atomic import atomic_file
from happier.storage.regular_file import read_regular

__all__ = [
    "Record",
    "SealedRecord",
    "check_record",
    "read_json",
    "read_record",
    "record_values",
    "to_json",
    "write_json",
    "write_record",
]

# Nothing that we write comes near it; a file that is larger is not one of ours.
LARGEST_BYTES = 64 << 20


class Record(BaseModel):
    """What a small JSON file holds: types are checked, unknown and missing names are errors."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid", allow_inf_nan=False)


class SealedRecord(Record):
    """A record with a checksum over its other names: a changed digit is found as well as broken JSON.

    Attributes:
        checksum: set by `write_record`; None in files that have none.
    """

    checksum: str | None = None


AnyRecord = TypeVar("AnyRecord", bound=Record)


def read_record(
    path: Path, kind: type[AnyRecord], *, error: type[HappierError] = CheckpointError, hint: str = ""
) -> AnyRecord:
    """Read a file as a record.

    Args:
        path: the file.
        kind: its schema.
        error: the class to raise.
        hint: what to do about a damaged file.

    Raises:
        error: it cannot be read, is not JSON, or does not fit the schema; the message names the first fault.
    """
    end = f"; {hint}" if hint else ""
    text = _read_bytes(path, error, end)
    try:
        record = kind.model_validate_json(text)
        values = orjson.loads(text)  # pydantic reads numbers and words that are not JSON
    except orjson.JSONDecodeError as fault:
        raise error(f"{path} is damaged: {_one_line(str(fault))}{end}") from None
    except ValidationError as fault:
        raise error(f"{path} is damaged: {_first_fault(fault)}{end}") from None
    if isinstance(record, SealedRecord):
        _check_seal(values, path, error, end)
    return record


def check_record(
    value: Any,
    kind: type[AnyRecord],
    path: Path,
    *,
    error: type[HappierError] = CheckpointError,
    hint: str = "",
) -> AnyRecord:
    """What `read_json` gave, or a part of it, as a record.

    Args:
        value: the content.
        kind: its schema.
        path: the file that it is from.
        error: the class to raise.
        hint: what to do about a damaged file.

    Raises:
        error: it does not fit the schema; the message names the first fault.
    """
    end = f"; {hint}" if hint else ""
    try:
        record = kind.model_validate(value)
    except ValidationError as fault:
        raise error(f"{path} is damaged: {_first_fault(fault)}{end}") from None
    if isinstance(record, SealedRecord):
        _check_seal(value, path, error, end)
    return record


def _check_seal(values: dict[str, Any], path: Path, error: type[HappierError], end: str) -> None:
    others = {name: value for name, value in values.items() if name != "checksum"}
    if values.get("checksum") is not None and _values_checksum(others) != values["checksum"]:
        raise error(f"{path} is damaged or was edited: its checksum does not match{end}")


def _first_fault(fault: ValidationError) -> str:
    first = fault.errors(include_url=False, include_input=False)[0]
    where = ".".join(str(part) for part in first["loc"])
    return _one_line(f"{where}: {first['msg']}" if where else str(first["msg"]))


def read_json(path: Path, *, error: type[HappierError] = CheckpointError, hint: str = "") -> Any:
    """Read any JSON file.

    Raises:
        error: it cannot be read or is not JSON.
    """
    end = f"; {hint}" if hint else ""
    try:
        return orjson.loads(_read_bytes(path, error, end))
    except orjson.JSONDecodeError as fault:
        raise error(f"{path} is damaged: {_one_line(str(fault))}{end}") from None


def _one_line(text: str) -> str:
    """What a damaged file says may hold anything: keep it short and on one line."""
    shown = "".join(character if character.isprintable() else "?" for character in text)
    return shown if len(shown) <= 200 else shown[:200] + "..."


def _read_bytes(path: Path, error: type[HappierError], end: str) -> bytes:
    try:
        return read_regular(path, largest=LARGEST_BYTES)
    except OSError as fault:
        if fault.errno in (errno.EFBIG, errno.EINVAL):
            raise error(f"{path} is damaged: {fault.strerror}{end}") from fault
        raise error(f"cannot read {path}: {fault.strerror}{end}") from fault


def to_json(value: Any) -> str:
    """JSON text, indented; an undefined number is null.

    >>> print(to_json({"H-AP": float("nan")}), end="")
    {
      "H-AP": null
    }

    Raises:
        DataError: a text in it is not valid Unicode, such as a file name in another encoding.
    """
    options = orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE | orjson.OPT_SERIALIZE_NUMPY
    try:
        return orjson.dumps(value, option=options).decode()
    except orjson.JSONEncodeError as fault:
        if "surrogates" in str(fault):
            raise DataError(
                "cannot be written as JSON: a name in it is not valid UTF-8; rename that file"
            ) from None
        raise


def write_record(record: Record, path: Path) -> None:
    """Write a record, a `SealedRecord` with its checksum; the file appears whole or not at all."""
    write_json(record_values(record), path)


def record_values(record: Record) -> dict[str, Any]:
    """What is written of a record, a `SealedRecord` with its checksum."""
    values: dict[str, Any] = orjson.loads(orjson.dumps(record.model_dump(mode="json")))
    if isinstance(record, SealedRecord):
        del values["checksum"]
        values["checksum"] = _values_checksum(values)
    return values


def _values_checksum(values: dict[str, Any]) -> str:
    return xxhash.xxh3_128_hexdigest(orjson.dumps(values, option=orjson.OPT_SORT_KEYS))


def write_json(value: Any, path: Path) -> None:
    """Write `to_json`; the file appears whole or not at all."""
    with atomic_file(path) as part:
        part.write_text(to_json(value), encoding="utf-8")
