"""Directories of vectors: never a mixture, never zeros, never the vectors of other images."""

import json
import logging
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from crash_points import embed, kill_everywhere
from noise import write_noise
from processes import command, run_fresh, run_ranks, script

from happier import Encoder
from happier.encoder import Embeddings, keep_embeddings
from happier.encoder.vector_models import embedding_model
from happier.errors import CheckpointError, DataError, ImageError, UnreadableImagesError
from happier.vectors.image_pass import PassOptions
from happier.vectors.store import VectorStore

HERE = Path(__file__).parent


@pytest.fixture
def counted():
    """A progress callback that remembers how many images were computed."""

    class Counted:
        total = 0

        def __call__(self, done, total):
            self.total = total

    return Counted()


@pytest.fixture
def aged(manifest):
    """The manifest with images that were last changed a while ago."""
    for path in manifest.files():
        os.utime(path, (1, 1))
    time.sleep(1.1)  # the time of the last change of a file's status cannot be set
    return manifest


def same_vectors(found, expected):
    return found.shape == expected.shape and np.allclose(found, expected, atol=1e-6)


def check_message(error, place):
    assert "\n" not in str(error)
    assert str(place) in str(error)


def start(name, *arguments):
    command = [sys.executable, str(HERE / name), *map(str, arguments)]
    return subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


# Content


def test_a_changed_image_is_embedded_again_and_only_that(encoder, manifest, tmp_path, counted):
    encoder.embed_manifest(manifest, tmp_path / "out")
    write_noise(manifest.files()[4], 99)
    found = encoder.embed_manifest(manifest, tmp_path / "out", progress=counted)
    assert counted.total == 1
    assert same_vectors(found.vectors, encoder.embed(manifest.files()))


def test_a_change_that_keeps_size_and_time_is_noticed(encoder, manifest, tmp_path, counted):
    path = manifest.files()[0]
    first = path.read_bytes()
    write_noise(path, 77)
    second = path.read_bytes()
    longest = max(len(first), len(second))
    # What follows the end of a PNG is ignored.
    path.write_bytes(first.ljust(longest, b"\0"))
    os.utime(path, (1, 1))
    encoder.embed_manifest(manifest, tmp_path / "out")
    path.write_bytes(second.ljust(longest, b"\0"))
    os.utime(path, (1, 1))
    found = encoder.embed_manifest(manifest, tmp_path / "out", progress=counted)
    assert counted.total == 1
    assert same_vectors(found.vectors, encoder.embed(manifest.files()))


def test_added_moved_and_touched_images_cost_only_what_is_new(encoder, manifest, tmp_path, counted):
    encoder.embed_manifest(manifest.take(range(8)), tmp_path / "out")
    moved = manifest.files()[0]
    content = moved.read_bytes()
    manifest.files()[1].write_bytes(content)  # now the content of image 0
    manifest.files()[2].touch()
    found = encoder.embed_manifest(manifest, tmp_path / "out", progress=counted)
    assert counted.total == 3
    assert same_vectors(found.vectors, encoder.embed(manifest.files()))
    counted.total = 0
    found = encoder.embed_manifest(manifest.take([5, 1]), tmp_path / "out", progress=counted)
    assert counted.total == 0
    assert same_vectors(found.vectors, encoder.embed(manifest.take([5, 1]).files()))


def test_unchanged_images_are_not_even_read(encoder, aged, tmp_path, monkeypatch):
    encoder.embed_manifest(aged, tmp_path / "out")
    before = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "out").iterdir()}
    monkeypatch.setattr("happier.vectors.image_content.file_checksum", None)
    encoder.embed_manifest(aged, tmp_path / "out")
    assert {path.name: path.stat().st_mtime_ns for path in (tmp_path / "out").iterdir()} == before


def test_another_model_precision_or_preprocessing_shares_nothing(encoder, manifest, tmp_path, counted):
    encoder.embed_manifest(manifest, tmp_path / "out")
    encoder.embed_manifest(manifest, tmp_path / "out", precision="bf16", progress=counted)
    assert counted.total == 11
    other = Encoder("test_resnet", dim=16, transform="small", image_size=48)
    other.load_state_dict(encoder.state_dict())
    counted.total = 0
    found = other.embed_manifest(manifest, tmp_path / "out", progress=counted)
    assert counted.total == 11
    assert same_vectors(found.vectors, other.embed(manifest.files()))


