"""``happier fit``: from a folder of images to a page and an index, again only where something changed."""

import json
import os
import shlex
import shutil
from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import safetensors.numpy
import torch
from PIL import Image
from shapes import make_shapes
from typer.testing import CliRunner

import happier
from happier.cli import app
from happier.cli.fit import _fields
from happier.data import Manifest
from happier.data.importers import import_manifest
from happier.errors import DataError, OptionError
from happier.fit import FitOptions, fit
from happier.fit.directory import FitDirectory
from happier.search import Index
from happier.vectors.image_pass import PassOptions

TINY = ("model.backbone=test_resnet", "model.pretrained=null", "transform.size=32", "training.steps=4",
        "model.hidden=16", "model.dim=16", "transform.normalize=imagenet", "data.workers=0")  # fmt: skip


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("HAPPIER_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def photos(tmp_path):
    return folders_of_shapes(tmp_path)


def folders_of_shapes(place):
    """Four kinds of three items, four pictures each, in folders."""
    manifest = Manifest.read(make_shapes(place / "shapes", items=3, views=4))
    for file, kind, item in zip(
        manifest.files(), *(manifest.table[level] for level in manifest.levels), strict=True
    ):
        folder = place / "photos" / kind / item
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, folder)
    return place / "photos"


def stages():
    seen = []

    def tell(moment):
        if moment.stage not in seen:
            seen.append(moment.stage)
        assert 0 <= moment.fraction <= 1
        assert moment.seconds_left >= 0

    return seen, tell


def test_a_folder_becomes_a_model_a_page_and_an_index_and_again_only_what_changed(photos, tmp_path):
    out = tmp_path / "out"
    (photos / "k0" / "i0" / "broken.png").write_bytes(b"not an image")
    seen, tell = stages()
    options = FitOptions(levels=("kind", "item"), train="head", overrides=TINY)
    found = fit(photos, out, options, tell=tell)
    assert seen == ["computing features", "training HAPPIER", "training NSM", "evaluating", "reporting",
                    "indexing"]  # fmt: skip
    assert found.left_out == {"unreadable": 1}
    assert found.images == 48
    assert {"train", "test"} == set(Manifest.read(out / "manifest.parquet").splits)
    lines = found.lines()
    assert len(lines) == 5
    assert lines[0].split(":")[0] in (
        "Training helped",
        "Training did harm",
        "Training made no clear difference",
    )
    assert lines[2] == f"Look: {out / 'report' / 'index.html'}"
    assert lines[3] == f"Serve: happier serve {out / 'index'}"
    assert (out / "report" / "index.html").is_file()
    index = Index.open(out / "index")
    assert len(index) == 48
    index.close()
    _check_figures(found, out)

    # Once more: nothing is made again.
    seen, tell = stages()
    again = fit(photos, out, options, tell=tell)
    assert seen == ["evaluating"]
    assert again.lines() == found.lines()

    # An image more: it alone goes through the network, and all that depends on it is made again.
    Image.open(photos / "k0" / "i0" / "0_0_0.png").rotate(90).save(photos / "k0" / "i0" / "more.png")
    (photos / "k0" / "i0" / "broken.png").unlink()
    seen, computed = [], []

    def tell(moment):
        seen.append(moment.stage)
        if moment.stage == "computing features":
            computed.append(moment.total)

    more = fit(photos, out, options, tell=tell)
    assert more.images == 49
    assert set(computed) == {1}
    assert {"training HAPPIER", "training NSM", "reporting", "indexing"} <= set(seen)

    # Another size: features of its own beside those, which stay.
    larger = replace(options, overrides=[*TINY, "transform.size=40"])
    seen.clear()
    fit(photos, out, larger, tell=tell)
    assert {"computing features", "training HAPPIER", "reporting", "indexing"} <= set(seen)
    assert len(list((out / "features").iterdir())) == 2

    # Another loss: the fine-only one is the same; the model of the other loss is gone.
    other = replace(larger, loss="sup_ndcg")
    assert fit(photos, out, other).losses == ("sup_ndcg", "nsm")
    assert not (out / "happier").exists()
    assert happier.Encoder.from_pretrained(out / "sup_ndcg").dim == 16
    assert "--loss sup_ndcg" in shlex.join(other.words(photos, out))
    assert {"sup_ndcg", "nsm", "frozen"} == _fields(fit(photos, out, other))["h_ap"].keys()
    for loss, message in (("sup_ndgc", "did you mean 'sup_ndcg'"), ("smooth_ap", "one that uses all levels")):
        with pytest.raises(OptionError, match=message):
            fit(photos, out, replace(larger, loss=loss))


