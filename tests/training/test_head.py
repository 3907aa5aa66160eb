"""Training a head on kept features: the same loop, the same promises."""

import numpy as np
import pandas as pd
import pytest
import torch
from training_runs import assert_same, kill_at, weights_of

import happier
from happier.encoder import Head
from happier.encoder.features import Features
from happier.errors import CheckpointError, ConfigError, InputError
from happier.evaluation.protocol import evaluate_manifest
from happier.losses import LOSSES
from happier.runs import RunDirectory, read_run
from happier.runs.run_features import head_vectors
from happier.training import batches as batches_module
from happier.training.compose import compose
from happier.training.config import TrainConfig
from happier.training.loop import train


@pytest.fixture
def head(small, tmp_path):
    """Overrides of a head's training: 12 steps, an MLP with dropout."""
    return [
        *small,
        "model.train=head",
        "model.head=mlp",
        "model.hidden=32",
        f"data.feature_folder={tmp_path / 'features'}",
        "optimizer=adamw",
    ]


def test_a_head_is_trained_without_decoding_images_again(head, tmp_path, monkeypatch):
    train(compose([*head, f"run={tmp_path / 'first'}", "evaluation.every=2"]))

    def fail(*_):
        raise AssertionError("an image was read")

    monkeypatch.setattr("happier.vectors.writer.run_pass", fail)
    monkeypatch.setattr(batches_module, "ImageDataset", fail)
    result = train(
        compose([*head, f"run={tmp_path / 'second'}", "evaluation.every=2", "evaluation.start=true"])
    )
    assert result.steps == 12
    assert_same(weights_of(tmp_path / "first"), weights_of(tmp_path / "second"))
    encoder = happier.Encoder.from_pretrained(tmp_path / "second")
    assert encoder.head_shape == Head("mlp", hidden=32, dropout=0.3)


def test_the_run_is_an_ordinary_one(head, tmp_path, shapes):
    """Its encoder embeds images, and they score what the features scored."""
    result = train(compose([*head, f"run={tmp_path / 'run'}", "evaluation.every=4"]))
    encoder = happier.Encoder.from_pretrained(tmp_path / "run")
    rows = happier.data.Manifest.read(shapes).select("test")
    found = happier.evaluate(encoder.embed(rows.files()), rows.labels(), level_names=rows.levels)
    assert found.summary["H-AP"] == pytest.approx(result.metrics["H-AP"], abs=1e-4)


def test_the_backbone_stays_as_it_came(head, tmp_path):
    config = compose([*head, f"run={tmp_path / 'run'}"])
    train(config)
    torch.manual_seed(config.seed)
    start = happier.Encoder(
        "test_resnet", dim=64, transform="small", image_size=32, head=Head("mlp", hidden=32)
    ).state_dict()
    after = happier.Encoder.from_pretrained(tmp_path / "run").state_dict()
    for name, tensor in start.items():
        assert torch.equal(tensor, after[name]) == name.startswith("backbone."), name
    # The checkpoint holds what moves, not the backbone.
    assert not any(name.startswith("encoder.backbone") for name in weights_of(tmp_path / "run"))


def test_steps_on_features_are_steps_on_images_with_a_frozen_backbone(small, tmp_path):
    """Three steps, in the other run those of a warm-up, during which the backbone is held."""
    options = [
        *small,
        "optimizer=sgd",
        "optimizer.lr=0.01",
        "training.epochs=2",
        "training.warmup_epochs=1",
        "training.checkpoint_steps=3",
        "transform.crop_scale=1",
        "transform.crop_ratio=1",
        "transform.rotate=0",
        "transform.colour=0",
        "model.freeze_batch_norm=true",
    ]
    kept = ["model.train=head", f"data.feature_folder={tmp_path / 'features'}"]
    for name, more in (("head", kept), ("all", [])):
        assert kill_at(["4:step"], [*options, *more, f"run={tmp_path / name}"]) == [-9]
    found, expected = weights_of(tmp_path / "head"), weights_of(tmp_path / "all")
    for name in ("encoder.head.weight", "encoder.head.bias"):
        torch.testing.assert_close(found[name], expected[name], atol=1e-5, rtol=0)
    assert found["optimizer.state.0.momentum_buffer"].abs().max() > 0