def test_a_cache_keeps_other_images_of_the_model(encoder, manifest, tmp_path, counted):
    cache = tmp_path / "cache"
    keep_embeddings(encoder, manifest.take([0, 1, 2, 3]), cache)
    found = keep_embeddings(encoder, manifest.take([9, 2, 5]), cache, progress=counted)
    assert counted.total == 2
    assert same_vectors(found.vectors, encoder.embed(manifest.take([9, 2, 5]).files()))
    assert Embeddings.read(cache).manifest.files() == manifest.take([9, 2, 5]).files()
    write_noise(manifest.files()[1], 99)
    counted.total = 0
    found = keep_embeddings(encoder, manifest.take([3, 1, 0]), cache, progress=counted)
    assert counted.total == 1
    assert same_vectors(found.vectors, encoder.embed(manifest.take([3, 1, 0]).files()))


def test_new_labels_are_taken_over_without_embedding(encoder, manifest, tmp_path, counted):
    encoder.embed_manifest(manifest, tmp_path / "out")
    manifest.table["item"] = "other"
    encoder.embed_manifest(manifest, tmp_path / "out", progress=counted)
    assert counted.total == 0
    assert set(Embeddings.read(tmp_path / "out").manifest.table["item"]) == {"other"}


def test_a_missing_image_is_named_and_the_vectors_stay(encoder, manifest, tmp_path):
    encoder.embed_manifest(manifest, tmp_path / "out")
    before = Embeddings.read(tmp_path / "out").vectors
    manifest.files()[3].unlink()
    with pytest.raises(ImageError, match=r"3\.png: No such file"):
        encoder.embed_manifest(manifest, tmp_path / "out")
    np.testing.assert_array_equal(Embeddings.read(tmp_path / "out").vectors, before)


@pytest.mark.parametrize("workers", [0, 1])
def test_an_unreadable_image_is_one_line(encoder, manifest, tmp_path, workers):
    manifest.files()[9].write_bytes(b"not an image")
    with pytest.raises(ImageError, match=r"9\.png") as error:
        encoder.embed_manifest(manifest, tmp_path / "out", batch_size=2, workers=workers)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "out").exists()


def test_the_first_error_is_told_where_cleaning_up_fails_too(encoder, manifest, tmp_path, monkeypatch):
    def fails(directory):
        raise PermissionError(13, "Permission denied", str(directory))

    monkeypatch.setattr("happier.vectors.store.remove_unfinished", fails)
    manifest.files()[9].write_bytes(b"not an image")
    with pytest.raises(ImageError, match=r"9\.png"):
        encoder.embed_manifest(manifest, tmp_path / "out")


# Readers and writers


@pytest.mark.parametrize("workers", [0, 2])
def test_a_pass_to_the_end_names_all_unreadable_images_and_keeps_the_others(
    encoder, manifest, tmp_path, counted, workers
):
    files = manifest.files()
    bad = [1, *range(4, 8), len(files) - 1]
    for row in bad:
        files[row].write_bytes(b"broken")
    store, model = VectorStore(tmp_path / "out"), embedding_model(encoder)
    options = PassOptions(batch_size=4, workers=workers, to_the_end=True)
    with pytest.raises(UnreadableImagesError) as error:
        store.update(model, manifest, options=options, progress=counted)
    assert list(error.value.reasons) == [str(files[row]) for row in bad]
    assert counted.total == len(files)
    assert not store.exists()
    counted.total = 0
    rest = manifest.take([row for row in range(len(files)) if row not in bad])
    found = store.update(model, rest, options=options, progress=counted)
    assert counted.total == 0
    assert same_vectors(found.vectors, encoder.embed(rest.files()))


def test_a_reader_keeps_what_it_opened(encoder, manifest, tmp_path):
    encoder.embed_manifest(manifest, tmp_path / "out")
    opened = Embeddings.read(tmp_path / "out")
    assert isinstance(opened.vectors, np.memmap)
    before = np.array(opened.vectors)
    write_noise(manifest.files()[0], 99)
    encoder.embed_manifest(manifest.take([0]), tmp_path / "out")
    np.testing.assert_array_equal(opened.vectors, before)
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {".lock", "embeddings.json", "embeddings-2.npy", "images-2.parquet", "items-2.parquet"}


