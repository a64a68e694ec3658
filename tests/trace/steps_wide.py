"""Small steps, each with one thing that real training code does. See test_wide.py."""

from __future__ import annotations

import contextlib
import copy
import io
from collections.abc import Callable

import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn
from torch.nn.utils import clip_grad_norm_, parametrizations, parametrize, rnn
from torch.utils.checkpoint import checkpoint, checkpoint_sequential
from torch.utils.data import DataLoader, TensorDataset

Step = Callable[[], object]
N = 64
"""Rows and columns of most matrices here: 64 * 64 * 4 bytes = 16 KiB, a multiple of 512."""


def _square() -> nn.Linear:
    return nn.Linear(N, N, bias=False)


def _with(optimizer_of: Callable[..., torch.optim.Optimizer], **options: object) -> Callable:
    def build(batch_size: int) -> Step:
        model, x = _square(), torch.randn(batch_size, N)
        optimizer = optimizer_of(model.parameters(), **options)

        def step() -> None:
            model(x).sum().backward()
            optimizer.step()
            optimizer.zero_grad()

        return step

    build.__module__ = __name__
    return build


def _simple(model: nn.Module, loss: Callable[[], torch.Tensor]) -> Step:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step() -> None:
        loss().backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


# Optimizers

sgd = _with(torch.optim.SGD, lr=0.1)
sgd_momentum = _with(torch.optim.SGD, lr=0.1, momentum=0.9)
sgd_fused = _with(torch.optim.SGD, lr=0.1, momentum=0.9, fused=True)
adam_loop = _with(torch.optim.Adam, foreach=False)
adam_foreach = _with(torch.optim.Adam, foreach=True)
adam_fused = _with(torch.optim.AdamW, fused=True)
adam_capturable = _with(torch.optim.AdamW, capturable=True)
amsgrad = _with(torch.optim.Adam, amsgrad=True)
adafactor = _with(torch.optim.Adafactor)
rmsprop = _with(torch.optim.RMSprop)
adagrad = _with(torch.optim.Adagrad)
adadelta = _with(torch.optim.Adadelta)
nadam = _with(torch.optim.NAdam)
radam = _with(torch.optim.RAdam)


class _Lion(torch.optim.Optimizer):
    def __init__(self, params: object, lr: float = 1e-4) -> None:
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self, closure: object = None) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if not state:
                    state["momentum"] = torch.zeros_like(p)
                update = state["momentum"].mul(0.9).add(p.grad, alpha=0.1).sign_()
                p.add_(update, alpha=-group["lr"])
                state["momentum"].mul_(0.99).add_(p.grad, alpha=0.01)


lion = _with(_Lion)
muon = _with(torch.optim.Muon, lr=0.02)


def lbfgs(batch_size: int) -> Step:
    """An optimizer that calls the model itself."""
    model, x = _square(), torch.randn(batch_size, N)
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=2, history_size=3)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        return loss

    return lambda: optimizer.step(closure)


def sparse_adam(batch_size: int) -> Step:
    """Sparse gradients of an embedding."""
    table = nn.Embedding(1000, 16, sparse=True)
    ids = torch.randint(1000, (batch_size, 4))
    optimizer = torch.optim.SparseAdam(table.parameters())

    def step() -> None:
        table(ids).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


# Precision


def fp16_unscaled_and_clipped(batch_size: int) -> Step:
    """GradScaler with unscale_ and clipping."""
    model, x = _square(), torch.randn(batch_size, N)
    optimizer, scaler = torch.optim.Adam(model.parameters()), torch.amp.GradScaler("cuda")

    def step() -> None:
        with torch.autocast("cuda", torch.float16):
            loss = model(x).float().sum()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()

    return step


def pure_bf16(batch_size: int) -> Step:
    """Weights, states and data in 16 bits."""
    model, x = _square().bfloat16(), torch.randn(batch_size, N, dtype=torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters())

    def step() -> None:
        model(x).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def tf32(batch_size: int) -> Step:
    """Matrix products on TF32 units."""
    model, x = _square(), torch.randn(batch_size, N)

    def step() -> None:
        torch.backends.cuda.matmul.allow_tf32 = True
        model(x).sum().backward()
        torch.backends.cuda.matmul.allow_tf32 = False
        model.zero_grad()

    return step


# How steps are put together


