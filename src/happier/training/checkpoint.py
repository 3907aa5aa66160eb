"""A run's state on disk: one explicit dictionary, written atomically, checked when loaded.

    checkpoint/last.ckpt        the newest state
    checkpoint/previous.ckpt    the one before it, used where the newest is damaged
    checkpoint/best.ckpt        the state with the best H-AP

A file is written under a temporary name, synced and renamed, so a kill never leaves a partial one. It is
loaded with ``weights_only``: loading runs no code from the file. A digest over all tensors finds damage that
the format does not.
"""

from __future__ import annotations

import hashlib
import logging
import shutil
from pathlib import Path
from typing import Any, Final

import torch

from happier.errors import CheckpointError, DataError, first_line
from happier.storage.atomic import atomic_file, remove_leftovers
from happier.storage.regular_file import open_regular

__all__ = ["Checkpoints"]

log = logging.getLogger(__name__)
FORMAT: Final = 1


class Checkpoints:
    """The checkpoints of one run.

    Args:
        directory: ``RUN/checkpoint``.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.last = directory / "last.ckpt"
        self.previous = directory / "previous.ckpt"
        self.best = directory / "best.ckpt"

    def save(self, state: dict[str, Any], *, best: bool = False) -> None:
        """Write the state as `last` (the former `last` becomes `previous`), and as `best` if it is the best.

        Raises:
            CheckpointError: it cannot be written; the checkpoints before it are untouched.
        """
        sealed = {"format": FORMAT, "digest": _digest(state), **state}
        try:
            with atomic_file(self.last) as part:
                with part.open("wb") as file:
                    torch.save(sealed, file)
                if self.last.exists():
                    self.last.replace(self.previous)
            if best:
                with atomic_file(self.best) as part:
                    shutil.copyfile(self.last, part)
        # torch's writer reports a full disk as RuntimeError.
        except (DataError, OSError, RuntimeError) as error:
            raise CheckpointError(
                f"cannot write {self.last} ({first_line(error)}); the checkpoints before it are intact: "
                "free some space, then run the same command again"
            ) from error

    def load(self) -> dict[str, Any] | None:
        """The newest whole state, or None where there is none.

        A damaged `last` is reported, and `previous` taken instead.

        Raises:
            CheckpointError: there are checkpoints, and all are damaged.
        """
        faults = []
        for path in (self.last, self.previous):
            if not path.exists():
                continue
            try:
                state = read_checkpoint(path)
            except CheckpointError as error:
                log.warning("%s; using the previous one", error)
                faults.append(str(error))
                continue
            return state
        if faults:
            raise CheckpointError(f"no checkpoint of the run can be used: {'; '.join(faults)}")
        return None

    def clean(self) -> None:
        """Remove what killed writers left."""
        for path in (self.last, self.best):
            remove_leftovers(path)


def read_checkpoint(path: Path) -> dict[str, Any]:
    """Load one file and check its digest.

    Raises:
        CheckpointError: it is cut short, changed, of another format, or holds more than data.
    """
    try:
        with open_regular(path) as file:
            state = torch.load(file, map_location="cpu", weights_only=True)
    # A damaged file can make the unpickler raise any exception.
    except Exception as error:
        raise CheckpointError(f"the checkpoint {path} is damaged ({first_line(error)})") from error
    if not isinstance(state, dict) or not isinstance(state.get("format"), int) or state["format"] != FORMAT:
        raise CheckpointError(f"{path} is not a checkpoint of this version of happier")
    del state["format"]
    if state.pop("digest", None) != _digest(state):
        raise CheckpointError(f"the checkpoint {path} is damaged (its digest does not match its content)")
    return state


def _digest(state: Any) -> str:
    digest = hashlib.sha256()
    _feed(digest, state)
    return digest.hexdigest()


def _feed(digest: Any, value: Any) -> None:
    if isinstance(value, torch.Tensor):
        tensor = value.detach().cpu().contiguous()
        digest.update(f"{tensor.dtype}{tuple(tensor.shape)}".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    elif isinstance(value, dict):
        for key, item in value.items():
            digest.update(repr(key).encode())
            _feed(digest, item)
    elif isinstance(value, list | tuple):
        digest.update(f"[{len(value)}]".encode())
        for item in value:
            _feed(digest, item)
    else:
        digest.update(repr(value).encode())
