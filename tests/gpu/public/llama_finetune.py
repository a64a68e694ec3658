"""Instruction tuning of a Llama-like model of one's own; full, or LoRA on the attention's projections."""

import argparse
import json
import math
import os
import random
import time

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, Dataset


class RMSNorm(nn.Module):
    def __init__(self, dim, eps=1e-5):
        super().__init__()
        self.eps, self.weight = eps, nn.Parameter(torch.ones(dim))

    def forward(self, x):
        h = x.float()
        return (h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + self.eps)).type_as(x) * self.weight


class LoRALinear(nn.Module):
    def __init__(self, base, r, alpha, dropout):
        super().__init__()
        self.base, self.scaling, self.dropout = base.requires_grad_(False), alpha / r, nn.Dropout(dropout)
        self.lora_A = nn.Linear(base.in_features, r, bias=False)
        self.lora_B = nn.Linear(r, base.out_features, bias=False)
        nn.init.kaiming_uniform_(self.lora_A.weight, a=math.sqrt(5))
        nn.init.zeros_(self.lora_B.weight)

    def forward(self, x):
        return self.base(x) + self.lora_B(self.lora_A(self.dropout(x))) * self.scaling


def rope(x, cos, sin):
    a, b = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-b, a), dim=-1) * sin


class Attention(nn.Module):
    def __init__(self, a):
        super().__init__()
        self.n_heads, self.n_kv_heads, self.head_dim = a.n_heads, a.n_kv_heads, a.dim // a.n_heads
        self.q_proj = nn.Linear(a.dim, a.n_heads * self.head_dim, bias=False)
        self.k_proj = nn.Linear(a.dim, a.n_kv_heads * self.head_dim, bias=False)
        self.v_proj = nn.Linear(a.dim, a.n_kv_heads * self.head_dim, bias=False)
        self.o_proj = nn.Linear(a.n_heads * self.head_dim, a.dim, bias=False)

    def forward(self, x, cos, sin):
        B, T, _ = x.shape
        q = self.q_proj(x).view(B, T, self.n_heads, self.head_dim).transpose(1, 2)
        k = self.k_proj(x).view(B, T, self.n_kv_heads, self.head_dim).transpose(1, 2)
        v = self.v_proj(x).view(B, T, self.n_kv_heads, self.head_dim).transpose(1, 2)
        q, k = rope(q, cos, sin), rope(k, cos, sin)
        repeats = self.n_heads // self.n_kv_heads
        k, v = k.repeat_interleave(repeats, dim=1), v.repeat_interleave(repeats, dim=1)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o_proj(y.transpose(1, 2).reshape(B, T, -1))


class MLP(nn.Module):
    def __init__(self, a):
        super().__init__()
        self.gate_proj, self.up_proj = nn.Linear(a.dim, a.ffn, bias=False), nn.Linear(a.dim, a.ffn, bias=False)
        self.down_proj = nn.Linear(a.ffn, a.dim, bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class DecoderLayer(nn.Module):
    def __init__(self, a):
        super().__init__()
        self.input_layernorm, self.self_attn = RMSNorm(a.dim), Attention(a)
        self.post_attention_layernorm, self.mlp = RMSNorm(a.dim), MLP(a)

    def forward(self, x, cos, sin):
        x = x + self.self_attn(self.input_layernorm(x), cos, sin)
        return x + self.mlp(self.post_attention_layernorm(x))


class Llama(nn.Module):
    def __init__(self, a):
        super().__init__()
        self.gradient_checkpointing = a.gradient_checkpointing
        self.embed_tokens = nn.Embedding(a.vocab_size, a.dim)
        self.layers = nn.ModuleList(DecoderLayer(a) for _ in range(a.n_layers))
        self.norm, self.lm_head = RMSNorm(a.dim), nn.Linear(a.dim, a.vocab_size, bias=False)
        half = a.dim // a.n_heads // 2
        inv_freq = 1.0 / (500000.0 ** (torch.arange(0, half).float() / half))
        freqs = torch.outer(torch.arange(a.max_length).float(), inv_freq)
        angles = torch.cat((freqs, freqs), dim=-1)
        self.register_buffer('cos', angles.cos(), persistent=False)
        self.register_buffer('sin', angles.sin(), persistent=False)
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02)

    def forward(self, input_ids, labels):
        T = input_ids.size(1)
        h = self.embed_tokens(input_ids)
        if self.gradient_checkpointing and self.training and not h.requires_grad:
            h.requires_grad_(True) # or checkpointed layers of a frozen model would have no gradient
        cos, sin = self.cos[:T].to(h.dtype), self.sin[:T].to(h.dtype)
        for layer in self.layers:
            if self.gradient_checkpointing and self.training:
                h = checkpoint(layer, h, cos, sin, use_reentrant=False)
            else:
                h = layer(h, cos, sin)
        logits = self.lm_head(self.norm(h)).float()
        return F.cross_entropy(logits[:, :-1].reshape(-1, logits.size(-1)), labels[:, 1:].reshape(-1), ignore_index=-100)


