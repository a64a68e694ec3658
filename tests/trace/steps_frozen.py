"""Steps whose parameters are frozen while the model is built, and trained all the same."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import nn

N = 256
Loss = Callable[[], torch.Tensor]


def _two(batch_size: int) -> tuple[nn.Module, nn.Module, list[Loss]]:
    """A generator, its critic, and the losses by which they are trained."""
    generator, critic = nn.Linear(N, N, bias=False), nn.Linear(N, N, bias=False)
    noise, real = torch.randn(batch_size, N), torch.randn(batch_size, N)

    def of_critic() -> torch.Tensor:
        return (critic(generator(noise).detach()) - critic(real)).mean()

    return generator, critic, [of_critic, lambda: critic(generator(noise)).mean()]


def _adam(models: Iterable[nn.Module]) -> list[torch.optim.Optimizer]:
    return [torch.optim.Adam(model.parameters()) for model in models]


def unfrozen_in_turn(batch_size: int) -> Callable[[], None]:
    """Each is unfrozen for its own part of the step alone, as GANs do it."""
    generator, critic, losses = _two(batch_size)
    models = critic, generator
    optimizers = _adam(models)
    for model in models:
        model.requires_grad_(False)

    def step() -> None:
        for model, optimizer, loss in zip(models, optimizers, losses, strict=True):
            model.requires_grad_(True)
            loss().backward()
            optimizer.step()
            optimizer.zero_grad()
            model.requires_grad_(False)

    return step


def never_frozen(batch_size: int) -> Callable[[], None]:
    """The same, told at each backward pass whose gradients are wanted."""
    generator, critic, losses = _two(batch_size)
    models = critic, generator
    optimizers = _adam(models)

    def step() -> None:
        for model, optimizer, loss in zip(models, optimizers, losses, strict=True):
            loss().backward(inputs=list(model.parameters()))
            optimizer.step()
            optimizer.zero_grad()

    return step


def one_stays_frozen(batch_size: int) -> Callable[[], None]:
    """Only the generator is ever unfrozen: its critic is a fixed one."""
    generator, critic, (_, loss) = _two(batch_size)
    for model in (generator, critic):
        model.requires_grad_(False)
    (optimizer,) = _adam([generator])

    def step() -> None:
        generator.requires_grad_(True)
        loss().backward()
        optimizer.step()
        optimizer.zero_grad()
        generator.requires_grad_(False)

    return step


def two_passes(batch_size: int) -> Callable[[], None]:
    """Gradients of two passes are added up before the update."""
    generator, critic, (_, loss) = _two(batch_size)
    critic.requires_grad_(False)
    (optimizer,) = _adam([generator])

    def step() -> None:
        for _ in range(2):
            loss().backward()
        optimizer.step()
        optimizer.zero_grad()

    return step