def _check_figures(found, out):
    """The figures are those of the vectors, computed from the images once more."""
    rows = Manifest.read(out / "manifest.parquet").select("test")
    encoders = [happier.Encoder.from_pretrained(out / loss) for loss in ("happier", "nsm")]
    results = [happier.evaluate(encoder.embed(rows.files()), rows.labels()) for encoder in encoders]
    for result, h_ap in zip(results, found.h_ap, strict=False):
        assert result.summary["H-AP"] == pytest.approx(h_ap, abs=1e-4)
    with encoders[0].inference():
        features = encoders[0].features(torch.stack([encoders[0].read_image(file) for file in rows.files()]))
    unit = (features / features.norm(dim=1, keepdim=True)).numpy()
    assert happier.evaluate(unit, rows.labels()).summary["H-AP"] == pytest.approx(found.h_ap[2], abs=1e-4)
    difference = results[0].per_query["H-AP"] - results[1].per_query["H-AP"]
    assert found.hierarchy.mean == pytest.approx(float(difference.mean()), abs=1e-4)


def test_the_command_ends_with_five_lines(photos, tmp_path):
    run = CliRunner().invoke(
        app,
        ["fit", str(photos), "-o", str(tmp_path / "out"), "--train", "head", *TINY],
        catch_exceptions=False,
    )
    assert run.exit_code == 0
    assert run.stdout.splitlines()[-5:][2].startswith("Look: ")
    assert "computing features, 48 of 48, " in run.stderr
    assert all(line.count(" left") <= 1 for line in run.stderr.splitlines())

    # The last line fine-tunes: the heads stay as they are.
    weights = {path: path.read_bytes() for path in (tmp_path / "out").glob("*/model.safetensors")}
    assert len(weights) == 2
    command = shlex.split(run.stdout.splitlines()[-1].removeprefix("Fine-tune: happier "))
    assert command[-2:] == ["--train", "all"]
    tuned = CliRunner().invoke(app, command, catch_exceptions=False)
    assert "fine-tuning HAPPIER" in tuned.stderr
    assert "computing features" not in tuned.stderr
    assert " before fine-tuning" in tuned.stdout
    assert all(path.read_bytes() == before for path, before in weights.items())
    starts = [
        safetensors.numpy.load_file(tmp_path / "out" / place / "model.safetensors")
        for place in ("happier", "tuned/happier")
    ]
    assert starts[0].keys() == starts[1].keys()
    assert any((starts[0][name] != starts[1][name]).any() for name in starts[0] if "backbone" in name)
    further = shlex.split(tuned.stdout.splitlines()[-1].removeprefix("Fine-tune further: happier "))
    shown = CliRunner().invoke(app, [*further, "--show"], catch_exceptions=False)
    assert f"start: {tmp_path / 'out' / 'tuned' / 'happier'}" in shown.stdout

    again = CliRunner().invoke(app, [*command, "--json"], catch_exceptions=False)
    assert "tuning" not in again.stderr
    found = json.loads(again.stdout)
    assert found["images"] == 48
    assert found["head"] is not None


def test_a_level_that_says_nothing_is_noted(photos, tmp_path):
    manifest = Manifest.read(make_shapes(tmp_path / "others", items=2, views=3))
    table = manifest.table.assign(
        split=["test" if item == "i1" else "train" for item in manifest.table["item"]]
    )
    path = Manifest(table, levels=manifest.levels, root=manifest.root).write(tmp_path / "own.parquet")
    found = fit(path, tmp_path / "out", FitOptions(train="head", overrides=TINY))
    assert any("level kind adds nothing in test" in note for note in found.notes)


def _one_class(folder):
    for path in list(folder.iterdir())[1:]:
        shutil.rmtree(path)
    for path in list(next(folder.iterdir()).iterdir())[1:]:
        shutil.rmtree(path)


def _one_image_each(folder):
    for item in folder.glob("*/*"):
        for file in sorted(item.iterdir())[1:]:
            file.unlink()


def _no_images(folder):
    for file in folder.rglob("*.png"):
        file.unlink()


def _unreadable(folder):
    for file in folder.rglob("*.png"):
        file.write_bytes(b"nothing")


