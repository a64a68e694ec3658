"""Denoising diffusion on images: U-Net, EMA, samples in eval mode every so often."""

import argparse
import copy
import math
import os

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.optim import Adam
from torch.utils.data import DataLoader, Dataset, Subset

device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')


class Blobs(Dataset):
    """Images of soft discs, drawn once."""

    def __init__(self, folder, size, count):
        os.makedirs(folder, exist_ok=True)
        path = os.path.join(folder, f'blobs_{size}_{count}.npy')
        if not os.path.exists(path):
            rng = np.random.default_rng(0)
            grid = np.stack(np.meshgrid(np.linspace(-1, 1, size), np.linspace(-1, 1, size)))
            images = np.empty((min(count, 256), 3, size, size), np.uint8)
            for image in images:
                centre, colour = rng.uniform(-0.6, 0.6, (2, 1, 1)), rng.uniform(60, 255, (3, 1, 1))
                image[:] = colour * np.exp(-8 * ((grid - centre) ** 2).sum(0))[None]
            np.save(path, images)
        self.images = np.load(path, mmap_mode='r')
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        image = torch.from_numpy(np.array(self.images[index % len(self.images)])).float() / 127.5 - 1
        return image.flip(-1) if torch.rand(()) < 0.5 else image


def cycle(dl):
    while True:
        for data in dl:
            yield data