def accumulated(batch_size: int) -> Step:
    """Four micro-batches a step."""
    model, x = _square(), torch.randn(4, batch_size, N)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step() -> None:
        for part in x:
            (model(part).sum() / 4).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)

    return step


def _deep() -> nn.Sequential:
    return nn.Sequential(*(nn.Sequential(_square(), nn.ReLU()) for _ in range(4)))


def checkpointed(batch_size: int) -> Step:
    """Each of four blocks computed again in backward."""
    model, x = _deep(), torch.randn(batch_size, N, requires_grad=True)

    def loss() -> torch.Tensor:
        h = x
        for block in model:
            h = checkpoint(block, h, use_reentrant=False)
        return h.sum()

    return _simple(model, loss)


def checkpointed_reentrant(batch_size: int) -> Step:
    """The same, the older way."""
    model, x = _deep(), torch.randn(batch_size, N, requires_grad=True)

    def loss() -> torch.Tensor:
        h = x
        for block in model:
            h = checkpoint(block, h, use_reentrant=True)
        return h.sum()

    return _simple(model, loss)


def checkpointed_in_two(batch_size: int) -> Step:
    """`checkpoint_sequential`: the last segment is kept."""
    model, x = _deep(), torch.randn(batch_size, N, requires_grad=True)
    return _simple(model, lambda: checkpoint_sequential(model, 2, x, use_reentrant=False).sum())


def data_on_the_host(batch_size: int) -> Step:
    """A loader with workers, pinned memory and copies in the step; the loss is logged."""
    with torch.device("cpu"):
        data = TensorDataset(torch.randn(2 * batch_size, N), torch.zeros(2 * batch_size))
    loader = DataLoader(data, batch_size, num_workers=2, pin_memory=True, shuffle=True)
    model = _square().cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)
    torch.manual_seed(0)
    log: list[float] = []

    def step() -> None:
        for x, y in loader:
            x, y = x.to("cuda", non_blocking=True), y.cuda(non_blocking=True)
            loss = (model(x).sum(1) - y).square().mean()
            if torch.isnan(loss):
                raise FloatingPointError("not a number")
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            log.append(loss.item())
            print(f"loss {loss.item():.3f} of {torch.cuda.max_memory_allocated()}")  # noqa: T201
            break
        schedule.step()
        torch.cuda.empty_cache()
        torch.cuda.memory_summary()

    return step


def saves_itself(batch_size: int) -> Step:
    """Writes a checkpoint while it is built."""
    model, x = _square(), torch.randn(batch_size, N)
    torch.save(model.state_dict(), io.BytesIO())
    return _simple(model, lambda: model(x).sum())


def averaged_weights(batch_size: int) -> Step:
    """An exponential average of the weights."""
    model, x = _square(), torch.randn(batch_size, N)
    mean = torch.optim.swa_utils.AveragedModel(
        model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.99)
    )
    train = _simple(model, lambda: model(x).sum())

    def step() -> None:
        train()
        mean.update_parameters(model)

    return step


def adapters(batch_size: int) -> Step:
    """Low-rank adapters on a frozen matrix."""
    base, down, up = _square(), nn.Linear(N, 4, bias=False), nn.Linear(4, N, bias=False)
    base.requires_grad_(False)
    x = torch.randn(batch_size, N)
    optimizer = torch.optim.AdamW([*down.parameters(), *up.parameters()])

    def step() -> None:
        (base(x) + up(down(x))).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def teacher(batch_size: int) -> Step:
    """A teacher's forward without gradients, then the student's."""
    big, small = nn.Linear(N, 4 * N, bias=False), nn.Linear(N, 4 * N, bias=False)
    x = torch.randn(batch_size, N)
    train = _simple(small, lambda: F.mse_loss(small(x), targets[0]))
    targets: list[torch.Tensor] = []

    def step() -> None:
        with torch.no_grad():
            targets[:] = [big(x)]
        train()

    return step


def gradient_penalty(batch_size: int) -> Step:
    """A gradient of a gradient."""
    model, x = _square(), torch.randn(batch_size, N)

    def loss() -> torch.Tensor:
        points = x.detach().requires_grad_()
        (grad,) = torch.autograd.grad(model(points).sum(), points, create_graph=True)
        return (grad.norm(dim=1) - 1).square().mean()

    return _simple(model, loss)


