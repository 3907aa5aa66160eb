"""A directory of embeddings: the vectors as one memory-mapped array, the rows as a manifest.

    embeddings.npy     float32 [N, D], unit vectors
    items.parquet      a manifest, the same rows in the same order
    embeddings.json    the model's fingerprint and settings

The directory appears whole or not at all. Under ``torchrun`` each rank embeds its own rows into the
same file.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset

from happier.data import Manifest
from happier.errors import CheckpointError, DataError, OptionError

if TYPE_CHECKING:
    from happier.encoder import Encoder, Progress

__all__ = ["Embeddings", "embed_manifest"]

VECTORS_FILE = "embeddings.npy"
ITEMS_FILE = "items.parquet"
SETTINGS_FILE = "embeddings.json"


@dataclass(frozen=True)
class Embeddings:
    """Vectors and the rows they belong to.

    Attributes:
        vectors: float32 ``[N, D]``, mapped from disk.
        manifest: the rows, in the same order.
        fingerprint: of the model that made them; `Encoder.fingerprint`.
    """

    vectors: npt.NDArray[np.float32]
    manifest: Manifest
    fingerprint: str

    @classmethod
    def read(cls, directory: Path | str) -> Embeddings:
        """Open a directory; the vectors stay on disk until they are touched.

        Raises:
            CheckpointError: it is not a directory of embeddings, or its files do not belong together.
        """
        directory = Path(directory)
        try:
            settings = json.loads((directory / SETTINGS_FILE).read_text())
            fingerprint = str(settings["fingerprint"])
            vectors = np.load(directory / VECTORS_FILE, mmap_mode="r", allow_pickle=False)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise CheckpointError(
                f"{directory} is not a directory of embeddings ({error}); make one with `happier embed`"
            ) from error
        manifest = Manifest.read(directory / ITEMS_FILE)
        if vectors.ndim != 2 or len(vectors) != len(manifest):
            raise CheckpointError(
                f"{directory} has {len(manifest)} items but vectors of shape {vectors.shape}; embed again"
            )
        return cls(vectors, manifest, fingerprint)


class _Images(Dataset[torch.Tensor]):
    """Preprocessed images of some files, for the loader's workers."""

    def __init__(self, files: list[Path], encoder: Encoder) -> None:
        self.files, self.read = files, encoder.read_image

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.read(self.files[index])


def embed_manifest(
    encoder: Encoder,
    manifest: Manifest,
    out_dir: Path | str,
    *,
    batch_size: int = 64,
    precision: str = "fp32",
    workers: int = 0,
    progress: Progress | None = None,
) -> Embeddings:
    """Embed every row of a manifest into a directory; an older directory of embeddings is replaced.

    Args:
        encoder: the model.
        manifest: the rows.
        out_dir: directory to write.
        batch_size: images at a time.
        precision: fp32, bf16 or fp16; the vectors are stored in float32 all the same.
        workers: processes that decode images.
        progress: told of this rank's images done and of their number.

    Raises:
        ImageError: an image cannot be read; nothing is written.
        DataError: `out_dir` is there and is something else.
    """
    if batch_size < 1 or workers < 0:
        raise OptionError(f"batch_size must be 1 or more, workers 0 or more, got {batch_size} and {workers}")
    out_dir = Path(out_dir)
    if out_dir.exists() and any(out_dir.iterdir()) and not (out_dir / SETTINGS_FILE).is_file():
        raise DataError(f"{out_dir} is there and holds no embeddings; choose another directory")
    rank, world = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
    # The same name on every rank: they share one file.
    partial = out_dir.with_name(f".{out_dir.name}.partial")
    try:
        if rank == 0:
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir(parents=True)
            shape = (len(manifest), encoder.dim)
            np.lib.format.open_memmap(partial / VECTORS_FILE, "w+", np.float32, shape).flush()
        _barrier()
        vectors = np.lib.format.open_memmap(partial / VECTORS_FILE, "r+")
        first, last = len(manifest) * rank // world, len(manifest) * (rank + 1) // world
        loader = DataLoader(
            _Images(manifest.files()[first:last], encoder), batch_size=batch_size, num_workers=workers
        )
        with encoder.inference(precision):
            at = first
            for images in loader:
                vectors[at : at + len(images)] = encoder(images.to(encoder.device)).cpu().numpy()
                at += len(images)
                if progress is not None:
                    progress(at - first, last - first)
        vectors.flush()
        _barrier()
        if rank == 0:
            manifest.write(partial / ITEMS_FILE)
            settings = {
                "format": 1,
                "fingerprint": encoder.fingerprint,
                "dim": encoder.dim,
                "items": len(manifest),
                "backbone": encoder.backbone_name,
                "precision": precision,
            }
            (partial / SETTINGS_FILE).write_text(json.dumps(settings, indent=2) + "\n")
            shutil.rmtree(out_dir, ignore_errors=True)
            partial.rename(out_dir)
        _barrier()
    except BaseException:
        if rank == 0:
            shutil.rmtree(partial, ignore_errors=True)
        raise
    return Embeddings.read(out_dir)


def _barrier() -> None:
    if dist.is_initialized():
        dist.barrier()
