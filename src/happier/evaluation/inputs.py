"""Checked inputs: embeddings of any float type, on any device or memory-mapped, and ids."""

from __future__ import annotations

import ctypes
import mmap
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, final

import numpy as np
import numpy.typing as npt
import torch

from happier.errors import InputError
from happier.numba_cache import jit

# Rows are read in pieces of about this many bytes, so that no check or cast copies a whole input.
PIECE_BYTES = 8 << 20
# Pieces of a file that are read from the disk while an earlier one is used; the system reads whole pages.
PIECES_AHEAD = 16
# What Linux calls reading a range of a map and mapping its pages at once; Python has no name for it.
_MADV_POPULATE_READ = 22


@final
class Vectors:
    """Checked embeddings ``[N, D]``, read piece by piece in the type that scores are computed in.

    Raises:
        InputError: not a non-empty, finite float array of two axes.
    """

    def __init__(self, values: Any, *, name: str = "embeddings") -> None:
        if not isinstance(values, np.ndarray | torch.Tensor):
            values = np.asarray(values)
        if isinstance(values, torch.Tensor):
            values = values.detach()
            if values.device.type == "cpu" and values.dtype != torch.bfloat16:  # numpy has no such type
                values = values.numpy()
        self.values: Final[npt.NDArray[Any] | torch.Tensor] = values
        self.name: Final = name
        if values.ndim != 2:
            raise InputError(
                f"{name} must be a float array [items, dimensions], got shape {tuple(values.shape)}"
            )
        if 0 in values.shape:
            raise InputError(f"{name} must have at least one row and column, got shape {tuple(values.shape)}")
        if not self._is_float():
            raise InputError(f"{name} must be floating point (16, 32 or 64 bit), got dtype {values.dtype}")
        self.smallest_norm, self.largest_norm, self._keys = self._scan()

    def __len__(self) -> int:
        return len(self.values)

    @property
    def dimensions(self) -> int:
        """Length D of each vector."""
        return int(self.values.shape[1])

    @property
    def is_double(self) -> bool:
        """Whether the values have 64 bits."""
        return self.values.dtype in (np.float64, torch.float64)

    @property
    def device(self) -> torch.device:
        """Where the values live."""
        return self.values.device if isinstance(self.values, torch.Tensor) else torch.device("cpu")

    def _is_float(self) -> bool:
        if isinstance(self.values, torch.Tensor):
            return self.values.dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64)
        return self.values.dtype in (np.float16, np.float32, np.float64)

    def pieces(self, start: int = 0, stop: int | None = None) -> Iterator[tuple[int, int]]:
        """Ranges of rows of about `PIECE_BYTES` each."""
        stop = len(self) if stop is None else stop
        step = max(1, PIECE_BYTES // (8 * self.dimensions))
        for first in range(start, stop, step):
            yield first, min(first + step, stop)

    def pieces_ahead(self, start: int = 0, stop: int | None = None) -> Iterator[tuple[int, int]]:
        """`pieces`; of a memory-mapped file, a thread reads the next ones from the disk in the meantime."""
        values = self.values
        if not isinstance(values, np.memmap):
            yield from self.pieces(start, stop)
            return

        # Told that reading is in order, the system reads megabytes at once: four times as fast here.
        _advise(values, "MADV_SEQUENTIAL")
        waiting: deque[tuple[int, int]] = deque()
        with ThreadPoolExecutor(1) as reader:
            for piece in self.pieces(start, stop):
                reader.submit(_read_from_disk, values[slice(*piece)])
                waiting.append(piece)
                if len(waiting) > PIECES_AHEAD:
                    yield waiting.popleft()
            yield from waiting
        _advise(values, "MADV_NORMAL")

    def tensor(self, start: int, stop: int, *, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        """Rows start..stop as a tensor."""
        rows = self.values[start:stop]
        if not isinstance(rows, torch.Tensor):
            # A read-only memory map is only read here; torch has no way of knowing and would warn.
            rows = torch.from_numpy(rows if rows.flags.writeable else rows.copy())
        return rows.to(device=device, dtype=dtype)

    def array(self, rows: slice | npt.NDArray[np.int64], *, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """Some rows as an array in memory; a view where nothing needs to be cast."""
        picked: Any
        if isinstance(self.values, torch.Tensor) and isinstance(rows, np.ndarray):
            picked = self.values[torch.from_numpy(rows).to(self.values.device)]
        else:
            picked = self.values[rows]
        if isinstance(picked, torch.Tensor):
            kind = torch.float64 if np.dtype(dtype) == np.float64 else torch.float32
            picked = picked.to(device="cpu", dtype=kind).numpy()
        return np.ascontiguousarray(picked, dtype=dtype)

    def _scan(self) -> tuple[float, float, npt.NDArray[np.uint64]]:
        """Smallest and largest norm, and a key for each row that equal rows share; one pass over them."""
        kind = np.float64 if self.is_double else np.float32
        norms, keys = np.empty(len(self)), np.empty(len(self), dtype=np.uint64)
        factors = np.random.default_rng(0).integers(1 << 32, size=self.dimensions, dtype=np.uint32)
        for start, stop in self.pieces_ahead():
            rows = self.array(slice(start, stop), dtype=kind)
            bits = rows.view(np.uint64 if self.is_double else np.uint32)
            _norms_and_keys(rows, bits, factors, norms[start:stop], keys[start:stop])
        if not np.isfinite(norms).all():
            row = int(np.flatnonzero(~np.isfinite(norms))[0])
            raise InputError(f"{self.name} must be finite, row {row} holds NaN, infinite or huge values")
        return float(np.sqrt(norms.min())), float(np.sqrt(norms.max())), keys

    def duplicates(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Rows that repeat an earlier one, and the row they repeat.

        A matrix product may round equal rows differently, depending on their position; this list makes the
        scores of equal vectors equal, so that ties are recognised.
        """
        _, first, group = np.unique(self._keys, return_index=True, return_inverse=True)
        earlier = first[group]
        again = np.flatnonzero(earlier != np.arange(len(self)))
        # Equal keys nearly always mean equal rows; comparing the rows makes sure.
        step = max(1, PIECE_BYTES // (8 * self.dimensions))
        same = [
            (
                self.array(again[i : i + step], dtype=np.float64)
                == self.array(earlier[again[i : i + step]], dtype=np.float64)
            ).all(1)
            for i in range(0, len(again), step)
        ]
        again = again[np.concatenate(same)] if same else again
        return again, earlier[again]


# Sums may be taken in any order, which lets both run in vector lanes.
@jit(nogil=True, fastmath={"reassoc", "contract"})
def _norms_and_keys(rows: Any, bits: Any, factors: Any, norms: Any, keys: Any) -> None:
    """Squared norm of each row, and a hash of its values: their bits, each times its own factor, summed."""
    for i in range(len(rows)):
        total = 0.0
        key = np.uint64(0)
        for j in range(rows.shape[1]):
            value = np.float64(rows[i, j])
            total += value * value
            # -0.0 and 0.0 hash alike.
            key += (np.uint64(bits[i, j]) if value != 0 else np.uint64(0)) * np.uint64(factors[j])
        norms[i] = total
        keys[i] = key


def _read_from_disk(rows: Any) -> None:
    """Make the system read some rows of a memory-mapped array, and map every page of them."""
    first = rows.ctypes.data - rows.ctypes.data % mmap.PAGESIZE
    size = rows.ctypes.data + rows.nbytes - first
    # By way of ctypes, which releases Python's lock.
    madvise = getattr(ctypes.CDLL(None), "madvise", None) if rows.flags.c_contiguous else None
    if madvise is None or madvise(ctypes.c_void_p(first), ctypes.c_size_t(size), _MADV_POPULATE_READ):
        # Not on this system: read a value of each page, which takes the processor longer.
        rows[:, :: max(1, mmap.PAGESIZE // rows.itemsize)].max()


def _advise(values: Any, advice: str) -> None:
    """Tell the system how a memory-mapped array will be read, where it can be told."""
    mapping = getattr(values, "_mmap", None)
    if isinstance(mapping, mmap.mmap) and hasattr(mmap, advice):
        mapping.madvise(getattr(mmap, advice))


def as_ids(ids: Any, length: int, *, name: str) -> npt.NDArray[Any]:
    """Check ids, one per row, and return them as an array of integers or strings.

    Raises:
        InputError: not one id per row, or neither integers nor strings.
    """
    array = ids.detach().cpu().numpy() if isinstance(ids, torch.Tensor) else np.asarray(ids)
    if array.shape != (length,):
        raise InputError(f"{name} must hold one id per row, shape ({length},), got {array.shape}")
    if array.dtype.kind in "OT":
        array = array.astype(str)
    if array.dtype.kind not in "iuU":
        raise InputError(f"{name} must be integers or strings, got dtype {array.dtype}")
    return array
