"""Trains a diffusion transformer with adaLN-Zero on pre-extracted latents."""

import argparse
import logging
import math
import os
from collections import OrderedDict
from copy import deepcopy
from glob import glob
from time import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

# the first flag below was False when training in fp32, True gives a good speedup
torch.backends.cuda.matmul.allow_tf32 = True
torch.backends.cudnn.allow_tf32 = True


@torch.no_grad()
def update_ema(ema_model, model, decay=0.9999):
    ema_params = OrderedDict(ema_model.named_parameters())
    model_params = OrderedDict(model.named_parameters())
    for name, param in model_params.items():
        ema_params[name].mul_(decay).add_(param.data, alpha=1 - decay)


def requires_grad(model, flag=True):
    for p in model.parameters():
        p.requires_grad = flag


def create_logger(logging_dir):
    logging.basicConfig(level=logging.INFO, format='[%(asctime)s] %(message)s', datefmt='%Y-%m-%d %H:%M:%S',
                        handlers=[logging.StreamHandler(os.sys.stdout), logging.FileHandler(f'{logging_dir}/log.txt')])
    return logging.getLogger(__name__)


def modulate(x, shift, scale):
    return x * (1 + scale.unsqueeze(1)) + shift.unsqueeze(1)


class TimestepEmbedder(nn.Module):
    def __init__(self, hidden_size, size=256):
        super().__init__()
        self.mlp = nn.Sequential(nn.Linear(size, hidden_size), nn.SiLU(), nn.Linear(hidden_size, hidden_size))
        self.size = size

    def forward(self, t):
        half = self.size // 2
        freqs = torch.exp(-math.log(10000) * torch.arange(half, dtype=torch.float32, device=t.device) / half)
        args = t[:, None].float() * freqs[None]
        return self.mlp(torch.cat([torch.cos(args), torch.sin(args)], dim=-1))


class LabelEmbedder(nn.Module):
    def __init__(self, num_classes, hidden_size, dropout_prob):
        super().__init__()
        self.embedding_table = nn.Embedding(num_classes + 1, hidden_size)
        self.num_classes, self.dropout_prob = num_classes, dropout_prob

    def forward(self, labels, train):
        if train and self.dropout_prob > 0:
            drop = torch.rand(labels.shape[0], device=labels.device) < self.dropout_prob
            labels = torch.where(drop, self.num_classes, labels)
        return self.embedding_table(labels)


