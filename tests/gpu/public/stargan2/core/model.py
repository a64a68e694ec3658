"""Generator with AdaIN, mapping network, style encoder and a discriminator with a branch for each domain."""

import copy
import math

import torch
import torch.nn as nn
import torch.nn.functional as F


class ResBlk(nn.Module):
    def __init__(self, dim_in, dim_out, normalize=False, downsample=False):
        super().__init__()
        self.downsample = downsample
        self.conv1, self.conv2 = nn.Conv2d(dim_in, dim_in, 3, 1, 1), nn.Conv2d(dim_in, dim_out, 3, 1, 1)
        self.norm1 = nn.InstanceNorm2d(dim_in, affine=True) if normalize else nn.Identity()
        self.norm2 = nn.InstanceNorm2d(dim_in, affine=True) if normalize else nn.Identity()
        self.skip = nn.Conv2d(dim_in, dim_out, 1, bias=False) if dim_in != dim_out else nn.Identity()

    def forward(self, x):
        h = self.conv1(F.leaky_relu(self.norm1(x), 0.2))
        s = self.skip(x)
        if self.downsample:
            h, s = F.avg_pool2d(h, 2), F.avg_pool2d(s, 2)
        return (s + self.conv2(F.leaky_relu(self.norm2(h), 0.2))) / math.sqrt(2)


class AdaIN(nn.Module):
    def __init__(self, style_dim, num_features):
        super().__init__()
        self.norm = nn.InstanceNorm2d(num_features, affine=False)
        self.fc = nn.Linear(style_dim, num_features * 2)

    def forward(self, x, s):
        gamma, beta = self.fc(s)[:, :, None, None].chunk(2, dim=1)
        return (1 + gamma) * self.norm(x) + beta


class AdainResBlk(nn.Module):
    def __init__(self, dim_in, dim_out, style_dim, upsample=False):
        super().__init__()
        self.upsample = upsample
        self.conv1, self.conv2 = nn.Conv2d(dim_in, dim_out, 3, 1, 1), nn.Conv2d(dim_out, dim_out, 3, 1, 1)
        self.norm1, self.norm2 = AdaIN(style_dim, dim_in), AdaIN(style_dim, dim_out)
        self.skip = nn.Conv2d(dim_in, dim_out, 1, bias=False) if dim_in != dim_out else nn.Identity()

    def forward(self, x, s):
        h = F.leaky_relu(self.norm1(x, s), 0.2)
        if self.upsample:
            h, x = F.interpolate(h, scale_factor=2), F.interpolate(x, scale_factor=2)
        h = self.conv2(F.leaky_relu(self.norm2(self.conv1(h), s), 0.2))
        return (self.skip(x) + h) / math.sqrt(2)


class Generator(nn.Module):
    def __init__(self, img_size, style_dim, dim_in, max_dim):
        super().__init__()
        self.from_rgb = nn.Conv2d(3, dim_in, 3, 1, 1)
        self.encode, self.decode = nn.ModuleList(), nn.ModuleList()
        self.to_rgb = nn.Sequential(nn.InstanceNorm2d(dim_in, affine=True), nn.LeakyReLU(0.2), nn.Conv2d(dim_in, 3, 1))
        for _ in range(int(math.log2(img_size)) - 4):
            dim_out = min(dim_in * 2, max_dim)
            self.encode.append(ResBlk(dim_in, dim_out, normalize=True, downsample=True))
            self.decode.insert(0, AdainResBlk(dim_out, dim_in, style_dim, upsample=True))
            dim_in = dim_out
        for _ in range(2):
            self.encode.append(ResBlk(dim_in, dim_in, normalize=True))
            self.decode.insert(0, AdainResBlk(dim_in, dim_in, style_dim))

    def forward(self, x, s):
        x = self.from_rgb(x)
        for block in self.encode:
            x = block(x)
        for block in self.decode:
            x = block(x, s)
        return self.to_rgb(x)


class MappingNetwork(nn.Module):
    def __init__(self, latent_dim, style_dim, num_domains, width):
        super().__init__()
        layers = [nn.Linear(latent_dim, width), nn.ReLU()]
        for _ in range(3):
            layers += [nn.Linear(width, width), nn.ReLU()]
        self.shared = nn.Sequential(*layers)
        self.unshared = nn.ModuleList(
            nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, style_dim)) for _ in range(num_domains))

    def forward(self, z, y):
        h = self.shared(z)
        out = torch.stack([layer(h) for layer in self.unshared], dim=1)
        return out[torch.arange(len(y), device=y.device), y]


class Branches(nn.Module):
    """The trunk that style encoder and discriminator have in common, with an output for each domain."""

    def __init__(self, img_size, out_dim, num_domains, dim_in, max_dim):
        super().__init__()
        blocks = [nn.Conv2d(3, dim_in, 3, 1, 1)]
        for _ in range(int(math.log2(img_size)) - 2):
            dim_out = min(dim_in * 2, max_dim)
            blocks.append(ResBlk(dim_in, dim_out, downsample=True))
            dim_in = dim_out
        blocks += [nn.LeakyReLU(0.2), nn.Conv2d(dim_in, dim_in, 4, 1, 0), nn.LeakyReLU(0.2)]
        self.shared = nn.Sequential(*blocks)
        self.unshared = nn.ModuleList(nn.Linear(dim_in, out_dim) for _ in range(num_domains))

    def forward(self, x, y):
        h = self.shared(x).flatten(1)
        out = torch.stack([layer(h) for layer in self.unshared], dim=1)
        return out[torch.arange(len(y), device=y.device), y].squeeze(-1)


def build_model(args):
    dim_in = args.dim_in or 2 ** 14 // args.img_size
    generator = Generator(args.img_size, args.style_dim, dim_in, args.max_dim)
    mapping_network = MappingNetwork(args.latent_dim, args.style_dim, args.num_domains, args.hidden_dim)
    style_encoder = Branches(args.img_size, args.style_dim, args.num_domains, dim_in, args.max_dim)
    discriminator = Branches(args.img_size, 1, args.num_domains, dim_in, args.max_dim)
    nets = dict(generator=generator, mapping_network=mapping_network,
                style_encoder=style_encoder, discriminator=discriminator)
    nets_ema = {name: copy.deepcopy(nets[name]) for name in ('generator', 'mapping_network', 'style_encoder')}
    return nets, nets_ema
