"""A GAN whose iteration steps its optimizers D D G M S G: turns.py CLOCK.

Batches come from iterators that are made anew where they end: of a main loader, of another for
references, and of a small one for samples, in evaluation mode, every ten iterations.
"""

import own_clock
import torch

torch.set_num_threads(1)
clock = own_clock.OwnClock()


class Batches:
    """Batches for ever."""

    def __init__(self, samples, batch_size):
        data = torch.utils.data.TensorDataset(torch.ones(samples, 16))
        self.loader = torch.utils.data.DataLoader(data, batch_size, shuffle=True)
        self.iterator = None

    def __next__(self):
        try:
            return next(self.iterator)[0]
        except (TypeError, StopIteration):
            self.iterator = iter(self.loader)
            return next(self.iterator)[0]


networks = {
    "D": torch.nn.Linear(16, 1),
    "G": torch.nn.Linear(16 + 4, 16),
    "M": torch.nn.Linear(3, 4),
    "S": torch.nn.Linear(16, 4),
}
optimizers = {
    name: torch.optim.Adam(network.parameters(), 1e-6) for name, network in networks.items()
}
main, reference, small = Batches(480, 8), Batches(320, 8), Batches(8, 4)


def styles(real, given):
    return networks["M"](torch.ones(8, 3)) if given is None else networks["S"](given)


def generated(real, given):
    return networks["G"](torch.cat([real, styles(real, given)], dim=1))


def update(loss, *names):
    for optimizer in optimizers.values():
        optimizer.zero_grad()
    loss.backward()
    for name in names:
        optimizers[name].step()


number = 0
while True:
    real, given = next(main), next(reference)
    for network in networks.values():
        network.train()
    for style in (None, given):
        own_clock.work(0.2)
        fake = generated(real, style).detach()
        update(networks["D"](fake).mean() - networks["D"](real).mean(), "D")
    own_clock.work(0.1)
    update(-networks["D"](generated(real, None)).mean(), "G", "M", "S")
    own_clock.work(0.5)
    update(-networks["D"](generated(real, given)).mean(), "G")
    clock.step()
    number += 1
    if number % 10 == 0:
        for network in networks.values():
            network.eval()
        with torch.no_grad():
            generated(next(small).repeat(2, 1), None)
