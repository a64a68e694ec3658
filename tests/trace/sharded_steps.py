"""A small transformer's training step, alone and spread over processes by PyTorch itself.

`step` and `step_bf16` follow outlay's TARGET contract. `measure` runs the same model in one of n
processes on CPU (gloo) and says what that process parts.
"""

import contextlib
import multiprocessing
import sys
import weakref
from concurrent.futures import ProcessPoolExecutor
from datetime import timedelta
from functools import partial

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.tensor import DTensor
from torch.nn.functional import cross_entropy, scaled_dot_product_attention
from torch.nn.parallel import DistributedDataParallel
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

BLOCKS, WIDTH, HEADS, WORDS, LENGTH = 6, 192, 4, 1024, 32


class Block(nn.Module):
    """Attention and two linear layers, each after a norm and with a scheme round."""

    def __init__(self):
        super().__init__()
        self.before, self.between = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attend, self.merge = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.widen, self.narrow = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        """Hand on what came in, changed."""
        parts = self.attend(self.before(x)).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        attended = scaled_dot_product_attention(*parts.unbind()).transpose(1, 2).flatten(2)
        x = x + self.merge(attended)
        return x + self.narrow(torch.relu(self.widen(self.between(x))))


class Model(nn.Module):
    """Words in, a score for each word out."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(WORDS, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(BLOCKS))
        self.head = nn.Linear(WIDTH, WORDS, bias=False)

    def forward(self, words):
        """Scores of the next word at every place."""
        x = self.embed(words)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def step(batch_size):
    """One step in fp32."""
    model = Model()
    return _step(model, _optimizer(model), batch_size)


def step_bf16(batch_size):
    """One step under bf16 autocast."""
    model = Model()
    autocast = partial(torch.autocast, torch.get_default_device().type, dtype=torch.bfloat16)
    return _step(model, _optimizer(model), batch_size, autocast)


def _optimizer(model):
    # foreach is what torch takes on GPUs; on CPU it has to be asked for.
    return torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=True)


def _step(model, optimizer, batch_size, autocast=contextlib.nullcontext):
    words = torch.randint(WORDS, (batch_size, LENGTH))

    def run(before_update=lambda: None):
        with autocast():
            loss = cross_entropy(model(words).flatten(0, 1).float(), words.flatten())
        loss.backward()
        before_update()
        optimizer.step()
        optimizer.zero_grad()

    return run


def _within_collective():
    callers = (sys._getframe(up).f_code.co_filename for up in range(2, 6))
    return dist.distributed_c10d.__file__ in callers


class Live(TorchDispatchMode):
    """Bytes of all storages alive, looked at after every operation.

    Storages and not an allocator's counts, and none of what collectives make within themselves:
    gloo copies what it sums, NCCL does not.
    FSDP frees and takes back storages by resizing them, so sizes are read anew each time.
    """

    def __init__(self):
        super().__init__()
        self.storages, self.watching, self.peak_bytes, self.peak_at = {}, False, 0, ""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if any(issubclass(kind, DTensor) for kind in types):
            return NotImplemented  # DTensor first: it calls again with what is local
        result = func(*args, **(kwargs or {}))
        if _within_collective():
            return result
        for leaf in tree_leaves((args, kwargs, result)):
            if isinstance(leaf, torch.Tensor):
                self._see(leaf.untyped_storage())
        if self.watching and (now := self.bytes) > self.peak_bytes:
            self.peak_bytes, self.peak_at = now, str(func)
        return result

    def _see(self, storage):
        key = storage._cdata
        if key not in self.storages:
            self.storages[key] = weakref.ref(storage, lambda _: self.storages.pop(key, None))

    @property
    def bytes(self):
        """All of them now."""
        alive = [ref() for ref in list(self.storages.values())]
        return sum(storage.nbytes() for storage in alive if storage is not None)


def _local_bytes(tensors):
    local = [t.to_local() if isinstance(t, DTensor) else t for t in tensors]
    return sum(t.numel() * t.element_size() for t in local)


def _spread(scheme, ranks):
    """The model and its optimizer, spread in one scheme."""
    model = Model()
    if scheme == "alone":
        return model, _optimizer(model)
    if scheme.startswith("fsdp"):
        mixed = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
        policy = mixed if scheme == "fsdp bf16" else MixedPrecisionPolicy()
        wrap = partial(fully_shard, mesh=init_device_mesh("cpu", (ranks,)), mp_policy=policy)
        for block in model.blocks:
            wrap(block)
        return wrap(model), _optimizer(model)
    model = DistributedDataParallel(model)
    if scheme == "ddp":
        return model, _optimizer(model)
    return model, ZeroRedundancyOptimizer(
        model.parameters(), torch.optim.AdamW, lr=1e-3, foreach=True
    )


def measure(scheme, ranks, batch_size):
    """What this process holds: parts at the end of backward, and the peak of a steady step."""
    parts = {}
    with Live() as live:
        model, optimizer = _spread(scheme, ranks)
        run = _step(model, optimizer, batch_size)

        def weigh():
            inner = getattr(optimizer, "optim", optimizer)  # what ZeRO keeps here
            state = [v for values in inner.state.values() for v in values.values()]
            parts["parameters"] = _local_bytes(model.parameters())
            parts["gradients"] = _local_bytes(p.grad for p in model.parameters())
            parts["state"] = _local_bytes(v for v in state if v.numel() > 1)

        run()
        run()
        # From the third on, steps are alike: DDP makes its buckets anew in the second.
        live.watching = True
        run(weigh)
    return {**parts, "peak": live.peak_bytes, "at": live.peak_at}


def process(rank, store, ranks, cases):
    """One process of several: what it measures in each case, `scheme@batch size`."""
    torch.set_num_threads(1)
    patience = timedelta(seconds=60)  # one that fails leaves the others waiting for it
    dist.init_process_group(
        "gloo", init_method=f"file://{store}", rank=rank, world_size=ranks, timeout=patience
    )
    results = {}
    for case in cases:
        scheme, size = case.split("@")
        results[case] = measure(scheme, ranks, int(size))
    dist.barrier()
    dist.destroy_process_group()
    return results


def measure_all(folder, cases_by_ranks):
    """By number of processes what each of them measured; forked, so that torch is loaded once."""
    results = {}
    for ranks, cases in cases_by_ranks.items():
        run = partial(process, store=f"{folder}/{ranks}", ranks=int(ranks), cases=cases)
        with ProcessPoolExecutor(int(ranks), multiprocessing.get_context("fork")) as pool:
            results[ranks] = list(pool.map(run, range(int(ranks))))
    return results