@pytest.mark.slow
def test_the_second_of_two_waits_and_uses_the_vectors_of_the_first(
    encoder, manifest, tmp_path, counted, caplog
):
    truth = encoder.embed(manifest.files())
    encoder.save_pretrained(tmp_path / "model")
    manifest.write(tmp_path / "manifest.parquet")
    out = tmp_path / "out"
    first = start("interrupted_pass.py", tmp_path / "model", tmp_path / "manifest.parquet", out, 3, tmp_path)
    while not (tmp_path / "paused").exists():
        assert first.poll() is None, first.stderr.read()
        time.sleep(0.02)
    with pytest.raises(CheckpointError):
        Embeddings.read(out)
    second = start("interrupted_pass.py", tmp_path / "model", tmp_path / "manifest.parquet", out, 99, "kill")
    said = second.stderr.readline()
    assert "waiting for" in said
    assert str(first.pid) in said
    (tmp_path / "go").touch()
    assert first.wait() == 0
    assert second.wait() == 0
    for process in (first, second):
        process.communicate()
    assert same_vectors(Embeddings.read(out).vectors, truth)
    # One generation only: the second computed nothing.
    assert {path.name for path in out.glob("embeddings-*")} == {"embeddings-1.npy"}


@pytest.mark.slow
def test_a_killed_pass_is_taken_up_where_it_stopped(encoder, manifest, tmp_path, counted):
    truth = encoder.embed(manifest.files())
    encoder.save_pretrained(tmp_path / "model")
    manifest.write(tmp_path / "manifest.parquet")
    out = tmp_path / "out"
    killed = start("interrupted_pass.py", tmp_path / "model", tmp_path / "manifest.parquet", out, 3, "kill")
    assert killed.wait() == -9
    killed.communicate()
    with pytest.raises(CheckpointError):
        Embeddings.read(out)
    # Rows whose vectors did not reach the disk do not count.
    (part,) = out.glob(".*.part")
    content = bytearray(part.read_bytes())
    content[-4 * 16 * 11] ^= 1  # a bit of the first row: its batch of two is computed again
    part.write_bytes(content)
    found = encoder.embed_manifest(manifest, out, progress=counted)
    assert counted.total == 11 - 4
    assert same_vectors(found.vectors, truth)
    assert not list(out.glob(".embeddings*"))


@pytest.mark.slow
def test_a_kill_at_any_point_leaves_the_old_vectors_or_the_new(encoder, manifest, tmp_path):
    folder = tmp_path / "points"
    encoder.save_pretrained(folder / "model")
    old, new = manifest.take(range(6)), manifest.take([7, 1, 9])
    encoder.embed_manifest(old, folder / "old")
    new.write(folder / "new.parquet")
    points = kill_everywhere(embed, folder, folder / "model", folder / "new.parquet")
    assert points > 8
    expected = {len(part): encoder.embed(part.files()) for part in (old, new)}
    seen = set()
    for point in range(1, points + 1):
        found = Embeddings.read(folder / str(point))
        seen.add(len(found.vectors))
        assert same_vectors(found.vectors, expected[len(found.manifest)]), point
        again = encoder.embed_manifest(new, folder / str(point))
        assert same_vectors(again.vectors, expected[3])
        assert len(list((folder / str(point)).iterdir())) == 5, "leftovers"
    assert seen == {6, 3}


# Damage


