import own_clock
import own_optimizer
import torch


def run():
    torch.set_num_threads(1)
    clock = own_clock.OwnClock()
    weight = torch.nn.Parameter(torch.ones(10))
    optimizer = own_optimizer.PlainSGD([weight], lr=1e-3)
    while True:
        own_clock.work()
        weight.square().sum().backward()
        optimizer.step()
        clock.step()