def _three_classes(folder):
    for kind in sorted(folder.iterdir())[1:]:
        shutil.rmtree(kind)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (_one_class, "has one class"),
        (_one_image_each, "has one image"),
        (_no_images, "holds no images"),
        (_unreadable, "none of the 48 images"),
        (_three_classes, "3 classes of two or more images; 4 are needed"),
    ],
)
def test_images_that_cannot_be_fitted_are_one_line_and_leave_nothing(photos, tmp_path, damage, message):
    damage(photos)
    with pytest.raises(DataError, match=message) as error:
        fit(photos, tmp_path / "out", FitOptions(train="head", overrides=TINY))
    assert "\n" not in str(error.value)
    assert not (tmp_path / "out").exists()


def test_places_that_cannot_be_used_are_one_line(photos, tmp_path):
    with pytest.raises(DataError, match="neither a folder"):
        fit(tmp_path / "none", tmp_path / "out")
    with pytest.raises(DataError, match="is inside"):
        fit(photos, photos / "out")
    with pytest.raises(DataError, match="was not written by `happier fit`"):
        fit(photos, photos)
    with pytest.raises(happier.HappierError, match="train must be head or all"):
        fit(photos, tmp_path / "out", FitOptions(train="tail"))
    with pytest.raises(happier.HappierError, match="loss=csl: `happier fit` sets"):
        fit(photos, tmp_path / "out", FitOptions(overrides=["loss=csl"]))
    with pytest.raises(happier.HappierError, match=r"data\.features=x\.npy: `happier fit` sets"):
        fit(photos, tmp_path / "out", FitOptions(overrides=["data.features=x.npy"]))
    with pytest.raises(DataError, match="MISSING"):
        fit(tmp_path / "MISSING.CSV", tmp_path / "out")
    run = CliRunner().invoke(app, ["fit", str(photos), "-o", str(tmp_path / "out"), "--gpu"])
    assert torch.cuda.is_available() or "torch finds no GPU" in str(run.exception)
    assert not (tmp_path / "out").exists()