def damages(content):
    yield "emptied", b""
    yield "cut", content[: len(content) // 2]
    yield "text", b"this is not it\n"
    yield "other type", b"[1, 2]"
    yield "not UTF-8", b"\xff\xfe\x80" + content
    for place in np.linspace(0, len(content) - 1, 20).astype(int):
        flipped = bytearray(content)
        flipped[place] ^= 1 << (int(place) % 8)
        yield f"bit of byte {place}", bytes(flipped)


@pytest.mark.parametrize(
    "name", ["embeddings.json", "embeddings-2.npy", "images-2.parquet", "items-2.parquet", "rows-2.npy"]
)
def test_damage_is_one_line_or_changes_nothing(encoder, manifest, tmp_path, name, caplog):
    out = tmp_path / "out"
    keep_embeddings(encoder, manifest.take(range(6)), out)
    keep_embeddings(encoder, manifest.take([8, 2]), out)
    truth = np.array(Embeddings.read(out).vectors)
    whole = (out / name).read_bytes()
    for what, content in damages(whole):
        (out / name).write_bytes(content)
        try:
            found = Embeddings.read(out)
        except CheckpointError as error:
            check_message(error, out)
        else:
            np.testing.assert_array_equal(found.vectors, truth, err_msg=what)
            assert list(found.manifest.table["item"]) == ["2", "2"]
    (out / name).unlink()
    with pytest.raises(CheckpointError):
        Embeddings.read(out)
    (out / name).write_bytes(b"damaged")
    with caplog.at_level(logging.WARNING):
        found = keep_embeddings(encoder, manifest.take([8, 2]), out)
    assert "embedded again" in caplog.text
    np.testing.assert_allclose(found.vectors, truth, atol=1e-6)


def test_directories_of_the_first_format_are_read_and_never_trusted_as_a_cache(
    encoder, manifest, tmp_path, counted, caplog
):
    vectors = encoder.embed(manifest.files())
    out = tmp_path / "out"
    out.mkdir()
    np.save(out / "embeddings.npy", vectors)
    manifest.write(out / "items.parquet")
    head = {"format": 1, "fingerprint": encoder.fingerprint, "dim": 16, "items": 11}
    (out / "embeddings.json").write_text(json.dumps(head | {"backbone": "test_resnet", "precision": "fp32"}))
    found = Embeddings.read(out)
    np.testing.assert_array_equal(found.vectors, vectors)
    assert found.fingerprint == encoder.fingerprint
    with caplog.at_level(logging.WARNING):
        encoder.embed_manifest(manifest, out, progress=counted)
    assert counted.total == 11
    assert "embedded again" in caplog.text
    assert not (out / "embeddings.npy").exists()
    np.testing.assert_allclose(Embeddings.read(out).vectors, vectors, atol=1e-6)


def test_a_place_that_cannot_be_used_is_one_line(encoder, manifest, tmp_path):
    with pytest.raises(DataError, match="is a file"):
        encoder.embed_manifest(manifest, manifest.files()[0])
    shutil.rmtree(tmp_path / "out", ignore_errors=True)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "notes.txt").write_text("mine")
    with pytest.raises(DataError, match="holds no embeddings"):
        encoder.embed_manifest(manifest, tmp_path / "out")
    assert (tmp_path / "out" / "notes.txt").read_text() == "mine"


FULL_DISK = """
import resource, signal, sys
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
from happier import Encoder
from happier.cli import main
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]), resource.RLIM_INFINITY))
if sys.argv[2] == "save":
    sys.argv = ["happier"]
    import happier.cli
    happier.cli.app = lambda **_: Encoder("test_resnet").save_pretrained("full")
else:
    sys.argv = ["happier", *sys.argv[2:]]
main()
"""


@pytest.mark.slow
@pytest.mark.parametrize("command", ["embed", "save", "export"])
def test_no_space_is_one_line(encoder, manifest, tmp_path, command):
    encoder.save_pretrained(tmp_path / "model")
    manifest.write(tmp_path / "manifest.parquet")
    limit, arguments = {
        "embed": (500, ["embed", "model", "manifest.parquet", "-o", "full"]),
        "save": (1000, ["save"]),
        "export": (1000, ["export", "model", "full"]),
    }[command]
    done = run_fresh(script, FULL_DISK, limit, *arguments, cwd=tmp_path)
    assert done.code == 2, done.err
    assert len(done.err.splitlines()) == 1
    assert "full" in done.err
    left = tmp_path / "full"
    assert not left.exists() or {path.name for path in left.iterdir()} <= {".lock"}


@pytest.mark.slow
def test_two_ranks_share_the_images(encoder, manifest, tmp_path):
    encoder.save_pretrained(tmp_path / "model")
    manifest.write(tmp_path / "manifest.parquet")
    words = ["embed", "model", "manifest.parquet", "-o", "out"]
    first, second = run_ranks(command, words, cwd=tmp_path)
    assert (first.code, second.code) == (0, 0), first.err + second.err
    assert (first.out + second.out).count("11 vectors") == 1
    assert same_vectors(Embeddings.read(tmp_path / "out").vectors, encoder.embed(manifest.files()))
    manifest.files()[9].write_bytes(b"not an image")
    for done in run_ranks(command, words, cwd=tmp_path):
        assert done.code == 2
        assert "9.png" in done.err
    assert len(Embeddings.read(tmp_path / "out").vectors) == 11
    assert not list((tmp_path / "out").glob(".*.part"))