class Instructions(Dataset):
    def __init__(self, path, vocab_size, max_length, count):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        if not os.path.exists(path):
            rng = random.Random(0)
            rows = []
            for _ in range(200):
                prompt, answer = (rng.randrange(4, max(max_length // 2, 5)) for _ in range(2))
                rows.append({'prompt': [rng.randrange(3, vocab_size) for _ in range(prompt)],
                             'answer': [rng.randrange(3, vocab_size) for _ in range(answer)]})
            with open(path, 'w') as f:
                json.dump(rows, f)
        with open(path) as f:
            self.rows = json.load(f)
        self.max_length, self.count = max_length, count

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        row = self.rows[i % len(self.rows)]
        ids = ([1] + row['prompt'] + row['answer'] + [2])[:self.max_length]
        labels = ([-100] * (1 + len(row['prompt'])) + row['answer'] + [2])[:self.max_length]
        pad = self.max_length - len(ids)
        return {'input_ids': torch.tensor(ids + [0] * pad), 'labels': torch.tensor(labels + [-100] * pad)}


def add_lora(model, r, alpha, dropout):
    model.requires_grad_(False)
    for layer in model.layers:
        for name in ('q_proj', 'k_proj', 'v_proj', 'o_proj'):
            setattr(layer.self_attn, name, LoRALinear(getattr(layer.self_attn, name), r, alpha, dropout))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--data', default='data/instructions.json')
    parser.add_argument('--examples', type=int, default=52000)
    parser.add_argument('--output-dir', default='out/llama')
    parser.add_argument('--vocab-size', type=int, default=32000)
    parser.add_argument('--dim', type=int, default=2048)
    parser.add_argument('--ffn', type=int, default=5632)
    parser.add_argument('--n-layers', type=int, default=16)
    parser.add_argument('--n-heads', type=int, default=32)
    parser.add_argument('--n-kv-heads', type=int, default=8)
    parser.add_argument('--max-length', type=int, default=1024)
    parser.add_argument('--micro-batch-size', type=int, default=4)
    parser.add_argument('--gradient-accumulation-steps', type=int, default=8)
    parser.add_argument('--gradient-checkpointing', action='store_true')
    parser.add_argument('--lora', action='store_true')
    parser.add_argument('--lora-r', type=int, default=16)
    parser.add_argument('--lora-alpha', type=int, default=32)
    parser.add_argument('--lora-dropout', type=float, default=0.05)
    parser.add_argument('--dtype', default='bfloat16', choices=('bfloat16', 'float32'))
    parser.add_argument('--lr', type=float, default=2e-5)
    parser.add_argument('--epochs', type=int, default=3)
    parser.add_argument('--warmup-steps', type=int, default=20)
    parser.add_argument('--log-every', type=int, default=5)
    parser.add_argument('--eval-every', type=int, default=200)
    parser.add_argument('--save-every', type=int, default=500)
    parser.add_argument('--resume', default='')
    args = parser.parse_args()

    random.seed(42)
    torch.manual_seed(42)
    device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')
    torch.set_default_dtype(getattr(torch, args.dtype))
    with device:
        model = Llama(args)
    if args.lora:
        with device:
            add_lora(model, args.lora_r, args.lora_alpha, args.lora_dropout)
    torch.set_default_dtype(torch.float32)
    trainable = [p for p in model.parameters() if p.requires_grad]
    total = sum(p.numel() for p in model.parameters())
    print(f'trainable params: {sum(p.numel() for p in trainable):,} || all params: {total:,}')
    optimizer = torch.optim.AdamW(trainable, lr=args.lr, betas=(0.9, 0.95), weight_decay=0.0)

    train_set = Instructions(args.data, args.vocab_size, args.max_length, args.examples)
    val_set = Instructions(args.data, args.vocab_size, args.max_length, max(args.examples // 100, args.micro_batch_size))
    loader = DataLoader(train_set, batch_size=args.micro_batch_size, shuffle=True, drop_last=True, num_workers=2)
    val_loader = DataLoader(val_set, batch_size=args.micro_batch_size)
    steps_per_epoch = len(loader) // args.gradient_accumulation_steps
    max_steps = steps_per_epoch * args.epochs

    def schedule(step):
        if step < args.warmup_steps:
            return (step + 1) / args.warmup_steps
        return 0.5 * (1 + math.cos(math.pi * (step - args.warmup_steps) / max(1, max_steps - args.warmup_steps)))
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, schedule)
    if args.resume:
        state = torch.load(args.resume, map_location=device)
        model.load_state_dict(state['model'])
        optimizer.load_state_dict(state['optimizer'])

    model.train()
    step, t0 = 0, time.perf_counter()
    for epoch in range(args.epochs):
        running = 0.0
        for micro, batch in enumerate(loader):
            if micro >= steps_per_epoch * args.gradient_accumulation_steps:
                break # what does not make a whole step is left out
            loss = model(batch['input_ids'].to(device), batch['labels'].to(device)) / args.gradient_accumulation_steps
            loss.backward()
            running += loss.detach()
            if (micro + 1) % args.gradient_accumulation_steps:
                continue
            norm = torch.nn.utils.clip_grad_norm_(trainable, 1.0)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
            step += 1
            if step % args.log_every == 0:
                tokens = args.log_every * args.gradient_accumulation_steps * args.micro_batch_size * args.max_length
                print(f'epoch {epoch} step {step}/{max_steps} loss {float(running):.4f} grad norm {norm.item():.3f} '
                      f'tokens/s {tokens / (time.perf_counter() - t0):.0f} '
                      f'mem {torch.cuda.max_memory_allocated() / 2**20:.0f}MiB')
                t0 = time.perf_counter()
            running = 0.0
            if step % args.eval_every == 0:
                model.eval()
                with torch.no_grad():
                    losses = [model(b['input_ids'].to(device), b['labels'].to(device)).item() for b in val_loader]
                print(f'val loss {sum(losses) / len(losses):.4f}')
                model.train()
            if step % args.save_every == 0:
                os.makedirs(args.output_dir, exist_ok=True)
                kept = {k: v for k, v in model.state_dict().items() if not args.lora or 'lora_' in k}
                torch.save(kept, os.path.join(args.output_dir, f'step-{step}.pt'))
                print(f'saved step {step}')


if __name__ == '__main__':
    main()
