"""Generator with modulated convolutions and skip outputs, and a residual discriminator."""

import math
import random

import torch
from torch import nn
from torch.nn import functional as F

from op import FusedLeakyReLU, fused_leaky_relu, upfirdn2d


def make_kernel(k):
    k = torch.tensor(k, dtype=torch.float32)
    k = k[None, :] * k[:, None]
    return k / k.sum()


class PixelNorm(nn.Module):
    def forward(self, x):
        return x * torch.rsqrt(torch.mean(x ** 2, dim=1, keepdim=True) + 1e-8)


class Resample(nn.Module):
    def __init__(self, kernel, pad, up=1, down=1):
        super().__init__()
        self.register_buffer('kernel', make_kernel(kernel) * up ** 2)
        self.pad, self.up, self.down = pad, up, down

    def forward(self, x):
        return upfirdn2d(x, self.kernel, up=self.up, down=self.down, pad=self.pad)


class EqualConv2d(nn.Module):
    def __init__(self, in_channel, out_channel, kernel_size, stride=1, padding=0, bias=True):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(out_channel, in_channel, kernel_size, kernel_size))
        self.scale = 1 / math.sqrt(in_channel * kernel_size ** 2)
        self.stride, self.padding = stride, padding
        self.bias = nn.Parameter(torch.zeros(out_channel)) if bias else None

    def forward(self, x):
        return F.conv2d(x, self.weight * self.scale, bias=self.bias, stride=self.stride, padding=self.padding)


class EqualLinear(nn.Module):
    def __init__(self, in_dim, out_dim, bias_init=0.0, lr_mul=1.0, activation=None):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(out_dim, in_dim).div_(lr_mul))
        self.bias = nn.Parameter(torch.full((out_dim,), float(bias_init)))
        self.activation, self.lr_mul = activation, lr_mul
        self.scale = (1 / math.sqrt(in_dim)) * lr_mul

    def forward(self, x):
        if self.activation:
            return fused_leaky_relu(F.linear(x, self.weight * self.scale), self.bias * self.lr_mul)
        return F.linear(x, self.weight * self.scale, bias=self.bias * self.lr_mul)


