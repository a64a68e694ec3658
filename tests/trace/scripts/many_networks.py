"""A GAN of four networks whose optimizers step D D G M S G, with a penalty in every fourth one."""

import sys

import torch
from torch import nn

WIDTH = 32
batch_size = 4
device = torch.device("cuda")
generator, critic, mapping, style = (nn.Linear(WIDTH, WIDTH).to(device) for _ in range(4))
nets = {"D": critic, "G": generator, "M": mapping, "S": style}
optimizers = {name: torch.optim.Adam(net.parameters(), 1e-4) for name, net in nets.items()}


def update(names, loss):
    for optimizer in optimizers.values():
        optimizer.zero_grad()
    loss.backward()
    for name in names:
        optimizers[name].step()


iterations = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
for iteration in range(iterations):
    real = torch.rand(batch_size, WIDTH, device=device)
    noise = torch.rand(batch_size, WIDTH, device=device)
    update("D", critic(real).mean() - critic(generator(mapping(noise)).detach()).mean())
    loss = critic(real).mean() - critic(generator(style(real)).detach()).mean()
    if iteration % 4 == 0:
        real.requires_grad_()
        (gradient,) = torch.autograd.grad(critic(real).sum(), real, create_graph=True)
        loss = loss + gradient.square().sum()
    update("D", loss)
    update("GMS", -critic(generator(mapping(noise))).mean() + style(real.detach()).abs().mean())
    update("G", -critic(generator(style(real.detach()))).mean())
