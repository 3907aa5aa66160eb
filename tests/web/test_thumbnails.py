"""Small copies on disk, and uploads that processes share."""

from __future__ import annotations

import gc
import os
from concurrent.futures import Future
from queue import SimpleQueue

import numpy as np
import pytest
from catalogue import as_bytes, draw

from happier.encoder import vector_models
from happier.errors import SearchError
from happier.search import Index
from happier.web import images
from happier.web.embedder import Embedder, _serve
from happier.web.explorer import Explorer
from happier.web.thumbnails import ThumbnailStore, picture_key
from happier.web.uploads import Uploads


def test_a_thumbnail_is_made_once(place, tmp_path, monkeypatch):
    file = tmp_path / "t.sqlite"
    first = Explorer(Index.open(place / "a.index"), thumbnails=ThumbnailStore(file)).model("a").picture(3, 32)
    monkeypatch.setattr(images, "encode", None)  # another server on the same cache makes none
    again = Explorer(Index.open(place / "a.index"), thumbnails=ThumbnailStore(file)).model("a")
    assert again.picture(3, 32) == first
    assert file.stat().st_mode & 0o077 == 0
    with pytest.raises(TypeError):
        again.picture(4, 32)


def test_a_changed_file_has_another_key(tmp_path):
    file = tmp_path / "x.png"
    file.write_bytes(b"one")
    before = picture_key(file, 32)
    assert before == picture_key(file, 32) != picture_key(file, 64)
    file.write_bytes(b"two")
    os.utime(file, ns=(1, 1))
    assert picture_key(file, 32) != before


def test_the_store_is_bounded_and_the_oldest_go(tmp_path):
    store = ThumbnailStore(tmp_path / "t.sqlite", max_bytes=1000)
    for number in range(20):
        store.put(str(number), bytes([number]) * 100)
    kept = [number for number in range(20) if store.get(str(number)) is not None]
    assert 5 <= len(kept) <= 10
    assert kept == list(range(20 - len(kept), 20))


def test_damage_costs_a_picture_never_a_request(tmp_path, caplog):
    file = tmp_path / "t.sqlite"
    store = ThumbnailStore(file)
    store.put("a", b"picture" * 50)
    store._database.execute("UPDATE picture SET data = ?", [b"pictuRe" * 50])
    assert store.get("a") is None
    store.close()
    file.write_bytes(b"no database at all" * 100)
    damaged = ThumbnailStore(file)
    assert damaged.get("a") is None
    damaged.put("a", b"x")
    assert "thumbnails are not kept" in caplog.text
    fresh = ThumbnailStore(file)  # the damaged file was removed
    fresh.put("a", b"x")
    assert fresh.get("a") == b"x"
    (tmp_path / "taken").write_text("a file")
    nowhere = ThumbnailStore(tmp_path / "taken" / "t.sqlite")
    nowhere.put("a", b"x")
    assert nowhere.get("a") is None


def photo(seed):
    return as_bytes(draw((214, 48, 49), "circle", np.random.default_rng(seed)))


def test_uploads_are_shared_and_bounded(tmp_path):
    def embed(_):
        return {"model": np.ones(4, dtype=np.float32) / 2}

    one, other = (Uploads(embed, 3, folder=tmp_path) for _ in range(2))
    data = photo(1)
    upload = one.add(data, "ü.png")
    seen = other.get(upload.key)
    assert (seen.name, seen.thumbnail) == (upload.name, upload.thumbnail)
    assert np.array_equal(seen.vector("model"), upload.vector("model"))
    # What is shared is the small copy; the file that was sent is nowhere.
    assert all(data not in path.read_bytes() for path in tmp_path.iterdir())
    for seed in range(2, 7):
        one.add(photo(seed), "x.png")
    assert len(list(tmp_path.iterdir())) == 3
    for key in ("0" * 32, "../" * 3, "x"):
        with pytest.raises(SearchError, match="has expired"):
            other.get(key)
    last = one.add(photo(6), "x.png").key
    (tmp_path / f"{last}.npz").write_bytes(b"cut")
    with pytest.raises(SearchError, match="has expired"):
        Uploads(embed, folder=tmp_path).get(last)


def test_images_that_wait_are_one_batch(place):
    """The vectors are those of the encoder, one image at a time or many."""
    from concurrent.futures import ThreadPoolExecutor

    encoder = Index.open(place / "a.index").encoder()
    pictures = [draw((214, 48, 49), "circle", np.random.default_rng(seed)) for seed in range(12)]
    expected = encoder.embed(pictures, backend="torch")
    embedder = Embedder(encoder)
    with ThreadPoolExecutor(12) as pool:
        found = np.stack(list(pool.map(embedder.embed, pictures)))
    assert np.abs(found - expected).max() < 1e-4


def test_a_failure_is_told_to_all_who_wait(place):
    import torch

    embedder = Embedder(Index.open(place / "a.index").encoder())
    with pytest.raises(Exception, match=r"."):
        embedder.embed_tensor(torch.zeros(1, 2))
    assert embedder.embed(draw((1, 2, 3), "circle", np.random.default_rng(0))).shape == (16,)


@pytest.mark.parametrize("broken", [("auto",), ("auto", "torch")])
def test_an_embedder_that_cannot_start_keeps_nobody_waiting(place, monkeypatch, broken):
    whole = vector_models.embedding_function

    def embedding_function(encoder, precision, backend, images):
        if backend in broken:
            raise ImportError("libonnxruntime.so: cannot open shared object file")
        return whole(encoder, precision, backend, images)

    monkeypatch.setattr(vector_models, "embedding_function", embedding_function)
    encoder = Index.open(place / "a.index").encoder()
    waiting, result = SimpleQueue(), Future()
    picture = draw((1, 2, 3), "circle", np.random.default_rng(0))
    waiting.put((encoder.preprocess(picture), result))
    waiting.put(None)
    _serve(encoder, waiting)
    if "torch" in broken:
        with pytest.raises(ImportError, match="libonnxruntime"):
            result.result()
    else:
        np.testing.assert_allclose(result.result(), encoder.embed([picture], backend="torch")[0], atol=1e-5)


def test_the_end_of_an_embedder_waits_for_its_thread(place):
    """A thread that is left at the end of the process makes torch abort it."""
    embedder = Embedder(Index.open(place / "a.index").encoder())
    embedder.embed(draw((1, 2, 3), "circle", np.random.default_rng(0)))
    thread = embedder._thread
    assert thread.is_alive()
    del embedder
    gc.collect()
    assert not thread.is_alive()