def test_unreadable_and_missing_images_are_left_out_and_the_others_decoded_once(
    photos, tmp_path, monkeypatch
):
    import happier.data

    manifest = import_manifest("folder", photos)
    paths = manifest.table["path"].tolist()
    cut, gone = photos / paths[5], photos / paths[17]
    whole = cut.read_bytes()
    cut.write_bytes(whole[: len(whole) // 2])
    gone.unlink()
    table = manifest.write(tmp_path / "photos.parquet")
    decoded, original = Counter(), happier.data.decode_image

    def decode(path, **options):
        decoded[str(path)] += 1
        return original(path, **options)

    monkeypatch.setattr(happier.data, "decode_image", decode)
    out = tmp_path / "out"
    found = fit(table, out, FitOptions(train="head", overrides=TINY))
    assert found.left_out == {"missing": 1, "unreadable": 1}
    kept = Manifest.read(out / "manifest.parquet").files()
    assert len(kept) == found.images == 46
    assert decoded == Counter(map(str, [*kept, cut]))
    # Whole again: it alone is decoded, since the others are kept; what is missing still is.
    decoded.clear()
    cut.write_bytes(whole)
    again = fit(table, out, FitOptions(train="head", overrides=TINY))
    assert again.left_out == {"missing": 1}
    assert decoded == Counter([str(cut)])


def test_too_few_classes_that_can_be_read_leave_nothing(photos, tmp_path):
    for file in photos.rglob("*.png"):
        if file.parts[-3] != "k0":
            file.write_bytes(b"nothing")
    with pytest.raises(DataError, match="3 classes of two or more images; 4 are needed"):
        fit(photos, tmp_path / "out", FitOptions(train="head", overrides=TINY))
    assert not (tmp_path / "out").exists()


def test_a_fit_that_is_stopped_while_images_are_read_goes_on_there(photos, tmp_path, monkeypatch):
    import happier.data

    decoded, original = [], happier.data.decode_image

    def decode(path, **options):
        decoded.append(path)
        if len(decoded) == 20:
            raise KeyboardInterrupt
        return original(path, **options)

    monkeypatch.setattr(happier.data, "decode_image", decode)
    monkeypatch.setattr("happier.fit.fitting.PassOptions", partial(PassOptions, batch_size=8))
    with pytest.raises(KeyboardInterrupt):
        fit(photos, tmp_path / "out", HEAD)
    fit(photos, tmp_path / "out", HEAD)
    assert len(decoded) == 20 + 48 - 16


HEAD = FitOptions(levels=("kind", "item"), train="head", overrides=TINY)


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """Photos in folders, and a fit of them that tests copy."""
    place = tmp_path_factory.mktemp("shared")
    photos = folders_of_shapes(place)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HAPPIER_CACHE", str(place / "cache"))
        return photos, place / "out", fit(photos, place / "out", HEAD)


@pytest.fixture
def fitted(shared, tmp_path):
    photos, made, found = shared
    return photos, Path(shutil.copytree(made, tmp_path / "out")), found


def fewer(photos, place):
    """The same photos without the last item of each kind."""
    shutil.copytree(photos, place)
    for kind in place.iterdir():
        shutil.rmtree(sorted(kind.iterdir())[-1])
    return place


def test_another_fit_into_the_same_directory_in_between_is_noticed(fitted, tmp_path, monkeypatch):
    from happier.fit import fitting

    photos, out, found = fitted
    others = fewer(photos, tmp_path / "fewer")
    original, between = fitting.digest, iter([lambda: fit(others, out, HEAD)])

    def digest(*given):
        for run in between:
            run()
        return original(*given)

    monkeypatch.setattr(fitting, "digest", digest)
    again = fit(photos, out, HEAD)
    assert again.images == found.images == len(Manifest.read(out / "manifest.parquet")) == 48
    assert again.h_ap == pytest.approx(found.h_ap, abs=1e-6)


def test_other_images_that_a_stopped_fit_wrote_are_not_used(fitted, tmp_path, monkeypatch):
    photos, out, found = fitted
    with monkeypatch.context() as patch:
        write = Manifest.write

        def stop(manifest, path):
            write(manifest, path)
            if path == out / "manifest.parquet":
                raise KeyboardInterrupt

        patch.setattr(Manifest, "write", stop)
        with pytest.raises(KeyboardInterrupt):
            fit(fewer(photos, tmp_path / "fewer"), out, HEAD)
    again = fit(photos, out, HEAD)
    assert again.images == len(Manifest.read(out / "manifest.parquet")) == 48
    assert again.h_ap == found.h_ap


def test_a_first_fit_that_was_stopped_may_be_resumed(photos, tmp_path, monkeypatch):
    out = tmp_path / "out"
    with monkeypatch.context() as patch:

        def stop(*given, **options):
            raise KeyboardInterrupt

        patch.setattr(Manifest, "write", stop)
        with pytest.raises(KeyboardInterrupt):
            fit(photos, out, HEAD)
    FitDirectory(out).check()
    shutil.rmtree(out / "features")
    (out / "fit.json").rename(out / ".fit.json.0123abcd.part")  # killed while it wrote its first file
    FitDirectory(out).check()


def test_an_image_of_the_same_size_and_time_is_another_image(fitted):
    photos, out, _ = fitted
    image = photos / "k0" / "i0" / "0_0_0.png"
    content, times = image.read_bytes(), image.stat()
    seen, tell = stages()
    try:
        # The last byte of a PNG is of a checksum that no reader needs.
        image.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        os.utime(image, ns=(times.st_atime_ns, times.st_mtime_ns))
        fit(photos, out, HEAD, tell=tell)
        parts = {"computing features", "training HAPPIER", "training NSM", "reporting", "indexing"}
        assert parts - set(seen) == set()
        # The same content at another time: nothing is made again.
        seen.clear()
        image.touch()
        fit(photos, out, HEAD, tell=tell)
        assert seen == ["evaluating"]
    finally:
        image.write_bytes(content)
        os.utime(image, ns=(times.st_atime_ns, times.st_mtime_ns))


def test_a_damaged_record_or_manifest_is_made_again_and_said_so(fitted, caplog):
    photos, out, found = fitted
    for path in (out / "manifest.parquet", out / "fit.json"):
        caplog.clear()
        content = path.read_bytes()
        path.write_bytes(content.replace(b'"left_out": {', b'"left_out": {"unreadable": 7'))
        if path.suffix == ".parquet":
            path.write_bytes(content[:-9])
        again = fit(photos, out, HEAD)
        assert again.left_out == found.left_out == {}
        assert again.h_ap == pytest.approx(found.h_ap, abs=1e-6)
        assert path.name in caplog.text
