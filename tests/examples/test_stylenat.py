"""StyleNAT: its published size, and iterations that really run, at a small size."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

import stylenat  # noqa: E402
from common import parameters_of  # noqa: E402

pytestmark = pytest.mark.torch


@pytest.fixture
def step() -> stylenat.Iteration:
    return stylenat.training_step(2, resolution=16, widest=32, style_width=32)


def weights_of(network: torch.nn.Module) -> torch.Tensor:
    return torch.cat([weight.detach().flatten() for weight in network.parameters()])


def test_parameters() -> None:
    with torch.device("meta"):
        generator = stylenat.Generator(256, 512, 512)
        discriminator = stylenat.Discriminator(256, 512)
    # Source: arXiv 2211.05770, table of FFHQ results: 48.92 M.
    assert parameters_of(generator) == 48_921_000
    assert parameters_of(discriminator) == 26_211_073


def test_heads_and_dilations() -> None:
    with torch.device("meta"):
        generator = stylenat.Generator(256, 512, 512)
    attentions = [first.attention for first, _ in generator.blocks]
    # Source: the published settings for FFHQ-256.
    assert [x.heads for x in attentions] == [16, 16, 16, 16, 16, 8, 4]
    assert [x.dilations for x in attentions] == [
        (), (1,), (1, 2), (1, 4), (1, 8), (1, 16), (1, 32),
    ]  # fmt: skip


def test_iterations_train_both_networks_and_move_the_average(step: stylenat.Iteration) -> None:
    networks = (step.generator, step.discriminator, step.average)
    before = [weights_of(network) for network in networks]
    step()
    after = [weights_of(network) for network in networks]
    assert set(step.losses) == {"discriminator", "r1", "generator"}
    assert all(loss.isfinite() for loss in step.losses.values())
    for old, new in zip(before, after, strict=True):
        assert new.isfinite().all()
        assert not torch.equal(old, new)
    # average + (1 - decay) (generator - average)
    expected = before[2].lerp(after[0], 1 - stylenat.AVERAGE_DECAY)
    torch.testing.assert_close(after[2], expected)


def test_penalty_comes_every_sixteenth_iteration(
    step: stylenat.Iteration, monkeypatch: pytest.MonkeyPatch
) -> None:
    for rest in ("train_discriminator", "train_generator", "update_average"):
        monkeypatch.setattr(step, rest, lambda *_: None)
    assert step.period == 16
    with_penalty = []
    for iteration in range(18):
        step.losses.clear()
        step()
        if "r1" in step.losses:
            with_penalty.append(iteration)
    assert with_penalty == [0, 16]


def test_discriminator_step_reaches_the_generator(step: stylenat.Iteration) -> None:
    step.train_discriminator(step.real_images[0])
    assert all(weight.grad is not None for weight in step.generator.parameters())
    norms = [weight.grad.norm() for weight in step.discriminator.parameters()]
    assert torch.stack(norms).norm() <= stylenat.CLIP_NORM * 1.001


def test_penalty_is_the_squared_gradient_of_the_scores(step: stylenat.Iteration) -> None:
    image = torch.randn(2, 3, 16, 16, dtype=torch.float64)
    critic = step.discriminator.double().eval()
    with torch.no_grad():
        nudge = torch.zeros_like(image)
        nudge[0, 1, 5, 7] = 1e-5
        slope = (critic(image + nudge) - critic(image - nudge)).sum() / 2e-5
    (gradient,) = torch.autograd.grad(critic(image.requires_grad_()).sum(), image)
    torch.testing.assert_close(gradient[0, 1, 5, 7], slope, rtol=1e-4, atol=1e-8)


@pytest.mark.parametrize(("batch_size", "groups"), [(1, 1), (3, 1), (6, 2), (8, 2)])
def test_batch_spread_takes_any_batch(batch_size: int, groups: int) -> None:
    x = torch.randn(batch_size, 5, 4, 4)
    spread = stylenat.batch_spread(x)
    assert spread.shape == (batch_size, 1, 4, 4)
    assert spread[:, 0, 0, 0].unique().numel() == groups


def test_halved_bands_are_those_of_the_halved_image() -> None:
    critic = stylenat.Discriminator(16, 32)
    image = torch.randn(1, 3, 16, 16)
    haar = {"weight": critic.haar, "stride": 2, "groups": 3}
    small = torch.nn.functional.conv2d(image, critic.blur, stride=2, padding=1, groups=3)
    bands = torch.nn.functional.conv2d(image, **haar)
    torch.testing.assert_close(critic.halve(bands), torch.nn.functional.conv2d(small, **haar))


def test_shifted_brings_in_zeros(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "randint", lambda *_, **__: torch.full((1, 1, 1, 1), 2))
    x = torch.arange(1.0, 6.0).view(1, 1, 1, 5)
    assert stylenat.shifted(x, 3, 2).flatten().tolist() == [3, 4, 5, 0, 0]


def test_augmented_passes_gradients_on() -> None:
    image = torch.randn(4, 3, 16, 16, requires_grad=True)
    result = stylenat.augmented(image)
    assert result.shape == image.shape
    result.square().sum().backward()
    assert image.grad.abs().sum() > 0