def critic_then_generator(batch_size: int) -> Step:
    """A fake batch made without gradients after the first backward pass."""
    generator, critic = _square(), _square()
    noise, real = torch.randn(batch_size, N), torch.randn(batch_size, N)
    train_generator = _simple(generator, lambda: critic(generator(noise)).mean())
    train_critic = _simple(critic, lambda: (critic(made[0]) - critic(real)).mean())
    made: list[torch.Tensor] = []

    def step() -> None:
        train_generator()
        critic.zero_grad()
        with torch.no_grad():
            made[:] = [generator(noise)]
        train_critic()

    return step


def asks_questions(batch_size: int) -> Step:
    """Checks and settings as scripts have them."""
    torch.backends.cudnn.benchmark = True
    model, x = _square(), torch.randn(batch_size, N)
    drawn = torch.Generator(device="cuda").manual_seed(0)

    def loss() -> torch.Tensor:
        state = torch.cuda.get_rng_state()
        torch.cuda.set_rng_state(state)
        with torch.cuda.device(0), torch.random.fork_rng(devices=[0]):
            y = model(x + torch.randn(batch_size, N, generator=drawn, device="cuda"))
        total = y.sum()
        assert torch.isfinite(total)
        assert not torch.isnan(y).any()
        assert not torch.isinf(y).any()
        return total

    return _simple(model, loss)


def updates_in_backward(batch_size: int) -> Step:
    """The optimizer runs in a hook while the backward pass does."""
    model, x = _square(), torch.randn(batch_size, N)
    optimizer = torch.optim.Adam(model.parameters())

    def update(_parameter: torch.Tensor) -> None:
        optimizer.step()
        optimizer.zero_grad()

    model.weight.register_post_accumulate_grad_hook(update)
    return lambda: model(x).sum().backward()


def evaluates_after(batch_size: int) -> Step:
    """A forward without gradients after the update."""
    model, x = _square(), torch.randn(batch_size, N)
    train = _simple(model, lambda: model(x).sum())

    def step() -> None:
        train()
        with torch.no_grad():
            model(x)

    return step


# Layers


def conv1d(batch_size: int) -> Step:
    """A convolution over time."""
    model, x = nn.Conv1d(4, 8, 3, padding=1), torch.randn(batch_size, 4, 32)
    return _simple(model, lambda: model(x).sum())


def conv3d(batch_size: int) -> Step:
    """A convolution over a volume."""
    model, x = nn.Conv3d(2, 4, 3), torch.randn(batch_size, 2, 8, 8, 8)
    return _simple(model, lambda: model(x).sum())


def conv_transposed(batch_size: int) -> Step:
    """A transposed convolution."""
    model, x = nn.ConvTranspose2d(4, 8, 2, stride=2), torch.randn(batch_size, 4, 8, 8)
    return _simple(model, lambda: model(x).sum())


def gru_packed(batch_size: int) -> Step:
    """Sequences of different lengths, packed, both ways."""
    model = nn.GRU(16, 32, bidirectional=True, batch_first=True)
    x = torch.randn(batch_size, 10, 16)
    lengths = [10, *([5] * (batch_size - 1))]

    def loss() -> torch.Tensor:
        packed = rnn.pack_padded_sequence(x, lengths, batch_first=True)
        return rnn.pad_packed_sequence(model(packed)[0], batch_first=True)[0].sum()

    return _simple(model, loss)


def lstm_projected(batch_size: int) -> Step:
    """An LSTM with projections."""
    model, x = nn.LSTM(16, 32, proj_size=8), torch.randn(10, batch_size, 16)
    return _simple(model, lambda: model(x)[0].sum())


def rnn_plain(batch_size: int) -> Step:
    """The simplest recurrent layer."""
    model, x = nn.RNN(16, 32), torch.randn(10, batch_size, 16)
    return _simple(model, lambda: model(x)[0].sum())


def bags(batch_size: int) -> Step:
    """Embedding bags: sum, mean and max."""
    model = nn.ModuleList(nn.EmbeddingBag(50, 16, mode=mode) for mode in ("sum", "mean", "max"))
    ids = torch.randint(50, (batch_size, 6))
    return _simple(model, lambda: sum(bag(ids).sum() for bag in model))


def multihead(batch_size: int) -> Step:
    """nn.MultiheadAttention with a float mask."""
    model, x = nn.MultiheadAttention(32, 4, batch_first=True), torch.randn(batch_size, 10, 32)
    mask = nn.Transformer.generate_square_subsequent_mask(10)
    return _simple(model, lambda: model(x, x, x, attn_mask=mask, need_weights=False)[0].sum())


