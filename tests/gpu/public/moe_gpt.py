"""A language model with a mixture of experts in each layer: two of them for each token, one after the other."""

import argparse
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, IterableDataset


class RandomCrops(IterableDataset):
    def __init__(self, folder, vocab, block, seed):
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        self.path, self.block, self.seed = folder / f'moe_{vocab}.bin', block, seed
        if not self.path.exists():
            (np.cumsum(np.random.default_rng(5).zipf(1.5, 500_000)) % vocab).astype(np.uint16).tofile(self.path)

    def __iter__(self):
        info = torch.utils.data.get_worker_info()
        rng = np.random.default_rng(self.seed + (info.id if info else 0))
        data = np.memmap(self.path, dtype=np.uint16, mode='r')
        while True:
            i = rng.integers(len(data) - self.block - 1)
            chunk = torch.from_numpy(data[i:i + self.block + 1].astype(np.int64))
            yield chunk[:-1], chunk[1:]


class Expert(nn.Module):
    def __init__(self, dim, hidden):
        super().__init__()
        self.w1, self.w2, self.w3 = nn.Linear(dim, hidden, False), nn.Linear(hidden, dim, False), nn.Linear(dim, hidden, False)

    def forward(self, x):
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


class SparseMoe(nn.Module):
    def __init__(self, dim, hidden, num_experts, top_k):
        super().__init__()
        self.gate = nn.Linear(dim, num_experts, bias=False)
        self.experts = nn.ModuleList(Expert(dim, hidden) for _ in range(num_experts))
        self.num_experts, self.top_k = num_experts, top_k

    def forward(self, x):
        shape = x.shape
        x = x.view(-1, shape[-1])
        router_logits = self.gate(x)
        probs = F.softmax(router_logits, dim=1, dtype=torch.float)
        weights, selected = torch.topk(probs, self.top_k, dim=-1)
        weights = (weights / weights.sum(dim=-1, keepdim=True)).to(x.dtype)
        out = torch.zeros_like(x)
        expert_mask = F.one_hot(selected, num_classes=self.num_experts).permute(2, 1, 0)
        for i, expert in enumerate(self.experts):
            idx, top_x = torch.where(expert_mask[i])
            if top_x.shape[0] == 0:
                continue
            out.index_add_(0, top_x, (expert(x[top_x]) * weights[top_x, idx, None]).to(x.dtype))
        load = expert_mask.float().mean(dim=(1, 2)) * self.num_experts
        aux = (load * probs.mean(0)).sum()
        return out.view(shape), aux


class Layer(nn.Module):
    def __init__(self, a):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(a.dim), nn.LayerNorm(a.dim)
        self.qkv, self.proj, self.heads = nn.Linear(a.dim, 3 * a.dim, False), nn.Linear(a.dim, a.dim, False), a.heads
        self.moe = SparseMoe(a.dim, a.hidden, a.experts, a.top_k)

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = self.qkv(self.n1(x)).view(B, T, 3, self.heads, C // self.heads).permute(2, 0, 3, 1, 4)
        x = x + self.proj(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(B, T, C))
        h, aux = self.moe(self.n2(x))
        return x + h, aux


class MoeGPT(nn.Module):
    def __init__(self, a):
        super().__init__()
        self.tok, self.pos = nn.Embedding(a.vocab, a.dim), nn.Embedding(a.block, a.dim)
        self.layers = nn.ModuleList(Layer(a) for _ in range(a.layers))
        self.norm, self.head = nn.LayerNorm(a.dim), nn.Linear(a.dim, a.vocab, bias=False)
        self.apply(lambda m: nn.init.normal_(m.weight, std=0.02) if isinstance(m, (nn.Linear, nn.Embedding)) else None)

    def forward(self, x, y):
        h = self.tok(x) + self.pos(torch.arange(x.size(1), device=x.device))
        aux = 0.0
        for layer in self.layers:
            h, a = layer(h)
            aux = aux + a
        ce = F.cross_entropy(self.head(self.norm(h)).flatten(0, 1).float(), y.flatten())
        return ce + 0.01 * aux, ce


def main():
    p = argparse.ArgumentParser()
    p.add_argument('--data', default='data')
    p.add_argument('--out', default='out/moe')
    p.add_argument('--vocab', type=int, default=32000)
    p.add_argument('--block', type=int, default=1024)
    p.add_argument('--dim', type=int, default=768)
    p.add_argument('--hidden', type=int, default=2048)
    p.add_argument('--layers', type=int, default=8)
    p.add_argument('--heads', type=int, default=12)
    p.add_argument('--experts', type=int, default=8)
    p.add_argument('--top-k', type=int, default=2)
    p.add_argument('--batch-size', type=int, default=16)
    p.add_argument('--steps', type=int, default=100000)
    p.add_argument('--lr', type=float, default=3e-4)
    p.add_argument('--workers', type=int, default=2)
    p.add_argument('--log-every', type=int, default=10)
    p.add_argument('--eval-every', type=int, default=500)
    p.add_argument('--eval-batches', type=int, default=10)
    p.add_argument('--save-every', type=int, default=5000)
    p.add_argument('--resume', default='')
    a = p.parse_args()

    torch.set_float32_matmul_precision('high')
    torch.manual_seed(0)
    device = 'cuda' if torch.cuda.is_available() else 'cpu'
    model = MoeGPT(a).to(device)
    opt = torch.optim.AdamW(model.parameters(), lr=a.lr, betas=(0.9, 0.95), weight_decay=0.1)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, a.steps)
    step = 0
    if a.resume:
        state = torch.load(a.resume, map_location=device)
        model.load_state_dict(state['model'])
        step = state['step']
    train = iter(DataLoader(RandomCrops(a.data, a.vocab, a.block, 0), a.batch_size, num_workers=a.workers,
                            pin_memory=device == 'cuda'))
    val_loader = DataLoader(RandomCrops(a.data, a.vocab, a.block, 99), a.batch_size)
    t0 = time.perf_counter()
    while step < a.steps:
        x, y = (t.to(device, non_blocking=True) for t in next(train))
        with torch.autocast(device, dtype=torch.bfloat16, enabled=device == 'cuda'):
            loss, ce = model(x, y)
        loss.backward()
        grad_norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        sched.step()
        opt.zero_grad(set_to_none=True)
        step += 1
        if step % a.log_every == 0:
            ms = (time.perf_counter() - t0) / a.log_every * 1e3
            print(f'step {step} | loss {ce.item():.4f} | norm {grad_norm.item():.3f} | {ms:.1f} ms | '
                  f'mem {torch.cuda.max_memory_allocated() / 2**20:.0f}MiB', flush=True)
            t0 = time.perf_counter()
        if step % a.eval_every == 0:
            model.eval()
            with torch.no_grad(), torch.autocast(device, dtype=torch.bfloat16, enabled=device == 'cuda'):
                batches = zip(range(a.eval_batches), val_loader)
                losses = [model(*(t.to(device) for t in batch))[1].item() for _, batch in batches]
            print(f'eval {step} | loss {np.mean(losses):.4f}', flush=True)
            model.train()
            t0 = time.perf_counter()
        if step % a.save_every == 0:
            Path(a.out).mkdir(parents=True, exist_ok=True)
            torch.save({'model': model.state_dict(), 'step': step}, Path(a.out) / f'{step}.pt')
            print(f'saved {step}', flush=True)


if __name__ == '__main__':
    main()