@pytest.mark.parametrize("loss", LOSSES)
def test_every_loss_trains_a_head(loss, head, tmp_path, tmp_path_factory):
    shared = tmp_path_factory.getbasetemp() / "shared-features"
    options = [f"loss={loss}", "training.epochs=1", f"data.feature_folder={shared}"]
    assert train(compose([*head, *options, f"run={tmp_path / 'run'}"])).steps == 3


RESUMED = {
    "plain": [],
    "all": ["training.memory=64", "training.clip_norm=1.0", "loss=sum_nsm", "evaluation.every=2"],
    "attributes": ["loss=hap_attributes", "sampler=attributes", "training.memory=64"],
    "micro": ["training.micro_batch=10", "sampler=hierarchical", "sampler.batches_per_pair=1"],
}


@pytest.mark.parametrize("name", RESUMED)
def test_killed_at_any_step_a_head_ends_with_the_same_bits(name, head, tmp_path):
    options = [*head, "training.checkpoint_steps=2", *RESUMED[name]]
    assert kill_at(["0:end"], [*options, f"run={tmp_path / 'whole'}"]) == [0]
    killed = [*options, f"run={tmp_path / 'killed'}"]
    places = ["1:step", "4:step", "2:save", "3:step"]
    assert kill_at([*places, "0:end"], killed) == [*(-9 for _ in places), 0]
    assert_same(weights_of(tmp_path / "whole"), weights_of(tmp_path / "killed"))


def test_features_of_other_weights_are_not_continued_with(head, tmp_path):
    torch.manual_seed(1)
    for name in "ab":
        torch.save(happier.Encoder("test_resnet").backbone.state_dict(), tmp_path / f"{name}.pth")
    weights = tmp_path / "weights.pth"
    weights.write_bytes((tmp_path / "a.pth").read_bytes())
    options = [*head, f"run={tmp_path / 'run'}", f"model.pretrained={weights}"]
    train(compose(options))
    weights.write_bytes((tmp_path / "b.pth").read_bytes())
    with pytest.raises(CheckpointError, match="features are not of the backbone"):
        train(compose([*options, f"data.feature_folder={tmp_path / 'others'}"]))


def test_steps_instead_of_epochs(head, tmp_path, shapes):
    config = compose([*head, f"run={tmp_path / 'run'}", "training.steps=7", "training.batch_size=512"])
    result = train(config)
    # 24 classes of 5 images fill a batch of 96: one step in an epoch.
    assert result.steps == 7
    # Where there are many images, until each was seen often enough; who names the steps wants no more.
    recipe = [*head, "training.batch_size=512", "training.steps=7"]
    assert train(compose([*recipe, f"run={tmp_path / 'more'}", "training.least_epochs=9"])).steps == 9
    assert compose(["recipe=folder_cpu", "data.manifest=x"]).training.least_epochs == 15
    assert compose(["recipe=folder_cpu", "data.manifest=x", "training.steps=5"]).training.least_epochs == 0
    with pytest.raises(ConfigError, match=r"training\.steps must be 1 or more"):
        compose([*head, "training.steps=0"])


def test_a_run_starts_from_another(head, small, tmp_path):
    train(compose([*head, f"run={tmp_path / 'head'}", "model.dim=24"]))
    start = happier.Encoder.from_pretrained(tmp_path / "head").state_dict()
    tuned = [*small, f"model.start={tmp_path / 'head'}", "training.epochs=1", "optimizer.lr=1e-12",
             "model.freeze_batch_norm=true", f"run={tmp_path / 'tuned'}"]  # fmt: skip
    train(compose(tuned))
    encoder = happier.Encoder.from_pretrained(tmp_path / "tuned")
    assert (encoder.dim, encoder.head_shape.hidden) == (24, 32)
    for name, tensor in encoder.state_dict().items():
        torch.testing.assert_close(tensor, start[name], atol=1e-6, rtol=0, msg=name)
    # A finished run is finished, and knows its network.
    assert train(compose(tuned)).steps == 3
    with pytest.raises(CheckpointError, match="no model"):
        train(compose([*small, f"model.start={tmp_path / 'none'}", f"run={tmp_path / 'other'}"]))
    assert not (tmp_path / "other").exists()


