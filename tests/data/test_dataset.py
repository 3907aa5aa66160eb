"""The image data set: labels, augmentation that depends on (seed, epoch, index) alone, unreadable images."""

import logging
from unittest.mock import patch

import pandas as pd
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader

from happier.data import PRESETS, ImageDataset, Manifest, build_transform, collate, read_image
from happier.data.augmentation import Augmentation, draw
from happier.errors import ImageError, ManifestError, OptionError
from happier.training.batches import TrainingBatches
from happier.training.compose import compose


def images_of(loader):
    return torch.cat([images for images, _, _ in loader])


@pytest.fixture
def train(small_manifest):
    return ImageDataset(small_manifest, "train", build_transform("small", train=True), seed=5)


def test_items_are_rows_of_the_selection(small_manifest, train):
    selected = small_manifest.select("train")
    assert len(train) == len(selected) == 6
    image, labels, row = train[4]
    assert image.shape == (3, 64, 64)
    assert image.dtype == torch.float32
    assert type(image) is torch.Tensor
    assert row == 4
    assert labels.tolist() == selected.taxonomy().codes[4].tolist()
    assert labels.dtype == torch.int64
    assert train[-1].row == 5
    with pytest.raises(IndexError):
        train[6]


def test_several_splits_or_all(small_manifest):
    transform = build_transform("small", train=False)
    assert len(ImageDataset(small_manifest, ("train", "test"), transform)) == 12
    assert len(ImageDataset(small_manifest, None, transform)) == 12
    with pytest.raises(
        ManifestError, match=r"no rows of split val; it has train \(6 rows\), test \(6 rows\)"
    ):
        ImageDataset(small_manifest, "val", transform)


def test_randomness_is_of_seed_epoch_and_index(small_manifest, train):
    first = train[0].image
    torch.rand(7)
    assert torch.equal(first, train[0].image)
    assert not torch.equal(first, train[1].image)
    train.set_epoch(1)
    assert not torch.equal(first, train[0].image)
    train.set_epoch(0)
    assert torch.equal(first, train[0].image)
    other = ImageDataset(small_manifest, "train", build_transform("small", train=True), seed=6)
    assert not torch.equal(first, other[0].image)


def test_reading_leaves_the_global_generator_alone(train):
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    train[0]
    assert torch.equal(torch.rand(3), expected)


@pytest.mark.parametrize("persistent", [False, True])
def test_independent_of_the_number_of_workers(train, persistent):
    alone = DataLoader(train, batch_size=2, collate_fn=collate)
    workers = DataLoader(
        train, batch_size=2, collate_fn=collate, num_workers=2, persistent_workers=persistent
    )
    for epoch in (0, 1):
        train.set_epoch(epoch)
        expected = images_of(alone)
        assert torch.equal(images_of(workers), expected)


def test_unreadable_image_stops_with_its_path(small_manifest, train):
    broken = train.manifest.files()[2]
    broken.write_bytes(b"no image")
    with pytest.raises(ImageError, match=str(broken)):
        train[2]


@pytest.mark.parametrize("workers", [0, 2])
def test_unreadable_image_is_skipped_and_counted_when_asked(small_manifest, workers, caplog):
    dataset = ImageDataset(small_manifest, "train", build_transform("small", train=False), on_error="skip")
    dataset.manifest.files()[2].write_bytes(b"no image")
    with caplog.at_level(logging.WARNING):
        loader = DataLoader(dataset, batch_size=4, collate_fn=collate, num_workers=workers)
        rows = torch.cat([rows for _, _, rows in loader])
    assert rows.tolist() == [0, 1, 3, 4, 5]
    assert dataset.skipped == [2]
    if not workers:
        assert "left out: cannot read the image" in caplog.text


def test_a_batch_of_nothing_is_an_error(small_manifest):
    dataset = ImageDataset(small_manifest, "train", build_transform("small", train=False), on_error="skip")
    dataset.manifest.files()[0].unlink()
    with pytest.raises(ImageError, match="none of the 1 images of a batch can be read"):
        collate([dataset[0]])


def test_bad_options(small_manifest):
    transform = build_transform("small", train=False)
    with pytest.raises(OptionError, match="on_error must be 'raise' or 'skip', got 'ignore'"):
        ImageDataset(small_manifest, "train", transform, on_error="ignore")
    with pytest.raises(OptionError, match="seed must be 0 or more"):
        ImageDataset(small_manifest, "train", transform, seed=-1)


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("train", [True, False])
@pytest.mark.parametrize("size", [None, 32])
def test_presets(tmp_path, make_image, preset, train, size):
    transform = build_transform(preset, train=train, size=size)
    side = size or (64 if preset == "small" else 224)
    assert transform.size == side
    for shape in ((300, 200), (20, 90), (1, 1)):
        image = read_image(make_image(tmp_path / "a.png", size=shape))
        result = transform(image)
        assert result.shape == (3, side, side)
        assert result.dtype == torch.float32
    assert repr(transform) == f"ImageTransform({preset!r}, train={train}, size={side})"


def test_small_trains_on_what_happier_train_sees(tmp_path, make_image):
    """One definition: of the same draws the transform of one image and the batches of training are equal."""
    files = [make_image(tmp_path / f"{n}.png", seed=n, size=(90, 70)) for n in range(3)]
    rows = {"path": [file.name for file in files], "split": "train", "kind": "k"}
    manifest = Manifest(pd.DataFrame(rows), levels=["kind"], root=tmp_path).write(tmp_path / "m.parquet")
    config = compose(["recipe=small", f"data.manifest={manifest}", "transform.size=48", "data.workers=0"])
    assert Augmentation.of(config.transform) == Augmentation()
    batches = TrainingBatches(Manifest.read(manifest), config)
    ((images, _),) = batches.epoch(0, [[0, 1, 2]], first_step=7)
    draws = draw(config.seed, 7, 3)
    transform = build_transform("small", train=True, size=48)
    for number, file in enumerate(files):
        with patch("torch.rand", return_value=draws[number : number + 1]):
            torch.testing.assert_close(transform(read_image(file)), images[number], rtol=0, atol=1e-5)


def test_test_transforms_follow_the_paper():
    white = Image.new("RGB", (400, 300), "white")
    expected = (1 - torch.tensor([0.485, 0.456, 0.406])) / torch.tensor([0.229, 0.224, 0.225])
    assert torch.allclose(build_transform("sop", train=False)(white)[:, 0, 0], expected)
    # A bar over the left eighth: squeezed to a square it ends at 32 - 16 = 16 px of the crop; shorter side
    # at 256, the picture is 341 wide, the crop starts at 58 and the bar (42 px) is cut away.
    bar = white.copy()
    bar.paste("black", (0, 0, 50, 300))
    squeezed = build_transform("sop", train=False)(bar)[0, 100]
    assert (squeezed < 0).sum() == 16
    assert (build_transform("inat", train=False)(bar)[0, 100] < 0).sum() == 0


def test_transform_errors():
    with pytest.raises(
        OptionError, match=r"one of sop, inat, dyml, small, backbone, got 'smal' \(did you mean 'small'\?\)"
    ):
        build_transform("smal", train=True)
    with pytest.raises(OptionError, match="size must be at least 8 pixels, got 4"):
        build_transform("small", train=True, size=4)
