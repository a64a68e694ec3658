"""A GAN with two optimizers: gan.py CLOCK [critic steps for each of the generator]."""

import sys

import own_clock
import torch

torch.set_num_threads(1)
clock = own_clock.OwnClock()
critic_steps = int(sys.argv[2]) if len(sys.argv) > 2 else 1
generator = torch.nn.Linear(8, 32)
critic = torch.nn.Linear(32, 1)
of_generator = torch.optim.Adam(generator.parameters())
of_critic = torch.optim.RMSprop(critic.parameters())
data = torch.utils.data.TensorDataset(torch.ones(4000, 32))
loader = torch.utils.data.DataLoader(data, batch_size=10)
while True:
    for number, (real,) in enumerate(loader, 1):
        own_clock.work(0.5)
        of_critic.zero_grad()
        fake = generator(torch.ones(10, 8)).detach()
        (critic(fake).mean() - critic(real).mean()).backward()
        of_critic.step()
        if number % critic_steps == 0:
            of_generator.zero_grad()
            own_clock.work(0.5)
            (-critic(generator(torch.ones(10, 8))).mean()).backward()
            of_generator.step()
            clock.step()