def test_views_are_drawn_by_seed_and_step(tmp_path, shapes):
    rows = happier.data.Manifest.read(shapes).select("train")
    arrays = [np.full((len(rows), 2), number, dtype=np.float32) for number in range(3)]
    features = Features(arrays[0], rows, "x", tuple(arrays[1:]))
    config = TrainConfig(seed=5)
    whole = batches_module.FeatureBatches(features, config)
    order = [list(range(8)), list(range(8, 16))]
    found = [batch for batch, _ in whole.epoch(0, order, first_step=3)]
    assert {0.0, 1.0, 2.0} == set(torch.cat(found).flatten().tolist())
    later = next(iter(whole.epoch(0, order[1:], first_step=4)))[0]
    assert torch.equal(later, found[1])
    parts = [
        next(iter(batches_module.FeatureBatches(features, config, rank=rank, world_size=2).epoch(
            0, [order[0][4 * rank : 4 * rank + 4]], first_step=3)))[0]
        for rank in range(2)
    ]  # fmt: skip
    assert torch.equal(torch.cat(parts), found[0])


def test_evaluation_and_index_use_the_kept_features(head, tmp_path, shapes, monkeypatch):
    result = train(compose([*head, f"run={tmp_path / 'run'}", "evaluation.every=4"]))
    manifest = happier.data.Manifest.read(shapes)
    truth = happier.Encoder.from_pretrained(tmp_path / "run").embed(manifest.files())

    def fail(*_):
        raise AssertionError("an image was read")

    monkeypatch.setattr("happier.vectors.writer.run_pass", fail)
    run = read_run(tmp_path / "run")
    assert evaluate_manifest(run.vectors, run.manifest).summary()["H-AP"] == pytest.approx(
        result.metrics["H-AP"]
    )
    encoder = happier.Encoder.from_pretrained(tmp_path / "run")
    vectors = head_vectors(RunDirectory(tmp_path / "run"), encoder, manifest, ("train", "test"))
    np.testing.assert_allclose(vectors, truth, atol=1e-5)


@pytest.fixture
def vectors(tmp_path):
    """A manifest of vectors that someone else made; there are no images."""
    rng = np.random.default_rng(0)
    rows, made = [], []
    for item in range(16):
        centre = rng.normal(size=12)
        for view in range(4):
            split = "test" if item % 4 == 3 else "train"
            rows.append(
                {"path": f"{item}/{view}", "split": split, "kind": f"k{item % 2}", "item": f"i{item}"}
            )
            made.append(centre + 0.5 * rng.normal(size=12))
    manifest = happier.data.Manifest(pd.DataFrame(rows), levels=["kind", "item"], root=tmp_path)
    np.save(tmp_path / "vectors.npy", np.asarray(made, dtype=np.float16))
    return manifest.write(tmp_path / "manifest.parquet"), tmp_path / "vectors.npy"


def test_a_head_is_trained_on_vectors_from_elsewhere(vectors, tmp_path):
    manifest, array = vectors
    options = ["recipe=small", f"data.manifest={manifest}", f"data.features={array}", "model.train=head",
               "training.tensorboard=false", "training.epochs=3", f"run={tmp_path / 'run'}"]  # fmt: skip
    result = train(compose(options))
    rows = happier.data.Manifest.read(manifest)
    encoder = happier.Encoder.from_pretrained(tmp_path / "run")
    made = encoder.head_forward(torch.from_numpy(np.load(array).astype(np.float32))).detach().numpy()
    test = (rows.table["split"] == "test").to_numpy()
    expected = happier.evaluate(made[test], rows.labels()[test]).summary["H-AP"]
    run = read_run(tmp_path / "run")
    assert result.metrics["H-AP"] == pytest.approx(expected)
    assert evaluate_manifest(run.vectors, run.manifest).summary()["H-AP"] == pytest.approx(expected)
    with pytest.raises(InputError, match="trained on vectors of 12 numbers and has no network for images"):
        encoder.embed(torch.zeros(1, 3, 32, 32))


def test_vectors_that_do_not_fit_are_one_line(vectors, tmp_path):
    manifest, array = vectors
    options = ["recipe=small", f"data.manifest={manifest}", "model.train=head", f"run={tmp_path / 'run'}"]
    np.save(array, np.load(array)[:-1])
    with pytest.raises(happier.HappierError, match="63 vectors, the manifest 64 rows"):
        train(compose([*options, f"data.features={array}"]))
    with pytest.raises(happier.HappierError, match="cannot read"):
        train(compose([*options, f"data.features={tmp_path / 'none.npy'}"]))
    with pytest.raises(ConfigError, match=r"are for model\.train=head"):
        compose([*options, "model.train=all", f"data.features={array}"])
    assert not (tmp_path / "run").exists()
