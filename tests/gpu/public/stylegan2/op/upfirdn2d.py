"""Upsample by zeros, pad, filter, downsample, in plain PyTorch."""

import torch
from torch.nn import functional as F


def upfirdn2d(x, kernel, up=1, down=1, pad=(0, 0)):
    batch, channel, height, width = x.shape
    out = x.reshape(batch * channel, 1, height, 1, width, 1)
    out = F.pad(out, [0, up - 1, 0, 0, 0, up - 1])
    out = out.reshape(batch * channel, 1, height * up, width * up)
    out = F.pad(out, [pad[0], pad[1], pad[0], pad[1]])
    out = F.conv2d(out, torch.flip(kernel, [0, 1])[None, None].to(out.dtype))
    out = out[:, :, ::down, ::down]
    return out.reshape(batch, channel, out.shape[2], out.shape[3])