class TimeEmbedding(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dim = dim
        self.mlp = nn.Sequential(nn.Linear(dim, dim * 4), nn.SiLU(), nn.Linear(dim * 4, dim * 4))

    def forward(self, t):
        half = self.dim // 2
        freqs = torch.exp(-math.log(10000) * torch.arange(half, device=t.device) / half)
        args = t[:, None].float() * freqs[None]
        return self.mlp(torch.cat([args.sin(), args.cos()], dim=-1))


class ResBlock(nn.Module):
    def __init__(self, cin, cout, temb, dropout=0.1):
        super().__init__()
        self.norm1, self.conv1 = nn.GroupNorm(8, cin), nn.Conv2d(cin, cout, 3, padding=1)
        self.temb = nn.Linear(temb, cout)
        self.norm2, self.conv2 = nn.GroupNorm(8, cout), nn.Conv2d(cout, cout, 3, padding=1)
        self.dropout = nn.Dropout(dropout)
        self.skip = nn.Conv2d(cin, cout, 1) if cin != cout else nn.Identity()

    def forward(self, x, t):
        h = self.conv1(F.silu(self.norm1(x))) + self.temb(F.silu(t))[:, :, None, None]
        return self.conv2(self.dropout(F.silu(self.norm2(h)))) + self.skip(x)


class AttnBlock(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.norm, self.qkv, self.out = nn.GroupNorm(8, c), nn.Conv2d(c, 3 * c, 1), nn.Conv2d(c, c, 1)

    def forward(self, x):
        b, c, h, w = x.shape
        q, k, v = self.qkv(self.norm(x)).reshape(b, 3, c, h * w).unbind(1)
        weights = torch.softmax(torch.einsum('bci,bcj->bij', q, k) * c ** -0.5, dim=-1)
        return x + self.out(torch.einsum('bij,bcj->bci', weights, v).reshape(b, c, h, w))


class Unet(nn.Module):
    def __init__(self, dim, dim_mults=(1, 2, 2, 4), channels=3):
        super().__init__()
        temb = dim * 4
        self.time = TimeEmbedding(dim)
        self.stem = nn.Conv2d(channels, dim, 3, padding=1)
        dims = [dim] + [dim * m for m in dim_mults]
        self.downs, self.ups = nn.ModuleList(), nn.ModuleList()
        for i, (a, b) in enumerate(zip(dims[:-1], dims[1:])):
            last = i == len(dim_mults) - 1
            self.downs.append(nn.ModuleList([
                ResBlock(a, b, temb), ResBlock(b, b, temb), AttnBlock(b) if i >= 2 else nn.Identity(),
                nn.Identity() if last else nn.Conv2d(b, b, 3, stride=2, padding=1)]))
        self.mid1, self.mid_attn, self.mid2 = ResBlock(b, b, temb), AttnBlock(b), ResBlock(b, b, temb)
        for i, (a, b) in reversed(list(enumerate(zip(dims[:-1], dims[1:])))):
            self.ups.append(nn.ModuleList([
                ResBlock(2 * b, b, temb), ResBlock(b, a, temb), AttnBlock(a) if i >= 2 else nn.Identity(),
                nn.Identity() if i == 0 else nn.Upsample(scale_factor=2, mode='nearest')]))
        self.head = nn.Sequential(nn.GroupNorm(8, dim), nn.SiLU(), nn.Conv2d(dim, channels, 3, padding=1))

    def forward(self, x, t):
        t = self.time(t)
        x = self.stem(x)
        hs = []
        for res1, res2, attn, down in self.downs:
            x = attn(res2(res1(x, t), t))
            hs.append(x)
            x = down(x)
        x = self.mid2(self.mid_attn(self.mid1(x, t)), t)
        for res1, res2, attn, up in self.ups:
            x = up(attn(res2(res1(torch.cat([x, hs.pop()], dim=1), t), t)))
        return self.head(x)


def extract(a, t, shape):
    return a.gather(-1, t).reshape(len(t), *((1,) * (len(shape) - 1)))


class GaussianDiffusion(nn.Module):
    def __init__(self, model, image_size, timesteps):
        super().__init__()
        self.model, self.image_size, self.num_timesteps = model, image_size, timesteps
        betas = torch.linspace(1e-4, 0.02, timesteps)
        alphas_cumprod = torch.cumprod(1 - betas, dim=0)
        self.register_buffer('betas', betas)
        self.register_buffer('alphas_cumprod', alphas_cumprod)
        self.register_buffer('sqrt_ac', alphas_cumprod.sqrt())
        self.register_buffer('sqrt_1mac', (1 - alphas_cumprod).sqrt())

    @torch.no_grad()
    def sample(self, batch_size, steps):
        x = torch.randn(batch_size, 3, self.image_size, self.image_size, device=self.betas.device)
        times = torch.linspace(self.num_timesteps - 1, 0, steps).long().tolist()
        for now, after in zip(times, times[1:] + [-1]):
            t = torch.full((batch_size,), now, device=x.device, dtype=torch.long)
            eps = self.model(x, t)
            x0 = ((x - self.sqrt_1mac[now] * eps) / self.sqrt_ac[now]).clamp(-1, 1)
            x = x0 if after < 0 else self.sqrt_ac[after] * x0 + self.sqrt_1mac[after] * eps
        return (x + 1) * 0.5

    def forward(self, x):
        t = torch.randint(0, self.num_timesteps, (x.shape[0],), device=x.device)
        noise = torch.randn_like(x)
        noisy = extract(self.sqrt_ac, t, x.shape) * x + extract(self.sqrt_1mac, t, x.shape) * noise
        return F.mse_loss(self.model(noisy, t), noise)


class EMA:
    def __init__(self, beta):
        self.beta = beta

    def update_model_average(self, ma_model, current_model):
        for current, average in zip(current_model.parameters(), ma_model.parameters()):
            average.data = average.data * self.beta + (1 - self.beta) * current.data


class Trainer:
    def __init__(self, diffusion, dataset, args):
        self.model, self.args = diffusion, args
        self.ema = EMA(0.995)
        self.ema_model = copy.deepcopy(diffusion)
        self.ds = dataset
        self.dl = cycle(DataLoader(self.ds, batch_size=args.batch_size, shuffle=True, num_workers=args.workers,
                                   pin_memory=torch.cuda.is_available(), drop_last=True))
        self.val_dl = DataLoader(Subset(self.ds, range(args.n_samples)), batch_size=args.n_samples)
        self.opt = Adam(diffusion.parameters(), lr=args.lr)
        self.scaler = torch.amp.GradScaler('cuda', enabled=args.fp16)
        self.step = 0
        os.makedirs(args.results, exist_ok=True)
        if args.resume:
            self.load(args.resume)

    def save(self, milestone):
        data = {'step': self.step, 'model': self.model.state_dict(), 'ema': self.ema_model.state_dict()}
        torch.save(data, os.path.join(self.args.results, f'model-{milestone}.pt'))

    def load(self, path):
        data = torch.load(path, map_location=device)
        self.step = data['step']
        self.model.load_state_dict(data['model'])
        self.ema_model.load_state_dict(data['ema'])

    def step_ema(self):
        if self.step < self.args.step_start_ema:
            self.ema_model.load_state_dict(self.model.state_dict())
        else:
            self.ema.update_model_average(self.ema_model, self.model)

    def train(self):
        args = self.args
        while self.step < args.train_num_steps:
            for _ in range(args.gradient_accumulate_every):
                data = next(self.dl).to(device, non_blocking=True)
                self.model.train()
                with torch.autocast(device.type, dtype=torch.float16 if args.fp16 else torch.bfloat16,
                                    enabled=args.fp16):
                    loss = self.model(data)
                self.scaler.scale(loss / args.gradient_accumulate_every).backward()
            if self.step % args.log_every == 0:
                mem = torch.cuda.max_memory_allocated() / 2**20
                print(f'{self.step}: {loss.item():.5f} (mem {mem:.0f}MiB)')
            self.scaler.step(self.opt)
            self.scaler.update()
            self.opt.zero_grad()
            if self.step % args.update_ema_every == 0:
                self.step_ema()
            if self.step != 0 and self.step % args.save_and_sample_every == 0:
                self.model.eval()
                self.ema_model.eval()
                with torch.no_grad():
                    val_loss = sum(self.model(data.to(device)).item() for data in self.val_dl) / len(self.val_dl)
                milestone = self.step // args.save_and_sample_every
                images = self.ema_model.sample(args.n_samples, args.sample_steps)
                np.save(os.path.join(args.results, f'sample-{milestone}.npy'), images.cpu().numpy())
                self.save(milestone)
                print(f'sampled milestone {milestone}, val loss {val_loss:.5f}')
            self.step += 1
        print('training completed')


if __name__ == '__main__':
    parser = argparse.ArgumentParser()
    parser.add_argument('--data', default='data')
    parser.add_argument('--results', default='results')
    parser.add_argument('--resume', default='')
    parser.add_argument('--image-size', type=int, default=64)
    parser.add_argument('--images', type=int, default=20000)
    parser.add_argument('--dim', type=int, default=64)
    parser.add_argument('--timesteps', type=int, default=1000)
    parser.add_argument('--batch-size', type=int, default=32)
    parser.add_argument('--workers', type=int, default=4)
    parser.add_argument('--lr', type=float, default=2e-5)
    parser.add_argument('--train-num-steps', type=int, default=100000)
    parser.add_argument('--gradient-accumulate-every', type=int, default=2)
    parser.add_argument('--update-ema-every', type=int, default=10)
    parser.add_argument('--step-start-ema', type=int, default=2000)
    parser.add_argument('--save-and-sample-every', type=int, default=1000)
    parser.add_argument('--n-samples', type=int, default=8)
    parser.add_argument('--sample-steps', type=int, default=50)
    parser.add_argument('--log-every', type=int, default=10)
    parser.add_argument('--fp16', action='store_true')
    args = parser.parse_args()

    torch.backends.cudnn.benchmark = True
    diffusion = GaussianDiffusion(Unet(args.dim), args.image_size, args.timesteps).to(device)
    Trainer(diffusion, Blobs(args.data, args.image_size, args.images), args).train()
