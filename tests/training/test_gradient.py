"""One batch, its gradient: in one pass, in micro batches, augmented the same way whenever."""

import pytest
import torch
from lightning.fabric import Fabric

from happier import Encoder, Taxonomy
from happier.data.augmentation import augment, draw, normalise, to_bytes
from happier.data.transforms import build_transform
from happier.losses import build_loss
from happier.training.config import OptimizerConfig, ProxyOptimizerConfig, TransformConfig
from happier.training.gradient import batch_gradient
from happier.training.optimization import Schedule, build_optimizer, build_proxy_optimizer


def _gradients(backbone, micro_batch, *, freeze, direct=False):
    torch.manual_seed(0)
    side = 160 if "vit" in backbone else 32
    encoder = Encoder(backbone, dim=16, freeze_batch_norm=freeze, image_size=side)
    labels = torch.arange(16)[:, None] // torch.tensor([8, 2])
    criterion = build_loss("happier", taxonomy=Taxonomy.from_labels(labels), dim=16)
    images = torch.randn(16, 3, side, side, generator=torch.Generator().manual_seed(1))
    fabric = Fabric(devices=1)
    model = fabric.setup(encoder)
    model.train()
    if direct:
        loss = criterion(model(images), labels)
        loss.backward()
        loss = loss.item()
    else:
        loss = batch_gradient(fabric, model, criterion, images, labels, micro_batch=micro_batch)
    named = {**dict(encoder.named_parameters()), **dict(criterion.named_parameters())}
    return loss, {name: weight.grad for name, weight in named.items() if weight.grad is not None}


@pytest.mark.parametrize("micro_batch", [None, 16, 5, 1])
@pytest.mark.parametrize(("backbone", "freeze"), [("test_resnet", True), ("test_vit", False)])
def test_micro_batches_give_the_gradient_of_the_batch(backbone, freeze, micro_batch):
    expected_loss, expected = _gradients(backbone, None, freeze=freeze, direct=True)
    loss, found = _gradients(backbone, micro_batch, freeze=freeze)
    assert loss == pytest.approx(expected_loss, abs=1e-6)
    assert found.keys() == expected.keys()
    scale = max(float(gradient.abs().max()) for gradient in expected.values())
    for name, gradient in expected.items():
        assert float((found[name] - gradient).abs().max()) <= 1e-6 * max(scale, 1.0), name


def test_dropout_is_drawn_alike_in_both_passes():
    """The same vectors must come out of the second pass, or the gradient belongs to another network."""
    torch.manual_seed(0)
    encoder = Encoder("test_vit", dim=8, image_size=160)
    encoder.backbone.head_drop = torch.nn.Dropout(0.5)
    images = torch.randn(4, 3, 160, 160)
    seen = []

    class Spy(torch.nn.Module):
        def forward(self, embeddings, labels):
            seen.append(embeddings.detach().clone())
            return embeddings.square().sum()

    fabric = Fabric(devices=1)
    model = fabric.setup(encoder)
    model.train()
    passes = []
    hook = encoder.register_forward_hook(lambda *arguments: passes.append(arguments[-1].detach().clone()))
    batch_gradient(fabric, model, Spy(), images, torch.zeros(4, 1), micro_batch=2, seed=3, step=5)
    hook.remove()
    torch.testing.assert_close(torch.cat(passes[:2]), torch.cat(passes[2:]))
    torch.testing.assert_close(seen[0], torch.cat(passes[:2]))
    assert not torch.equal(passes[0], encoder(images[:2]))


def test_bytes_and_normalisation_are_the_test_transform():
    pixels = torch.randint(0, 256, (3, 40, 40), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    image = build_transform("small", train=False, size=32)(pixels)
    stored = to_bytes(image)
    assert stored.dtype == torch.uint8
    assert torch.equal(to_bytes(normalise(stored[None])[0]), stored)
    torch.testing.assert_close(normalise(stored[None])[0], image, atol=1e-6, rtol=0)


def test_without_strength_augmentation_changes_nothing():
    pixels = torch.randint(
        0, 256, (4, 3, 16, 16), dtype=torch.uint8, generator=torch.Generator().manual_seed(0)
    )
    still = TransformConfig(preset="small", crop_scale=1.0, crop_ratio=1.0, colour=0.0)
    torch.testing.assert_close(augment(pixels, draw(0, 0, 4), still), normalise(pixels), atol=1e-4, rtol=0)
    mirrored = TransformConfig(preset="small", crop_scale=1.0, crop_ratio=1.0, colour=0.0, flip=True)
    draws = torch.full((4, 11), 0.4)
    torch.testing.assert_close(
        augment(pixels, draws, mirrored), normalise(pixels.flip(-1)), atol=1e-4, rtol=0
    )


def test_draws_depend_on_seed_and_step_alone():
    assert torch.equal(draw(1, 2, 8), draw(1, 2, 8))
    assert not torch.equal(draw(1, 2, 8), draw(1, 3, 8))
    assert not torch.equal(draw(1, 2, 8), draw(2, 2, 8))
    # A rank that draws for the whole batch and takes its part sees what one rank alone would.
    assert torch.equal(draw(1, 2, 8)[:4], draw(1, 2, 4))


def test_schedule_is_cosine_after_warm_up():
    weight = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([weight], lr=1.0)
    schedule = Schedule(steps=30, warmup=10)
    rates = []
    for step in range(31):
        schedule.apply(optimizer, step, eta_min=0.1)
        rates.append(optimizer.param_groups[0]["lr"])
    assert rates[:11] == [1.0] * 11
    assert rates[20] == pytest.approx(0.55)
    assert rates[30] == pytest.approx(0.1)


@pytest.mark.parametrize("name", ["adam", "adamw", "sgd"])
def test_head_and_proxies_have_their_own_rates(name):
    encoder = Encoder("test_resnet", dim=8, freeze_batch_norm=True)
    optimizer = build_optimizer(encoder, OptimizerConfig(name=name, lr=0.5, head_factor=2.0))
    assert [group["lr"] for group in optimizer.param_groups] == [0.5, 1.0]
    held = {id(weight) for group in optimizer.param_groups for weight in group["params"]}
    assert held == {id(weight) for weight in encoder.parameters() if weight.requires_grad}
    taxonomy = Taxonomy.from_labels([[0, 0], [0, 1]])
    proxies = build_proxy_optimizer(
        build_loss("happier", taxonomy=taxonomy, dim=8), ProxyOptimizerConfig(name=name, lr=3.0)
    )
    assert proxies.param_groups[0]["lr"] == 3.0
    assert build_proxy_optimizer(build_loss("hap", taxonomy=taxonomy, dim=8), ProxyOptimizerConfig()) is None
