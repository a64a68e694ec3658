"""A DCGAN: two optimizers, three backward passes."""

import torch
from hand import Hand
from torch import nn


def up(inputs, outputs):
    layer = nn.ConvTranspose2d(inputs, outputs, 4, 2, 1, bias=False)
    return nn.Sequential(layer, nn.BatchNorm2d(outputs), nn.ReLU())


def down(inputs, outputs):
    layer = nn.Conv2d(inputs, outputs, 4, 2, 1, bias=False)
    return nn.Sequential(layer, nn.BatchNorm2d(outputs), nn.LeakyReLU(0.2))


generator = nn.Sequential(
    nn.ConvTranspose2d(128, 512, 4, 1, 0),
    nn.BatchNorm2d(512),
    nn.ReLU(),
    up(512, 256),
    up(256, 128),
    up(128, 64),
    nn.ConvTranspose2d(64, 3, 4, 2, 1),
    nn.Tanh(),
).cuda()
critic = nn.Sequential(
    nn.Conv2d(3, 64, 4, 2, 1),
    nn.LeakyReLU(0.2),
    down(64, 128),
    down(128, 256),
    down(256, 512),
    nn.Conv2d(512, 1, 4, 1, 0),
    nn.Flatten(0),
).cuda()
for_generator = torch.optim.Adam(generator.parameters(), 2e-4, (0.5, 0.999))
for_critic = torch.optim.Adam(critic.parameters(), 2e-4, (0.5, 0.999))
loss = nn.functional.binary_cross_entropy_with_logits
real = torch.randn(512, 3, 64, 64, device="cuda")
one, zero = torch.ones(512, device="cuda"), torch.zeros(512, device="cuda")
hand = Hand()
while True:
    fake = generator(torch.randn(512, 128, 1, 1, device="cuda"))
    for_critic.zero_grad()
    loss(critic(real), one).backward()
    loss(critic(fake.detach()), zero).backward()
    for_critic.step()
    for_generator.zero_grad()
    loss(critic(fake), one).backward()
    for_generator.step()
    hand.step()
