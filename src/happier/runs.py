"""Where embeddings come from: a run of ``happier train``, a directory of embeddings, or an array.

A run is embedded once: its vectors are kept in ``evaluation/embeddings`` and used again for as long as the
weights and the rows are the same.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt

from happier.data import Manifest, fetch
from happier.embeddings import Embeddings
from happier.errors import CheckpointError, InputError, ManifestError
from happier.evaluation.protocol import splits_to_search
from happier.taxonomy import UNKNOWN

if TYPE_CHECKING:
    from happier.encoder import Progress

# How the losses are called in print; anything else goes by its own name.
LOSS_NAMES = {
    "happier": "HAPPIER",
    "happier_f": "HAPPIER_F",
    "happier_s": "HAPPIER_S",
    "hap": "HAP",
    "hap_sigmoid": "Sigmoid H-AP",
    "sigma_wap": "\u03a3wAP",
    "nsm": "NSM",
    "sum_nsm": "\u03a3NSM",
    "proxy_nca": "ProxyNCA++",
    "sum_proxy_nca": "\u03a3ProxyNCA++",
    "triplet": "Triplet",
    "sum_triplet": "\u03a3Triplet",
    "smooth_ap": "Smooth-AP",
    "roadmap": "ROADMAP",
    "csl": "CSL",
}


@dataclass(frozen=True)
class Run:
    """Vectors, the rows they belong to, and what is known of the model that made them.

    Attributes:
        source: what the user named.
        name: how to call the model.
        vectors: float32 ``[N, D]``.
        manifest: the rows, in the same order.
        directory: the run's own directory, None for an array or a model of the hub.
        fingerprint: of the weights, None where it is not known.
        config: the training configuration, empty where there is none.
        config_text: the same as it stands in the file.
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


def read_run(
    source: Path | str,
    *,
    manifest: Path | str | None = None,
    split: str | None = None,
    name: str | None = None,
    batch_size: int = 64,
    progress: Progress | None = None,
) -> Run:
    """Vectors of the rows that an evaluation needs, embedding them first where that has not been done.

    Args:
        source: a run directory, a saved model, a directory of embeddings, a ``.npy`` file, or a hub id.
        manifest: the rows; by default the run's own. An array needs one.
        split: what will be evaluated, see `happier.evaluation.protocol.splits_to_search`.
        name: how to call the model; by default its loss or the name of the directory.
        batch_size: images embedded at a time.
        progress: told of images done and of their number while embedding.

    Raises:
        CheckpointError: there is no model and there are no embeddings at ``source``.
        ManifestError: there is no manifest, or its rows are not those of the embeddings.
    """
    path = Path(source)
    if path.suffix == ".npy":
        return _read_array(path, manifest, split, name)
    if (path / "embeddings.json").is_file():
        stored = Embeddings.read(path)
        rows, vectors = stored.manifest, stored.vectors
        if manifest is not None:
            rows, vectors = _rows_of(Manifest.read(manifest), stored)
        label = name or path.resolve().name
        return Run(str(source), label, vectors, rows, directory=path, fingerprint=stored.fingerprint)
    return _read_model(path, str(source), manifest, split, name, batch_size, progress)


def _read_array(path: Path, manifest: Path | str | None, split: str | None, name: str | None) -> Run:
    if manifest is None:
        raise ManifestError(f"{path} holds vectors only; say what its rows are with --manifest")
    try:
        vectors = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError) as error:
        raise InputError(f"cannot read {path} as an array: {error}") from error
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


def _rows_of(wanted: Manifest, stored: Embeddings) -> tuple[Manifest, npt.NDArray[np.float32]]:
    """The rows of a manifest that were embedded, labelled as this manifest says."""
    place = {path: row for row, path in enumerate(stored.manifest.files())}
    pairs = [(row, place[path]) for row, path in enumerate(wanted.files()) if path in place]
    if not pairs:
        raise ManifestError("none of the manifest's images are among the embeddings; embed it first")
    mine, theirs = np.asarray(pairs).T
    return wanted.take(mine), stored.vectors[theirs]


def _read_model(
    path: Path,
    source: str,
    manifest: Path | str | None,
    split: str | None,
    name: str | None,
    batch_size: int,
    progress: Progress | None,
) -> Run:
    from happier.encoder import Encoder

    encoder = Encoder.from_pretrained(source)
    config, text = read_config(path)
    data = config.get("data") or {}
    if manifest is None and data.get("manifest") is None and data.get("name") is not None:
        manifest = fetch(str(data["name"]))
    manifest = manifest or data.get("manifest")
    if manifest is None:
        raise ManifestError(f"{source} does not say which images it is for; name them with --manifest")
    whole = Manifest.read(manifest)
    rows = whole.select(splits_to_search(whole, split))
    place = path / "evaluation" / "embeddings" if path.is_dir() else None
    fingerprint = encoder.fingerprint
    kept = _kept(place, rows, fingerprint)
    if kept is not None:
        vectors = kept.vectors
    elif place is None:
        vectors = encoder.embed(rows.files(), batch_size=batch_size, progress=progress)
    else:
        place.parent.mkdir(parents=True, exist_ok=True)
        vectors = encoder.embed_manifest(rows, place, batch_size=batch_size, progress=progress).vectors
    loss = str((config.get("loss") or {}).get("name") or "")
    label = name or LOSS_NAMES.get(loss) or loss or path.resolve().name
    return Run(
        source,
        label,
        vectors,
        rows,
        directory=path if path.is_dir() else None,
        fingerprint=fingerprint,
        config=config,
        config_text=text,
        history=read_history(path),
        unseen_classes=_unseen(whole, rows),
    )


def _unseen(whole: Manifest, rows: Manifest) -> bool | None:
    if "train" not in whole.splits:
        return None
    trained = np.unique(whole.select("train").labels()[:, -1])
    return not np.isin(rows.labels()[:, -1], trained[trained != UNKNOWN]).any()


def _kept(place: Path | None, rows: Manifest, fingerprint: str) -> Embeddings | None:
    """Embeddings of exactly these rows by exactly these weights, where they are there."""
    if place is None or not (place / "embeddings.json").is_file():
        return None
    try:
        stored = Embeddings.read(place)
    except (CheckpointError, ManifestError):
        return None
    same = stored.fingerprint == fingerprint and stored.manifest.files() == rows.files()
    return stored if same else None


def read_config(directory: Path) -> tuple[dict[str, Any], str | None]:
    """The training configuration of a run as values and as text; empty where there is none."""
    file = directory / "config.yaml"
    if not file.is_file():
        return {}, None
    from omegaconf import OmegaConf

    text = file.read_text(encoding="utf-8")
    try:
        values = OmegaConf.to_container(OmegaConf.create(text))
    except Exception as error:  # whatever the parser dislikes means the same here
        raise CheckpointError(f"{file} is not a configuration: {error}") from error
    return (cast(dict[str, Any], values) if isinstance(values, dict) else {}), text


def read_history(directory: Path) -> tuple[dict[str, Any], ...]:
    """The lines of a run's ``metrics.jsonl``; a last line that was cut off is left out."""
    file = directory / "metrics.jsonl"
    if not file.is_file():
        return ()
    lines = []
    for line in file.read_text(encoding="utf-8").splitlines():
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        if isinstance(entry, dict):
            lines.append(entry)
    return tuple(lines)