class Attention(nn.Module):
    def __init__(self, dim, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.qkv, self.proj = nn.Linear(dim, dim * 3), nn.Linear(dim, dim)

    def forward(self, x):
        B, N, C = x.shape
        q, k, v = self.qkv(x).reshape(B, N, 3, self.num_heads, C // self.num_heads).permute(2, 0, 3, 1, 4).unbind(0)
        return self.proj(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(B, N, C))


class DiTBlock(nn.Module):
    def __init__(self, hidden_size, num_heads, mlp_ratio=4):
        super().__init__()
        self.norm1 = nn.LayerNorm(hidden_size, elementwise_affine=False, eps=1e-6)
        self.attn = Attention(hidden_size, num_heads)
        self.norm2 = nn.LayerNorm(hidden_size, elementwise_affine=False, eps=1e-6)
        inner = int(hidden_size * mlp_ratio)
        self.mlp = nn.Sequential(nn.Linear(hidden_size, inner), nn.GELU(approximate='tanh'), nn.Linear(inner, hidden_size))
        self.adaLN_modulation = nn.Sequential(nn.SiLU(), nn.Linear(hidden_size, 6 * hidden_size))
        nn.init.zeros_(self.adaLN_modulation[-1].weight)
        nn.init.zeros_(self.adaLN_modulation[-1].bias)

    def forward(self, x, c):
        shift1, scale1, gate1, shift2, scale2, gate2 = self.adaLN_modulation(c).chunk(6, dim=1)
        x = x + gate1.unsqueeze(1) * self.attn(modulate(self.norm1(x), shift1, scale1))
        return x + gate2.unsqueeze(1) * self.mlp(modulate(self.norm2(x), shift2, scale2))


class DiT(nn.Module):
    def __init__(self, input_size, patch_size, hidden_size, depth, num_heads, num_classes, in_channels=4):
        super().__init__()
        self.out_channels = in_channels * 2
        self.patch_size = patch_size
        self.side = input_size // patch_size
        self.x_embedder = nn.Conv2d(in_channels, hidden_size, patch_size, stride=patch_size)
        self.t_embedder = TimestepEmbedder(hidden_size)
        self.y_embedder = LabelEmbedder(num_classes, hidden_size, 0.1)
        self.pos_embed = nn.Parameter(torch.randn(1, self.side ** 2, hidden_size) * 0.02, requires_grad=False)
        self.blocks = nn.ModuleList([DiTBlock(hidden_size, num_heads) for _ in range(depth)])
        self.final_norm = nn.LayerNorm(hidden_size, elementwise_affine=False, eps=1e-6)
        self.final_ada = nn.Sequential(nn.SiLU(), nn.Linear(hidden_size, 2 * hidden_size))
        self.final = nn.Linear(hidden_size, patch_size * patch_size * self.out_channels)

    def unpatchify(self, x):
        p, n = self.patch_size, self.side
        x = x.reshape(x.shape[0], n, n, p, p, self.out_channels)
        return torch.einsum('nhwpqc->nchpwq', x).reshape(x.shape[0], self.out_channels, n * p, n * p)

    def forward(self, x, t, y):
        x = self.x_embedder(x).flatten(2).transpose(1, 2) + self.pos_embed
        c = self.t_embedder(t) + self.y_embedder(y, self.training)
        for block in self.blocks:
            x = block(x, c)
        shift, scale = self.final_ada(c).chunk(2, dim=1)
        return self.unpatchify(self.final(modulate(self.final_norm(x), shift, scale)))


MODELS = {  # depth, hidden size, heads
    'DiT-XL/2': (28, 1152, 16), 'DiT-L/2': (24, 1024, 16), 'DiT-B/2': (12, 768, 12), 'DiT-S/2': (12, 384, 6),
    'DiT-XS/2': (2, 48, 2),
}


class LatentDataset(Dataset):
    """Features and labels, one file of each; made of noise where there is none yet."""

    def __init__(self, path, size, count, num_classes):
        os.makedirs(path, exist_ok=True)
        file = os.path.join(path, f'latents_{size}.npy')
        if not os.path.exists(file):
            np.save(file, np.random.default_rng(0).standard_normal((128, 4, size, size), dtype=np.float32))
        self.features = np.load(file, mmap_mode='r')
        self.labels = np.random.default_rng(1).integers(num_classes, size=count)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, idx):
        return torch.from_numpy(self.features[idx % len(self.features)].copy()), torch.tensor(self.labels[idx])


def training_losses(model, x, t, y, alphas_cumprod):
    noise = torch.randn_like(x)
    a = alphas_cumprod[t].view(-1, 1, 1, 1)
    out, var = model(a.sqrt() * x + (1 - a).sqrt() * noise, t, y).chunk(2, dim=1)
    return ((out - noise) ** 2).mean(dim=(1, 2, 3)) + 1e-3 * (var ** 2).mean(dim=(1, 2, 3))


def main(args):
    device = 'cuda' if torch.cuda.is_available() else 'cpu'
    torch.manual_seed(args.global_seed)
    os.makedirs(args.results_dir, exist_ok=True)
    experiment_dir = f"{args.results_dir}/{len(glob(f'{args.results_dir}/*')):03d}-{args.model.replace('/', '-')}"
    checkpoint_dir = f'{experiment_dir}/checkpoints'
    os.makedirs(checkpoint_dir, exist_ok=True)
    logger = create_logger(experiment_dir)
    logger.info(f'Experiment directory created at {experiment_dir}')

    latent_size = args.image_size // 8
    depth, hidden, heads = MODELS[args.model]
    model = DiT(latent_size, 2, hidden, depth, heads, args.num_classes)
    ema = deepcopy(model).to(device)
    requires_grad(ema, False)
    model = model.to(device)
    if args.compile:
        model = torch.compile(model)
    alphas_cumprod = torch.cumprod(1 - torch.linspace(1e-4, 0.02, 1000, device=device), 0)
    logger.info(f'DiT Parameters: {sum(p.numel() for p in model.parameters()):,}')
    opt = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0)

    dataset = LatentDataset(args.feature_path, latent_size, args.num_samples, args.num_classes)
    loader = DataLoader(dataset, batch_size=args.global_batch_size, shuffle=True, num_workers=args.num_workers,
                        pin_memory=torch.cuda.is_available(), drop_last=True)
    logger.info(f'Dataset contains {len(dataset):,} latents ({args.feature_path})')

    train_steps = log_steps = running_loss = 0
    if args.ckpt:
        state = torch.load(args.ckpt, map_location=device, weights_only=False)
        model.load_state_dict(state['model'])
        ema.load_state_dict(state['ema'])
        opt.load_state_dict(state['opt'])
    update_ema(ema, model, decay=0)
    model.train()
    ema.eval()
    start_time = time()

    logger.info(f'Training for {args.epochs} epochs...')
    for epoch in range(args.epochs):
        logger.info(f'Beginning epoch {epoch}...')
        for x, y in loader:
            x, y = x.to(device), y.to(device)
            t = torch.randint(0, 1000, (x.shape[0],), device=device)
            with torch.autocast(device_type=device, dtype=torch.bfloat16, enabled=args.mixed_precision):
                loss = training_losses(model, x, t, y, alphas_cumprod).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
            update_ema(ema, model)

            running_loss += loss.item()
            log_steps += 1
            train_steps += 1
            if train_steps % args.log_every == 0:
                if torch.cuda.is_available():
                    torch.cuda.synchronize()
                steps_per_sec = log_steps / (time() - start_time)
                logger.info(f'(step={train_steps:07d}) Train Loss: {running_loss / log_steps:.4f}, '
                            f'Train Steps/Sec: {steps_per_sec:.2f}, '
                            f'Mem: {torch.cuda.max_memory_allocated() / 2**20:.0f}MiB')
                running_loss = log_steps = 0
                start_time = time()
            if train_steps % args.ckpt_every == 0:
                checkpoint = {'model': model.state_dict(), 'ema': ema.state_dict(), 'opt': opt.state_dict(), 'args': args}
                checkpoint_path = f'{checkpoint_dir}/{train_steps:07d}.pt'
                torch.save(checkpoint, checkpoint_path)
                logger.info(f'Saved checkpoint to {checkpoint_path}')
    model.eval()
    logger.info('Done!')


if __name__ == '__main__':
    parser = argparse.ArgumentParser()
    parser.add_argument('--feature-path', type=str, default='data/features')
    parser.add_argument('--num-samples', type=int, default=50000)
    parser.add_argument('--results-dir', type=str, default='results')
    parser.add_argument('--model', type=str, choices=list(MODELS), default='DiT-XL/2')
    parser.add_argument('--image-size', type=int, default=256)
    parser.add_argument('--num-classes', type=int, default=1000)
    parser.add_argument('--epochs', type=int, default=1400)
    parser.add_argument('--global-batch-size', type=int, default=256)
    parser.add_argument('--global-seed', type=int, default=0)
    parser.add_argument('--num-workers', type=int, default=4)
    parser.add_argument('--log-every', type=int, default=100)
    parser.add_argument('--ckpt-every', type=int, default=50_000)
    parser.add_argument('--ckpt', type=str, default=None)
    parser.add_argument('--mixed-precision', action='store_true')
    parser.add_argument('--compile', action='store_true')
    main(parser.parse_args())
