"""A plain loop over a DataLoader: plain.py CLOCK [workers] [start method] [steps]."""

import sys

import own_clock
import torch

torch.set_num_threads(1)


class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 640

    def __getitem__(self, index):
        return torch.full((32,), float(index)), torch.zeros(16)


def main(optimize):
    clock = own_clock.OwnClock()
    workers = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    method = sys.argv[3] if workers else None
    steps = int(sys.argv[4]) if len(sys.argv) > 4 else 10**9
    model = torch.nn.Linear(32, 16)
    optimizer = optimize(model.parameters())
    loader = torch.utils.data.DataLoader(
        Numbers(),
        batch_size=8,
        num_workers=workers,
        multiprocessing_context=method,
        persistent_workers=workers > 0,
    )
    done = 0
    while done < steps:
        for inputs, targets in loader:
            own_clock.work()
            loss = torch.nn.functional.mse_loss(model(inputs), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            clock.step()
            done += 1
            if done == steps:
                return


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=1e-6, momentum=0.9)


if __name__ == "__main__":
    main(sgd)
    print("trained to the end")
