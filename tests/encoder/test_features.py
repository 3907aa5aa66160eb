"""Features of a frozen backbone: computed once, shared, never mixed; the fast pass gives the same vectors."""

import logging

import numpy as np
import pytest
import torch
from noise import write_noise

from happier import Encoder
from happier.data import InputConfig, build_transform
from happier.encoder import inference_backends
from happier.encoder.features import Features, FeatureStore, apply_head
from happier.encoder.inference_backends import feature_function
from happier.encoder.vector_models import embedding_function
from happier.errors import DataError, InputError, ManifestError, OptionError


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("HAPPIER_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def counted():
    class Counted:
        total = 0

        def __call__(self, done, total):
            self.total += done == total and total

    return Counted()


def direct(encoder, manifest):
    with encoder.inference():
        images = torch.stack([encoder.read_image(path) for path in manifest.files()])
        return encoder.features(images).numpy()


def test_forward_is_features_then_head(encoder):
    images = torch.randn(3, 3, 32, 32)
    assert torch.equal(encoder(images), encoder.head_forward(encoder.features(images)))
    assert encoder.features(images).shape == (3, encoder.feature_dim)


def test_features_are_computed_once_and_appended_to(encoder, manifest, tmp_path, counted):
    made = FeatureStore.open_or_compute(encoder, manifest.take(range(6)), tmp_path / "f", progress=counted)
    assert counted.total == 6
    assert isinstance(made.vectors, np.memmap)
    np.testing.assert_allclose(made.vectors, direct(encoder, manifest.take(range(6))), atol=1e-5)
    counted.total = 0
    more = FeatureStore.open_or_compute(encoder, manifest, tmp_path / "f", progress=counted)
    assert counted.total == 5
    assert more.vectors.shape == (11, encoder.feature_dim)
    assert more.fingerprint == encoder.backbone_fingerprint
    write_noise(manifest.files()[2], 99)
    counted.total = 0
    part = FeatureStore.open_or_compute(encoder, manifest.take([9, 2]), tmp_path / "f", progress=counted)
    assert counted.total == 1
    np.testing.assert_allclose(part.vectors, direct(encoder, manifest.take([9, 2])), atol=1e-5)


def test_models_that_differ_in_the_head_share_features(encoder, manifest, counted, cache):
    other = Encoder("test_resnet", dim=5, transform="small", image_size=32)
    other.backbone.load_state_dict(encoder.backbone.state_dict())
    FeatureStore.open_or_compute(encoder, manifest)
    found = FeatureStore.open_or_compute(other, manifest, progress=counted)
    assert counted.total == 0
    assert cache in FeatureStore.shared(other).directory.parents
    np.testing.assert_allclose(apply_head(other, found.vectors), other.embed(manifest.files()), atol=1e-5)


def test_features_of_another_backbone_are_refused(encoder, manifest, tmp_path):
    FeatureStore.open_or_compute(encoder, manifest, tmp_path / "f")
    other = Encoder("test_resnet", dim=16, transform="small", image_size=32)
    with pytest.raises(DataError, match="choose another directory"):
        FeatureStore.open_or_compute(other, manifest, tmp_path / "f")
    larger = Encoder("test_resnet", dim=16, transform="small", image_size=48)
    larger.load_state_dict(encoder.state_dict())
    with pytest.raises(DataError, match="preprocessing small 48"):
        FeatureStore.open_or_compute(larger, manifest, tmp_path / "f")


def test_views_are_augmented_and_always_the_same(encoder, manifest, tmp_path, counted):
    made = FeatureStore.open_or_compute(encoder, manifest, tmp_path / "f", views=2)
    assert len(made.views) == 2
    assert all(view.shape == made.vectors.shape for view in made.views)
    assert not np.allclose(made.vectors, made.views[0])
    assert not np.allclose(*made.views)
    order = list(reversed(range(11)))
    again = FeatureStore.open_or_compute(encoder, manifest.take(order), tmp_path / "g", views=1)
    np.testing.assert_allclose(again.views[0], made.views[0][order], atol=1e-5)
    FeatureStore.open_or_compute(encoder, manifest, tmp_path / "f", views=2, progress=counted)
    assert counted.total == 0
    with pytest.raises(OptionError, match="views"):
        FeatureStore.open_or_compute(encoder, manifest, tmp_path / "f", views=-1)


def test_vectors_from_elsewhere_need_no_images(manifest, tmp_path):
    path = tmp_path / "clip.npy"
    vectors = np.random.default_rng(0).standard_normal((11, 7))
    np.save(path, vectors.astype(np.float16))
    found = Features.from_array(path, manifest)
    assert found.vectors.dtype == np.float32
    assert found.fingerprint.startswith("array ")
    with pytest.raises(ManifestError, match="11 vectors, the manifest 2 rows"):
        Features.from_array(path, manifest.take([0, 1]))
    for wrong in (np.float64(3), vectors[0], np.full((11, 2), np.nan), np.zeros((11, 2), dtype=int)):
        np.save(path, wrong)
        with pytest.raises(InputError, match=r"clip\.npy"):
            Features.from_array(path, manifest)
    path.write_text("text")
    with pytest.raises(InputError, match=r"clip\.npy"):
        Features.from_array(path, manifest)


# Backends


def test_onnxruntime_gives_the_vectors_of_torch(encoder, manifest, cache):
    expected = encoder.embed(manifest.files(), backend="torch")
    found = encoder.embed(manifest.files(), batch_size=4, backend="onnxruntime")
    assert (expected * found).sum(axis=1).min() >= 0.9999
    np.testing.assert_allclose(found, expected, atol=1e-5)
    (kept,) = (cache / "onnx").iterdir()
    kept.write_bytes(b"damaged")
    np.testing.assert_allclose(encoder.embed(manifest.files(), backend="onnxruntime"), expected, atol=1e-5)


def test_onnxruntime_computes_large_images_a_few_at_a_time(encoder, cache, monkeypatch):
    images = torch.rand(5, 3, encoder.image_size, encoder.image_size)
    with feature_function(encoder, precision="fp32", backend="onnxruntime", images=5) as compute:
        whole = compute(images)
        monkeypatch.setattr(inference_backends, "_PIXELS_AT_ONCE", 2 * encoder.image_size**2)
        torch.testing.assert_close(compute(images), whole)
        monkeypatch.setattr(inference_backends, "_PIXELS_AT_ONCE", 1)
        torch.testing.assert_close(compute(images), whole)


def test_a_backend_is_chosen_by_device_and_number(encoder, monkeypatch):
    assert inference_backends._choose(encoder, "fp32", 10) == "torch"
    assert inference_backends._choose(encoder, "bf16", 10**6) == "torch"
    assert inference_backends._choose(encoder, "fp32", 10**6) == "onnxruntime"
    monkeypatch.setattr(inference_backends.importlib.util, "find_spec", lambda name: None)
    assert inference_backends._choose(encoder, "fp32", 10**6) == "torch"


def test_a_broken_onnxruntime_is_a_warning(encoder, manifest, monkeypatch, caplog):
    """Its library may need one that the system lacks; with the backend asked for by name it is an error."""

    def broken(_encoder):
        raise ImportError("libfoo.so.1: cannot open shared object file")

    monkeypatch.setattr(inference_backends, "_onnx_session", broken)
    with pytest.raises(OptionError, match=r"libfoo.*use backend torch"):
        encoder.embed(manifest.files(), backend="onnxruntime")
    monkeypatch.setattr(inference_backends, "_choose", lambda *arguments: "onnxruntime")
    found = encoder.embed(manifest.files())
    assert "libfoo.so.1: cannot open shared object file); using torch instead" in caplog.text
    np.testing.assert_allclose(found, encoder.embed(manifest.files(), backend="torch"), atol=1e-6)


def test_other_vectors_are_never_used(encoder, manifest, monkeypatch, caplog):
    monkeypatch.setattr(
        inference_backends, "_onnxruntime", lambda encoder, required: lambda batch: -encoder.features(batch)
    )
    with pytest.raises(OptionError, match="differs from float32"):
        encoder.embed(manifest.files(), backend="onnxruntime")
    monkeypatch.setattr(inference_backends, "_choose", lambda *arguments: "onnxruntime")
    with caplog.at_level(logging.WARNING):
        found = encoder.embed(manifest.files())
    assert "using torch instead" in caplog.text
    np.testing.assert_allclose(found, encoder.embed(manifest.files(), backend="torch"), atol=1e-6)


def test_wrong_backends_are_named(encoder, manifest, tmp_path):
    with pytest.raises(OptionError, match="auto, torch, onnxruntime"):
        encoder.embed_manifest(manifest, tmp_path / "out", backend="tpu")
    with (
        pytest.raises(OptionError, match="computes in fp32"),
        embedding_function(encoder, "bf16", "onnxruntime", 1),
    ):
        pass
    assert not (tmp_path / "out").exists()


# Preprocessing


def test_preprocessing_follows_the_backbone(tmp_path):
    encoder = Encoder("tf_efficientnet_lite0", dim=4, transform="backbone")
    assert encoder.input_config == InputConfig(224, 0.875, "bicubic", (0.5,) * 3, (0.5,) * 3)
    assert encoder.preprocess.size == 224
    white = torch.full((3, 300, 280), 255, dtype=torch.uint8)
    torch.testing.assert_close(encoder.preprocess(white), torch.ones(3, 224, 224))
    assert Encoder("resnet50.tv_in1k", dim=4).preprocess.description == "sop 224"


def test_timm_would_preprocess_the_same(tmp_path):
    from PIL import Image
    from timm.data import create_transform, resolve_data_config

    encoder = Encoder("test_resnet", dim=4, transform="backbone")
    write_noise(tmp_path / "a.png", 0)
    image = Image.open(tmp_path / "a.png").resize((300, 200), Image.Resampling.BICUBIC)
    theirs = create_transform(**resolve_data_config(model=encoder.backbone))(image)
    ours = encoder.preprocess(image)
    assert ours.shape == theirs.shape
    assert (ours - theirs).abs().mean() < 0.01


def test_old_models_keep_what_they_were_trained_with(encoder, tmp_path):
    import json

    encoder.save_pretrained(tmp_path)
    assert Encoder.from_pretrained(tmp_path).input_config == encoder.input_config
    settings = json.loads((tmp_path / "model.json").read_text())
    del settings["input"], settings["checksum"]
    (tmp_path / "model.json").write_text(json.dumps(settings))
    old = Encoder.from_pretrained(tmp_path)
    assert old.input_config == InputConfig()
    pixels = torch.randint(0, 256, (3, 40, 40), dtype=torch.uint8)
    torch.testing.assert_close(
        old.preprocess(pixels), build_transform("small", train=False, size=32)(pixels), atol=0, rtol=0
    )


def test_embeddings_come_from_kept_features(encoder, manifest, tmp_path, counted, monkeypatch):
    expected = encoder.embed(manifest.files())
    FeatureStore.open_or_compute(encoder, manifest.take(range(9)))
    read = []
    real = inference_backends.feature_function

    def feature_function(*arguments, images, **options):
        read.append(images)
        return real(*arguments, images=images, **options)

    monkeypatch.setattr("happier.encoder.vector_models.feature_function", feature_function)
    found = encoder.embed_manifest(manifest, tmp_path / "out")
    assert read == [2]
    np.testing.assert_allclose(found.vectors, expected, atol=1e-5)
    write_noise(manifest.files()[0], 99)
    again = encoder.embed_manifest(manifest, tmp_path / "out")
    assert read == [2, 1]
    np.testing.assert_allclose(again.vectors, encoder.embed(manifest.files()), atol=1e-5)


def test_the_command_writes_features(encoder, manifest, tmp_path):
    from typer.testing import CliRunner

    from happier.cli import app

    encoder.save_pretrained(tmp_path / "model")
    manifest.write(tmp_path / "manifest.parquet")
    arguments = ["embed", tmp_path / "model", tmp_path / "manifest.parquet", "-o", tmp_path / "f"]
    done = CliRunner().invoke(
        app,
        [*map(str, arguments), "--features", "--views", "1", "--backend", "torch"],
        catch_exceptions=False,
    )
    assert done.exit_code == 0
    assert f"11 vectors of {encoder.feature_dim} numbers" in done.stdout
    found = FeatureStore.open_or_compute(encoder, manifest, tmp_path / "f", views=1)
    np.testing.assert_allclose(found.vectors, direct(encoder, manifest), atol=1e-5)
    with pytest.raises(OptionError, match="--views needs --features"):
        CliRunner().invoke(app, [*map(str, arguments), "--views", "1"], catch_exceptions=False)