def whole_transformer(batch_size: int) -> Step:
    """nn.Transformer."""
    model = nn.Transformer(32, 4, 1, 1, 64, batch_first=True)
    x, y = torch.randn(batch_size, 10, 32), torch.randn(batch_size, 6, 32)
    return _simple(model, lambda: model(x, y).sum())


def encoder_evaluated(batch_size: int) -> Step:
    """The encoder layer's fast path, which runs without gradients only."""
    layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True).eval()
    head, x = nn.Linear(32, 1), torch.randn(batch_size, 10, 32)

    def loss() -> torch.Tensor:
        with torch.no_grad():
            features = layer(x)
        return head(features).sum()

    return _simple(head, loss)


def grouped_heads(batch_size: int) -> Step:
    """Attention with shared key heads and a bool mask of keys."""
    q = torch.randn(batch_size, 8, 16, 16, requires_grad=True)
    k = torch.randn(batch_size, 2, 16, 16, requires_grad=True)
    visible = torch.ones(batch_size, 1, 16, 16, dtype=torch.bool)
    return lambda: (
        F.scaled_dot_product_attention(q, k, k, attn_mask=visible, enable_gqa=True).sum().backward()
    )


def normalised_weights(batch_size: int) -> Step:
    """Weight norm, spectral norm and a parametrization of one's own."""

    class Symmetric(nn.Module):
        def forward(self, w: torch.Tensor) -> torch.Tensor:
            return w.triu() + w.triu(1).transpose(-1, -2)

    model = nn.Sequential(
        parametrizations.weight_norm(_square()),
        parametrizations.spectral_norm(_square()),
        _square(),
    )
    parametrize.register_parametrization(model[2], "weight", Symmetric())
    x = torch.randn(batch_size, N)
    return _simple(model, lambda: model(x).sum())


def per_sample_gradients(batch_size: int) -> Step:
    """torch.func: gradients of each sample by vmap."""
    model, x = _square(), torch.randn(batch_size, N)
    weights = dict(model.named_parameters())

    def loss(weights: dict[str, torch.Tensor], row: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(model, weights, (row[None],)).sum()

    each = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0))
    return lambda: each(weights, x)


class _Twice(torch.autograd.Function):
    @staticmethod
    def forward(_ctx: object, x: torch.Tensor) -> torch.Tensor:
        return 2 * x

    @staticmethod
    def backward(_ctx: object, grad: torch.Tensor) -> torch.Tensor:
        return 2 * grad


def own_function(batch_size: int) -> Step:
    """An autograd.Function, and forward hooks."""
    model, x = _square(), torch.randn(batch_size, N)
    model.register_forward_hook(lambda _module, _args, out: _Twice.apply(out))
    return _simple(model, lambda: model(x).sum())


def spectra(batch_size: int) -> Step:
    """Complex numbers and Fourier transforms."""
    filter_ = nn.Parameter(torch.randn(33, dtype=torch.complex64))
    x = torch.randn(batch_size, N)
    optimizer = torch.optim.Adam([filter_])

    def step() -> None:
        torch.fft.irfft(torch.fft.rfft(x) * filter_).square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def linear_algebra(batch_size: int) -> Step:
    """einsum, and parts of torch.linalg."""
    weight = nn.Parameter(torch.randn(8, 8))
    x = torch.randn(batch_size, 8, 8)

    def step() -> None:
        spd = torch.einsum("bij,jk,blk->bil", x, weight, x) + 100 * torch.eye(8, device="cuda")
        root = torch.linalg.cholesky(spd)
        solved = torch.linalg.solve(spd, x)
        values = torch.linalg.eigvalsh(spd)
        singular = torch.linalg.svdvals(spd)
        q, r = torch.linalg.qr(spd)
        total = root.sum() + solved.sum() + values.sum() + singular.sum() + torch.det(spd).sum()
        (total + q.sum() + r.sum() + torch.linalg.inv(spd).sum()).backward()
        weight.grad = None

    return step


