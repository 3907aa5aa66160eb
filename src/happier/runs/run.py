"""Where embeddings come from: a run of ``happier train``, a directory of embeddings, or an array.

The rows of a run are embedded once: its directory stores the vectors, and they are used again for as long as
the weights and the images' content are the same.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from happier.data import Manifest, fetch
from happier.encoder.embeddings import Embeddings, has_embeddings, keep_embeddings
from happier.errors import ManifestError
from happier.evaluation.protocol import splits_to_search
from happier.losses import display_name
from happier.losses.registry import takes_attributes
from happier.runs.run_directory import RunDirectory
from happier.runs.run_features import head_vectors
from happier.taxonomy import UNKNOWN
from happier.vectors.image_pass import PassOptions
from happier.vectors.npy import map_array

if TYPE_CHECKING:
    from happier.encoder import Encoder
    from happier.progress import Progress


@dataclass(frozen=True)
class Run:
    """Vectors, the rows they belong to, and what is known about the model that made them.

    Attributes:
        source: what the user named.
        name: display name of the model.
        vectors: float32 ``[N, D]``.
        manifest: the rows, in the same order.
        directory: the run's own directory, None for an array or a model of the hub.
        fingerprint: of the weights, None where it is not known.
        config: the training configuration, empty where there is none.
        config_text: the text of its file.
        history: the lines of ``metrics.jsonl``.
        unseen_classes: whether no fine class of these rows is in the training split; None where unknown.
    """

    source: str
    name: str
    vectors: npt.NDArray[np.float32]
    manifest: Manifest
    directory: Path | None = None
    fingerprint: str | None = None
    config: dict[str, Any] = field(default_factory=dict)
    config_text: str | None = None
    history: tuple[dict[str, Any], ...] = ()
    unseen_classes: bool | None = None

    @property
    def by_attributes(self) -> bool:
        """Whether it was trained on attributes instead of labels."""
        return takes_attributes(_loss_name(self.config))


def read_run(
    source: Path | str,
    *,
    manifest: Path | str | None = None,
    split: str | None = None,
    name: str | None = None,
    batch_size: int = 64,
    progress: Progress | None = None,
) -> Run:
    """Vectors of the rows that an evaluation needs, embedded first if necessary.

    Args:
        source: a run directory, a saved model, a directory of embeddings, a ``.npy`` file, or a hub id.
        manifest: the rows; by default the run's own. An array needs one.
        split: what will be evaluated, see `happier.evaluation.protocol.splits_to_search`.
        name: display name of the model; by default its loss or the name of the directory.
        batch_size: images embedded at a time.
        progress: called with the images embedded and their number.

    Raises:
        CheckpointError: there is no model and there are no embeddings at ``source``.
        ManifestError: there is no manifest, or its rows are not those of the embeddings.
    """
    path = Path(source)
    if path.suffix == ".npy":
        return _read_array(path, manifest, split, name)
    if has_embeddings(path):
        stored = Embeddings.read(path)
        rows, vectors = stored.manifest, stored.vectors
        if manifest is not None:
            rows, vectors = rows_with_vectors(Manifest.read(manifest), stored.manifest, vectors)
        label = name or path.resolve().name
        return Run(str(source), label, vectors, rows, directory=path, fingerprint=stored.fingerprint)
    return _read_model(str(source), _Wanted(manifest, split, name, batch_size, progress))


def _read_array(path: Path, manifest: Path | str | None, split: str | None, name: str | None) -> Run:
    if manifest is None:
        raise ManifestError(f"{path} holds vectors only; name the manifest of its rows with --manifest")
    vectors = map_array(path)
    rows = Manifest.read(manifest)
    if len(vectors) != len(rows):
        # An array of the test rows alone, beside the manifest of the whole data set.
        part = rows.select(splits_to_search(rows, split))
        if len(vectors) != len(part):
            raise ManifestError(
                f"{path} has {len(vectors)} vectors; the manifest {manifest} has {len(rows)} rows, "
                f"{len(part)} of them to evaluate: the rows must be the same, in the same order"
            )
        rows = part
    return Run(str(path), name or path.stem, vectors, rows)


def rows_with_vectors(
    wanted: Manifest, stored: Manifest, vectors: npt.NDArray[np.float32]
) -> tuple[Manifest, npt.NDArray[np.float32]]:
    """The rows of a manifest whose images have a vector, labelled as this manifest says, and the vectors.

    Args:
        wanted: the rows.
        stored: the images that have vectors.
        vectors: theirs, in the same order.

    Raises:
        ManifestError: none has one.
    """
    place = {path: row for row, path in enumerate(stored.files())}
    pairs = [(row, place[path]) for row, path in enumerate(wanted.files()) if path in place]
    if not pairs:
        raise ManifestError("none of the manifest's images have a vector there; embed them first")
    mine, theirs = np.asarray(pairs).T
    return wanted.take(mine), vectors[theirs]


@dataclass(frozen=True)
class _Wanted:
    """What the caller of `read_run` asked for."""

    manifest: Path | str | None
    split: str | None
    name: str | None
    batch_size: int
    progress: Progress | None


def _read_model(source: str, wanted: _Wanted) -> Run:
    from happier.encoder import Encoder

    directory = RunDirectory(source)
    encoder = Encoder.from_pretrained(source)
    config = directory.read_config() if directory.has_config else {}
    whole = _manifest_of(source, wanted.manifest, config.get("data") or {})
    rows = whole.select(splits_to_search(whole, wanted.split))
    label = wanted.name or display_name(_loss_name(config)) or directory.path.resolve().name
    return Run(
        source,
        label,
        _vectors_of(encoder, whole, directory, wanted),
        rows,
        directory=directory.path if directory.path.is_dir() else None,
        fingerprint=encoder.fingerprint,
        config=config,
        config_text=directory.read_config_text() if directory.has_config else None,
        history=directory.read_history(),
        unseen_classes=_unseen(whole, rows),
    )


def _loss_name(config: dict[str, Any]) -> str:
    return str((config.get("loss") or {}).get("name") or "")


def _manifest_of(source: str, manifest: Path | str | None, data: dict[str, Any]) -> Manifest:
    if manifest is None and data.get("manifest") is None and data.get("name") is not None:
        manifest = fetch(str(data["name"]))
    manifest = manifest or data.get("manifest")
    if manifest is None:
        raise ManifestError(f"{source} does not say which images it is for; name them with --manifest")
    return Manifest.read(manifest)


def _vectors_of(
    encoder: Encoder, whole: Manifest, directory: RunDirectory, wanted: _Wanted
) -> npt.NDArray[np.float32]:
    """Vectors of the rows to search: of kept features, stored ones that fit, or embedded now and stored."""
    batch_size, progress = wanted.batch_size, wanted.progress
    splits = splits_to_search(whole, wanted.split)
    found = head_vectors(directory, encoder, whole, splits, progress=progress)
    if found is not None:
        return found
    rows = whole.select(splits)
    if not directory.path.is_dir():  # a model of the hub
        return encoder.embed(rows.files(), batch_size=batch_size, progress=progress)
    options = PassOptions(batch_size=batch_size)
    return keep_embeddings(
        encoder, rows, directory.embeddings_folder, options=options, progress=progress
    ).vectors


def _unseen(whole: Manifest, rows: Manifest) -> bool | None:
    if "train" not in whole.splits:
        return None
    trained = np.unique(whole.select("train").labels()[:, -1])
    return not np.isin(rows.labels()[:, -1], trained[trained != UNKNOWN]).any()
