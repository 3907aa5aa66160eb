"""Pooling: each kind against a loop; what is saved, kept and exported with it."""

import numpy as np
import pytest
import torch

from happier import Encoder
from happier.encoder.features import FeatureStore
from happier.encoder.pooling import GeM
from happier.errors import OptionError

KINDS = [("test_resnet", "average"), ("test_resnet", "gem"), ("test_vit", "average"), ("test_vit", "gem")]
KINDS += [("test_vit", "cls"), ("test_convnext", "gem")]


def make(backbone, pooling):
    torch.manual_seed(0)
    return Encoder(backbone, dim=8, transform="small", image_size=32, pooling=pooling).eval()


def slow_gem(places, p):
    """Places [N, C] -> [C], a number at a time."""
    pooled = []
    for channel in places.T.tolist():
        total = sum(max(value, 1e-6) ** p for value in channel)
        pooled.append((total / len(channel)) ** (1 / p))
    return torch.tensor(pooled)


@pytest.mark.parametrize("p", [1.0, 3.0, 4.5])
def test_gem_is_the_mean_of_powers(p):
    maps = torch.randn(2, 5, 3, 4, generator=torch.Generator().manual_seed(0))
    expected = torch.stack([slow_gem(image.flatten(1).T, p) for image in maps])
    torch.testing.assert_close(GeM(p)(maps), expected)
    torch.testing.assert_close(GeM(p, channels_last=True)(maps.permute(0, 2, 3, 1)), expected)
    tokens = torch.cat([torch.full((2, 1, 5), 9.0), maps.flatten(2).transpose(1, 2)], dim=1)
    torch.testing.assert_close(GeM(p, prefix_tokens=1)(tokens), expected)


def test_gem_tends_to_the_maximum_and_learns_its_power():
    maps = torch.rand(2, 3, 4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) + 0.1
    torch.testing.assert_close(GeM(500.0)(maps), maps.float().amax((2, 3)), rtol=0.01, atol=0)
    pooling = GeM().double()
    pooling(maps).sum().backward()
    step = 1e-3
    with torch.no_grad():
        high = slow_gem(maps[0].flatten(1).T, 3 + step) + slow_gem(maps[1].flatten(1).T, 3 + step)
        low = slow_gem(maps[0].flatten(1).T, 3 - step) + slow_gem(maps[1].flatten(1).T, 3 - step)
    assert float(pooling.p.grad) == pytest.approx(float((high - low).sum()) / (2 * step), rel=1e-2)


@pytest.mark.parametrize(("backbone", "pooling"), KINDS)
def test_features_are_pooled_as_asked(backbone, pooling):
    encoder, images = make(backbone, pooling), torch.randn(2, 3, 32, 32)
    network = encoder.backbone
    with torch.no_grad():
        maps = network.forward_features(images)
        if backbone == "test_convnext":
            maps = network.head.norm(maps)
        for image, features in zip(maps, encoder.features(images), strict=True):
            prefix = getattr(network, "num_prefix_tokens", 0)
            places = image[prefix:] if maps.ndim == 3 else image.flatten(1).T
            expected = {
                "average": lambda places=places: sum(places) / len(places),
                "gem": lambda places=places: slow_gem(places, 3.0),
                "cls": lambda image=image: image[0],
            }[pooling]()
            torch.testing.assert_close(features, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("backbone", "pooling"), KINDS)
def test_saved_kept_and_exported(backbone, pooling, manifest, tmp_path, monkeypatch):
    import onnxruntime

    monkeypatch.setenv("HAPPIER_CACHE", str(tmp_path / "cache"))
    encoder = make(backbone, pooling)
    encoder.save_pretrained(tmp_path / "model")
    loaded = Encoder.from_pretrained(tmp_path / "model")
    assert (loaded.pooling_name, loaded.fingerprint) == (pooling, encoder.fingerprint)
    expected = encoder.embed(manifest.files(), backend="torch")
    np.testing.assert_allclose(loaded.embed(manifest.files(), backend="onnxruntime"), expected, atol=1e-5)
    kept = FeatureStore.open_or_compute(loaded, manifest, tmp_path / "features")
    assert kept.fingerprint == encoder.backbone_fingerprint
    file = loaded.export_onnx(tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    images = torch.stack([encoder.read_image(file) for file in manifest.files()])
    (vectors,) = session.run(None, {"images": images.numpy()})
    np.testing.assert_allclose(vectors, expected, atol=1e-5)


def test_two_poolings_of_the_same_weights_share_nothing():
    kinds = ("backbone", "average", "gem", "cls")
    encoders = [make("test_vit", kind) for kind in kinds]
    for encoder in encoders[1:]:
        encoder.backbone.load_state_dict(encoders[0].backbone.state_dict())
        encoder.head.load_state_dict(encoders[0].head.state_dict())
    assert len({encoder.fingerprint for encoder in encoders}) == len(kinds)
    assert len({encoder.backbone_fingerprint for encoder in encoders}) == len(kinds)


def test_a_pooling_that_cannot_be_is_refused():
    with pytest.raises(OptionError, match="test_resnet has no class token"):
        make("test_resnet", "cls")
    with pytest.raises(OptionError, match="one of backbone, average, gem, cls, got 'max'"):
        make("test_resnet", "max")
    with pytest.raises(OptionError, match="vectors have no places to pool"):
        make("vectors:8", "gem")
