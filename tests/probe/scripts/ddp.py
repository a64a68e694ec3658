"""Data-parallel training on two processes, the second one slower: started by torchrun.

`ddp.py CLOCK spawn` starts its processes by itself, says nothing of ranks in the environment, and
wraps its optimizer in another.
"""

import os
import sys

import own_clock
import torch
from torch.distributed import barrier, destroy_process_group, init_process_group
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel


def train(rank, clock, zero):
    torch.set_num_threads(1)
    model = DistributedDataParallel(torch.nn.Linear(32, 16))
    if zero:
        optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam)
    else:
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    data = torch.utils.data.TensorDataset(torch.ones(4000, 32))
    sampler = torch.utils.data.DistributedSampler(data)
    try:
        while True:
            for (inputs,) in torch.utils.data.DataLoader(data, batch_size=5, sampler=sampler):
                own_clock.work(2 if rank else 1)
                model(inputs).square().mean().backward()
                optimizer.step()
                optimizer.zero_grad()
                clock.step()
    finally:
        clock.write()
        barrier()
        destroy_process_group()
        with open(f"left.{rank}", "w") as file:
            file.write("cleanly")


def spawned(rank, path, store):
    init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    train(rank, own_clock.OwnClock(f"{path}.{rank}"), zero=True)


if __name__ == "__main__":
    if sys.argv[2:] == ["spawn"]:
        torch.multiprocessing.spawn(spawned, (sys.argv[1], os.path.abspath("store")), nprocs=2)
    else:
        init_process_group("gloo")
        rank = torch.distributed.get_rank()
        train(rank, own_clock.OwnClock(f"{sys.argv[1]}.{rank}"), zero=False)