class ModulatedConv2d(nn.Module):
    def __init__(self, in_channel, out_channel, kernel_size, style_dim, demodulate=True, upsample=False,
                 blur_kernel=(1, 3, 3, 1)):
        super().__init__()
        self.in_channel, self.out_channel, self.kernel_size = in_channel, out_channel, kernel_size
        self.upsample, self.demodulate = upsample, demodulate
        if upsample:
            p = (len(blur_kernel) - 2) - (kernel_size - 1)
            self.blur = Resample(blur_kernel, ((p + 1) // 2 + 1, p // 2 + 1))
            self.blur.kernel *= 4
        self.scale = 1 / math.sqrt(in_channel * kernel_size ** 2)
        self.padding = kernel_size // 2
        self.weight = nn.Parameter(torch.randn(1, out_channel, in_channel, kernel_size, kernel_size))
        self.modulation = EqualLinear(style_dim, in_channel, bias_init=1)

    def forward(self, x, style):
        batch, in_channel, height, width = x.shape
        style = self.modulation(style).view(batch, 1, in_channel, 1, 1)
        weight = self.scale * self.weight * style
        if self.demodulate:
            weight = weight * torch.rsqrt(weight.pow(2).sum([2, 3, 4]) + 1e-8).view(batch, self.out_channel, 1, 1, 1)
        x = x.reshape(1, batch * in_channel, height, width)
        k = self.kernel_size
        if self.upsample:
            weight = weight.transpose(1, 2).reshape(batch * in_channel, self.out_channel, k, k)
            out = F.conv_transpose2d(x, weight, padding=0, stride=2, groups=batch)
            return self.blur(out.view(batch, self.out_channel, out.shape[2], out.shape[3]))
        weight = weight.view(batch * self.out_channel, in_channel, k, k)
        out = F.conv2d(x, weight, padding=self.padding, groups=batch)
        return out.view(batch, self.out_channel, out.shape[2], out.shape[3])


class StyledConv(nn.Module):
    def __init__(self, in_channel, out_channel, style_dim, upsample=False):
        super().__init__()
        self.conv = ModulatedConv2d(in_channel, out_channel, 3, style_dim, upsample=upsample)
        self.noise_weight = nn.Parameter(torch.zeros(1))
        self.activate = FusedLeakyReLU(out_channel)

    def forward(self, x, style):
        out = self.conv(x, style)
        out = out + self.noise_weight * torch.randn_like(out[:, :1])
        return self.activate(out)


class ToRGB(nn.Module):
    def __init__(self, in_channel, style_dim, upsample=True, blur_kernel=(1, 3, 3, 1)):
        super().__init__()
        if upsample:
            p = len(blur_kernel) - 2
            self.upsample = Resample(blur_kernel, ((p + 1) // 2 + 1, p // 2), up=2)
        self.conv = ModulatedConv2d(in_channel, 3, 1, style_dim, demodulate=False)
        self.bias = nn.Parameter(torch.zeros(1, 3, 1, 1))

    def forward(self, x, style, skip=None):
        out = self.conv(x, style) + self.bias
        return out if skip is None else out + self.upsample(skip)


def channels_at(base, most, size):
    return {2 ** i: min(most, base // 2 ** i) for i in range(2, int(math.log2(size)) + 1)}


class Generator(nn.Module):
    def __init__(self, size, style_dim, n_mlp, base=32768, most=512):
        super().__init__()
        channels = channels_at(base, most, size)
        self.style = nn.Sequential(PixelNorm(), *(
            EqualLinear(style_dim, style_dim, lr_mul=0.01, activation='fused_lrelu') for _ in range(n_mlp)))
        self.input = nn.Parameter(torch.randn(1, channels[4], 4, 4))
        self.conv1 = StyledConv(channels[4], channels[4], style_dim)
        self.to_rgb1 = ToRGB(channels[4], style_dim, upsample=False)
        self.convs, self.to_rgbs = nn.ModuleList(), nn.ModuleList()
        width = channels[4]
        for i in range(3, int(math.log2(size)) + 1):
            out = channels[2 ** i]
            self.convs.extend([StyledConv(width, out, style_dim, upsample=True), StyledConv(out, out, style_dim)])
            self.to_rgbs.append(ToRGB(out, style_dim))
            width = out
        self.n_latent = int(math.log2(size)) * 2 - 2

    def forward(self, styles, return_latents=False):
        styles = [self.style(s) for s in styles]
        if len(styles) < 2:
            latent = styles[0].unsqueeze(1).repeat(1, self.n_latent, 1)
        else:
            at = random.randint(1, self.n_latent - 1)
            latent = torch.cat([styles[0].unsqueeze(1).repeat(1, at, 1),
                                styles[1].unsqueeze(1).repeat(1, self.n_latent - at, 1)], 1)
        out = self.conv1(self.input.repeat(latent.shape[0], 1, 1, 1), latent[:, 0])
        skip = self.to_rgb1(out, latent[:, 1])
        i = 1
        for conv1, conv2, to_rgb in zip(self.convs[::2], self.convs[1::2], self.to_rgbs):
            out = conv2(conv1(out, latent[:, i]), latent[:, i + 1])
            skip = to_rgb(out, latent[:, i + 2], skip)
            i += 2
        return skip, latent if return_latents else None


def conv_layer(in_channel, out_channel, kernel_size, downsample=False, activate=True, blur_kernel=(1, 3, 3, 1)):
    layers, stride, padding = [], 1, kernel_size // 2
    if downsample:
        p = (len(blur_kernel) - 2) + (kernel_size - 1)
        layers.append(Resample(blur_kernel, ((p + 1) // 2, p // 2)))
        stride, padding = 2, 0
    layers.append(EqualConv2d(in_channel, out_channel, kernel_size, stride, padding, bias=False))
    if activate:
        layers.append(FusedLeakyReLU(out_channel))
    return nn.Sequential(*layers)


class ResBlock(nn.Module):
    def __init__(self, in_channel, out_channel):
        super().__init__()
        self.conv1 = conv_layer(in_channel, in_channel, 3)
        self.conv2 = conv_layer(in_channel, out_channel, 3, downsample=True)
        self.skip = conv_layer(in_channel, out_channel, 1, downsample=True, activate=False)

    def forward(self, x):
        return (self.conv2(self.conv1(x)) + self.skip(x)) / math.sqrt(2)


class Discriminator(nn.Module):
    def __init__(self, size, base=32768, most=512):
        super().__init__()
        channels = channels_at(base, most, size)
        convs, width = [conv_layer(3, channels[size], 1)], channels[size]
        for i in range(int(math.log2(size)), 2, -1):
            convs.append(ResBlock(width, channels[2 ** (i - 1)]))
            width = channels[2 ** (i - 1)]
        self.convs = nn.Sequential(*convs)
        self.stddev_group = 4
        self.final_conv = conv_layer(width + 1, channels[4], 3)
        self.final_linear = nn.Sequential(
            EqualLinear(channels[4] * 16, channels[4], activation='fused_lrelu'), EqualLinear(channels[4], 1))

    def forward(self, x):
        out = self.convs(x)
        batch, channel, height, width = out.shape
        group = min(batch, self.stddev_group)
        stddev = out.view(group, -1, channel, height, width)
        stddev = torch.sqrt(stddev.var(0, unbiased=False) + 1e-8).mean([1, 2, 3], keepdim=True)
        out = torch.cat([out, stddev.repeat(group, 1, height, width)], 1)
        return self.final_linear(self.final_conv(out).view(batch, -1))