def channels_last_stack(batch_size: int) -> Step:
    """Convolutions with everything that may stand between them, in channels last."""

    class Stack(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one = nn.Sequential(nn.Conv2d(8, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU())
            self.two = nn.Sequential(
                nn.MaxPool2d(2), nn.Conv2d(16, 16, 3, padding=1, groups=16), nn.BatchNorm2d(16)
            )
            self.three = nn.Sequential(nn.SiLU(), nn.Conv2d(16, 16, 1), nn.Dropout2d(0.1))
            self.four = nn.Sequential(
                nn.Upsample(scale_factor=2), nn.Conv2d(32, 8, 3, padding=1), nn.AvgPool2d(2)
            )
            self.five = nn.Sequential(nn.Conv2d(8, 8, 3, stride=2), nn.AdaptiveAvgPool2d(1))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.two(self.one(x))
            x = torch.cat([x + self.three(x), x], 1)
            x = F.interpolate(x, scale_factor=0.5, mode="bilinear")
            return self.five(F.pad(self.four(x), (1, 1, 1, 1))).flatten(1)

    model = Stack().to(memory_format=torch.channels_last)
    x = torch.randn(batch_size, 8, 32, 32).to(memory_format=torch.channels_last)
    return _simple(model, lambda: model(x).square().mean())


# Compilers and wrappers


def compiled(batch_size: int) -> Step:
    """torch.compile in all its forms."""
    model, x = nn.Sequential(_square(), _square(), _square()), torch.randn(batch_size, N)
    first = torch.compile(model[0])
    model[1].compile()

    @torch.compile(mode="max-autotune")
    def last(h: torch.Tensor) -> torch.Tensor:
        return model[2](h)

    return _simple(model, lambda: last(model[1](first(x))).sum())


@torch.jit.script
def _gated(x: torch.Tensor, gate: torch.Tensor) -> torch.Tensor:
    return x * torch.sigmoid(gate)


def scripted(batch_size: int) -> Step:
    """A scripted function."""
    model, x = _square(), torch.randn(batch_size, N)
    return _simple(model, lambda: _gated(model(x), x).sum())


def flex(batch_size: int) -> Step:
    """flex_attention."""
    from torch.nn.attention.flex_attention import flex_attention

    q = torch.randn(batch_size, 2, 128, 16, requires_grad=True)
    attend = torch.compile(flex_attention)
    return lambda: attend(q, q, q).sum().backward()


def streams(batch_size: int) -> Step:
    """Streams and events."""
    model, x = _square(), torch.randn(batch_size, N, device="cuda:0")
    side = torch.cuda.Stream()

    def loss() -> torch.Tensor:
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            y = model(x)
        torch.cuda.current_stream().wait_stream(side)
        y.record_stream(torch.cuda.current_stream())
        return y.sum()

    return _simple(model, loss)


def graphed(batch_size: int) -> Step:
    """A CUDA graph captured and replayed."""
    model, x = _square(), torch.randn(batch_size, N)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        model(x).sum().backward()
        optimizer.step()
    return graph.replay


def graphed_callable(batch_size: int) -> Step:
    """make_graphed_callables."""
    model, x = _square(), torch.randn(batch_size, N, requires_grad=True)
    model = torch.cuda.make_graphed_callables(model, (x,))
    return _simple(model, lambda: model(x).sum())


def distributed(batch_size: int) -> Step:
    """DistributedDataParallel."""
    torch.distributed.init_process_group(
        "nccl", rank=0, world_size=1, init_method="tcp://127.0.0.1:0"
    )
    model = nn.parallel.DistributedDataParallel(_square().cuda(), device_ids=[0])
    x = torch.randn(batch_size, N)
    train = _simple(model, lambda: model(x).sum())

    def step() -> None:
        with contextlib.nullcontext():
            train()
        torch.distributed.all_reduce(x)
        torch.distributed.barrier()

    return step


def fully_sharded(batch_size: int) -> Step:
    """FullyShardedDataParallel."""
    from torch.distributed.fsdp import FullyShardedDataParallel

    model, x = FullyShardedDataParallel(_square().cuda()), torch.randn(batch_size, N)
    return _simple(model, lambda: model(x).sum())


def fully_shard(batch_size: int) -> Step:
    """FSDP2."""
    from torch.distributed.fsdp import fully_shard as shard

    model, x = _square().cuda(), torch.randn(batch_size, N)
    shard(model)
    return _simple(model, lambda: model(x).sum())


def copied(batch_size: int) -> Step:
    """A deep copy of a model: a target network."""
    model, x = _square(), torch.randn(batch_size, N)
    target = copy.deepcopy(model).requires_grad_(False)
    return _simple(model, lambda: (model(x) - target(x)).square().mean())
