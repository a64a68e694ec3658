"""Generative image models, written out here so that they need torch alone."""

import torch
import torch.nn as nn
import torch.nn.functional as F

from common import train


class _Block(nn.Module):
    def __init__(self, cin, cout, tdim):
        super().__init__()
        self.n1, self.c1 = nn.GroupNorm(32, cin), nn.Conv2d(cin, cout, 3, padding=1)
        self.n2, self.c2 = nn.GroupNorm(32, cout), nn.Conv2d(cout, cout, 3, padding=1)
        self.t = nn.Linear(tdim, cout)
        self.skip = nn.Conv2d(cin, cout, 1) if cin != cout else nn.Identity()

    def forward(self, x, t):
        h = self.c1(F.silu(self.n1(x))) + self.t(F.silu(t))[:, :, None, None]
        return self.skip(x) + self.c2(F.silu(self.n2(h)))


class _UNet(nn.Module):
    """A DDPM-style U-Net without attention."""

    def __init__(self, ch=128, mults=(1, 2, 2, 4), depth=2):
        super().__init__()
        tdim = ch * 4
        self.time = nn.Sequential(nn.Linear(ch, tdim), nn.SiLU(), nn.Linear(tdim, tdim))
        self.register_buffer("freq", torch.exp(torch.linspace(0, -9, ch // 2)))
        self.inp = nn.Conv2d(3, ch, 3, padding=1)
        self.down, self.up, skips, c = nn.ModuleList(), nn.ModuleList(), [ch], ch
        for i, m in enumerate(mults):
            for _ in range(depth):
                self.down.append(_Block(c, ch * m, tdim))
                c = ch * m
                skips.append(c)
            if i < len(mults) - 1:
                self.down.append(nn.Conv2d(c, c, 3, stride=2, padding=1))
                skips.append(c)
        for i, m in reversed(list(enumerate(mults))):
            for _ in range(depth + 1):
                self.up.append(_Block(c + skips.pop(), ch * m, tdim))
                c = ch * m
            if i:
                self.up.append(
                    nn.Sequential(nn.Upsample(scale_factor=2), nn.Conv2d(c, c, 3, padding=1))
                )
        self.out = nn.Sequential(nn.GroupNorm(32, c), nn.SiLU(), nn.Conv2d(c, 3, 3, padding=1))

    def forward(self, x, t):
        freq = self.freq * t[:, None]
        t = self.time(torch.cat([freq.sin(), freq.cos()], 1))
        h = self.inp(x)
        hs = [h]
        for layer in self.down:
            h = layer(h, t) if isinstance(layer, _Block) else layer(h)
            hs.append(h)
        for layer in self.up:
            h = layer(torch.cat([h, hs.pop()], 1), t) if isinstance(layer, _Block) else layer(h)
        return self.out(h)


def _ddpm(batch_size, precision, size=128):
    model, x, t = _UNet(), torch.randn(batch_size, 3, size, size), torch.rand(batch_size) * 1000
    return train(model, lambda m: F.mse_loss(m(x, t).float(), x), precision=precision)


def ddpm_unet128_bf16amp(batch_size):
    return _ddpm(batch_size, "bf16-amp")


def ddpm_unet128_tf32(batch_size):
    return _ddpm(batch_size, "tf32")


def dcgan_fp32(batch_size, size=64, z=128, ch=64):
    """Two networks, two optimizers, two backward passes a step."""
    g, c = [nn.ConvTranspose2d(z, ch * 8, 4), nn.BatchNorm2d(ch * 8), nn.ReLU()], ch * 8
    while c > ch:
        g += [nn.ConvTranspose2d(c, c // 2, 4, 2, 1), nn.BatchNorm2d(c // 2), nn.ReLU()]
        c //= 2
    gen = nn.Sequential(*g, nn.ConvTranspose2d(c, 3, 4, 2, 1), nn.Tanh())
    d, c = [nn.Conv2d(3, ch, 4, 2, 1), nn.LeakyReLU(0.2)], ch
    while c < ch * 8:
        d += [nn.Conv2d(c, c * 2, 4, 2, 1), nn.BatchNorm2d(c * 2), nn.LeakyReLU(0.2)]
        c *= 2
    disc = nn.Sequential(*d, nn.Conv2d(c, 1, 4))
    og = torch.optim.Adam(gen.parameters(), 2e-4, betas=(0.5, 0.999))
    od = torch.optim.Adam(disc.parameters(), 2e-4, betas=(0.5, 0.999))
    real, noise = torch.randn(batch_size, 3, size, size), torch.randn(batch_size, z, 1, 1)
    torch.backends.cudnn.allow_tf32 = False

    def step():
        fake = gen(noise)
        loss_d = F.softplus(-disc(real)).mean() + F.softplus(disc(fake.detach())).mean()
        od.zero_grad(set_to_none=True)
        loss_d.backward()
        od.step()
        loss_g = F.softplus(-disc(fake)).mean()
        og.zero_grad(set_to_none=True)
        loss_g.backward()
        og.step()

    return step
