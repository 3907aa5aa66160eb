"""Changes of an index: a new one, images added, images deleted.

Each is made under the index's lock, on the newest state, and shows when ``index.json`` is replaced.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from happier.data import Manifest
from happier.errors import SearchError
from happier.search.branch_rows import engine_items
from happier.search.engine import SearchEngine, VectorArray, create_engine
from happier.search.identify import calibrate_items
from happier.search.index_json import IndexHead
from happier.search.items import check_vectors, first_of_each_id, merge_items
from happier.search.loaded_state import LoadedState, load_state
from happier.search.options import asked_recall
from happier.search.recall import reach_recall
from happier.search.store import IndexChange, IndexStore
from happier.search.vector_file import block_checksums

if TYPE_CHECKING:
    from happier.encoder import Encoder

log = logging.getLogger(__name__)
# Rewrite the vector file when more than this share of the rows belongs to deleted images.
MAX_DEAD_SHARE = 0.25
# Measure the recall again when an index has grown by more than this since it was measured.
MAX_GROWTH = 1.25


@dataclass(frozen=True)
class NewIndex:
    """What a new index is made of.

    Attributes:
        manifest: the images, one row for each vector. Of rows with one id the first is kept.
        vectors: unit vectors ``[N, D]``.
        fingerprint: of the model that made the vectors.
        encoder: that model, where a copy is to be kept.
        engine: name of the engine.
        options: of the engine.
    """

    manifest: Manifest
    vectors: VectorArray
    fingerprint: str
    encoder: Encoder | None
    engine: str
    options: Mapping[str, Any]


def write_index(store: IndexStore, new: NewIndex, *, overwrite: bool) -> None:
    """Write a new index; an existing one stays in use until the new one is complete.

    Raises:
        OptionError: an unknown engine or option.
        SearchError: the place is taken or cannot be written to.
    """
    manifest, vectors = first_of_each_id(new.manifest, new.vectors)
    if new.encoder is not None and new.encoder.fingerprint != new.fingerprint:
        raise SearchError("the encoder is not the model that made the vectors: their fingerprints differ")
    with store.changing(new=True, overwrite=overwrite) as change:
        engine = _new_engine(change, new.engine, manifest, vectors, new.options)
        try:
            name, checksums = change.write_vectors(vectors)
            positions = np.arange(len(vectors))
            change.write_engine(engine)
            recall = reach_recall(engine, manifest, positions, vectors, target=asked_recall(new.options))
            head = IndexHead(
                uid=change.base.uid if change.base else uuid.uuid4().hex,
                generation=change.generation,
                rows=len(vectors),
                dim=int(vectors.shape[1]),
                fingerprint=new.fingerprint,
                root=str(manifest.root),
                engine=new.engine,  # type: ignore[arg-type]  # checked by `create_engine`
                options=dict(new.options),
                settings=engine.settings,
                items=change.write_items(manifest, positions),
                vectors=name,
                recall=recall,
                calibration=calibrate_items(manifest, positions, vectors),
                model=None if new.encoder is None else change.write_model(new.encoder),
                vector_checksums=checksums,
            )
            change.commit(head)
        finally:
            engine.close()


def add_images(
    store: IndexStore,
    manifest: Manifest,
    vectors: VectorArray,
    *,
    fingerprint: str,
    skip_known: bool,
    opened: LoadedState,
) -> tuple[LoadedState, int]:
    """Add images to the newest state.

    Args:
        store: the index directory.
        manifest: the new images.
        vectors: unit vectors ``[N, D]``.
        fingerprint: of the model that made them.
        skip_known: skip images whose id the index already has; else they are an error.
        opened: a state that is open already.

    Returns:
        The state after the change and the number of images added.

    Raises:
        InputError: the vectors do not fit.
        SearchError: another model, other levels, or an id that the index already has.
    """
    with store.changing() as change:
        now = _newest(store, change, opened)
        now.check_model(fingerprint)
        if manifest.levels != now.items.levels:
            raise SearchError(
                f"the index has the levels {list(now.items.levels)}, the manifest {list(manifest.levels)}"
            )
        checked = check_vectors(vectors, rows=len(manifest), dim=now.head.dim)
        new, checked = first_of_each_id(manifest, checked)
        known = np.array([str(one) in now for one in new.ids()], dtype=bool)
        if known.any() and not skip_known:
            first = new.ids()[int(np.argmax(known))]
            raise SearchError(
                f"{known.sum()} of these images are already in the index, e.g. {first!r}; delete them first"
            )
        new, checked = new.take(np.flatnonzero(~known)), checked[~known]
        if not len(new):
            return now, 0
        _append(store, change, now, new, checked)
        return load_state(store, trusted=now.head), len(new)


def _append(
    store: IndexStore, change: IndexChange, now: LoadedState, new: Manifest, vectors: VectorArray
) -> None:
    start = now.head.rows
    merged = merge_items(now.items, new)
    # An engine of its own: those who search the old state must not see it change.
    engine = store.engine(now.head)
    try:
        engine.clean()
        engine.add(vectors, engine_items(new), start=start)
        everything, checksums = change.append_vectors(vectors)
        positions = np.concatenate([now.positions, start + np.arange(len(new))])
        change.write_engine(engine)
        recall = now.head.recall
        if recall is None or len(positions) > MAX_GROWTH * recall.rows:
            target = asked_recall(now.head.options)
            recall = reach_recall(engine, merged, positions, everything, target=target)
        update = {
            "generation": change.generation,
            "rows": start + len(new),
            "root": str(merged.root),
            "settings": engine.settings,
            "items": change.write_items(merged, positions),
            "recall": recall,
            "calibration": calibrate_items(merged, positions, everything),
            "vector_checksums": checksums,
        }
        change.commit(now.head.model_copy(update=update))
    finally:
        engine.close()


def delete_images(store: IndexStore, ids: Sequence[str], *, opened: LoadedState) -> tuple[LoadedState, int]:
    """Remove images from the newest state by id.

    Args:
        store: the index directory.
        ids: of the images.
        opened: a state that is open already.

    Returns:
        The state after the change and the number of images removed.

    Raises:
        SearchError: an id is not there, or nothing would be left.
    """
    if not len(ids):
        return opened, 0
    with store.changing() as change:
        now = _newest(store, change, opened)
        rows = np.unique([now.row(str(one)) for one in ids])
        if len(rows) == len(now.ids):
            raise SearchError("an index must keep at least one image; to delete the index, remove its folder")
        keep = np.setdiff1d(np.arange(len(now.ids)), rows)
        if len(keep) < (1 - MAX_DEAD_SHARE) * now.head.rows:
            _rewrite_vectors(change, now, keep)
        else:
            _mark_deleted(store, change, now, keep=keep, gone=rows)
        return load_state(store, trusted=now.head), len(rows)


def _mark_deleted(store: IndexStore, change: IndexChange, now: LoadedState, *, keep: Any, gone: Any) -> None:
    left = now.items.take(keep)
    engine = store.engine(now.head)
    try:
        engine.clean()
        engine.delete(now.positions[gone])
        update = {
            "generation": change.generation,
            "settings": engine.settings,
            "items": change.write_items(left, now.positions[keep]),
            "vector_checksums": now.head.vector_checksums or block_checksums(now.vectors),
        }
        head = change.commit(now.head.model_copy(update=update))
        # The deletion is done. What remains outside is left out of every answer until it is removed.
        try:
            if engine.clean():
                change.commit(head.model_copy(update={"settings": engine.settings}))
        except SearchError as error:
            log.warning("%s: deleted rows could not be removed yet: %s", store.directory, error)
    finally:
        engine.close()


def _rewrite_vectors(change: IndexChange, now: LoadedState, keep: Any) -> None:
    """Rewrite the vector file without the deleted rows."""
    left = now.items.take(keep)
    vectors = np.asarray(now.vectors[now.positions[keep]])
    engine = _new_engine(change, now.head.engine, left, vectors, now.head.options)
    try:
        name, checksums = change.write_vectors(vectors)
        positions = np.arange(len(vectors))
        change.write_engine(engine)
        target = asked_recall(now.head.options)
        update = {
            "generation": change.generation,
            "rows": len(vectors),
            "recall": reach_recall(engine, left, positions, vectors, target=target),
            "settings": engine.settings,
            "items": change.write_items(left, positions),
            "vectors": name,
            "vector_checksums": checksums,
        }
        change.commit(now.head.model_copy(update=update))
    finally:
        engine.close()


def _new_engine(
    change: IndexChange, name: str, manifest: Manifest, vectors: VectorArray, options: Mapping[str, Any]
) -> SearchEngine:
    """A new engine that holds the vectors."""
    engine = create_engine(
        name,
        dim=vectors.shape[1],
        depth=len(manifest.levels),
        rows=len(vectors),
        options=options,
        before_outside=lambda settings: change.store.note_outside(name, settings),
    )
    try:
        engine.add(vectors, engine_items(manifest), start=0)
    except BaseException:
        engine.close()
        raise
    return engine


def _newest(store: IndexStore, change: IndexChange, opened: LoadedState) -> LoadedState:
    """The state that is changed: the one that is open already where nothing happened since."""
    return opened if change.base == opened.head else load_state(store, trusted=opened.head)
