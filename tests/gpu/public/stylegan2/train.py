import argparse
import math
import os
import random

import numpy as np
import torch
from torch import autograd, optim
from torch.nn import functional as F
from torch.utils import data

from model import Discriminator, Generator


class ImageArray(data.Dataset):
    """An array of images on disk; noise where there is none."""

    def __init__(self, path, size, length):
        os.makedirs(path, exist_ok=True)
        file = os.path.join(path, f'{size}.npy')
        if not os.path.exists(file):
            np.save(file, np.random.default_rng(0).integers(0, 256, (64, 3, size, size), dtype=np.uint8))
        self.images, self.length = np.load(file, mmap_mode='r'), length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        image = torch.from_numpy(self.images[index % len(self.images)].copy()).float() / 127.5 - 1
        return image.flip(-1) if random.random() < 0.5 else image


def requires_grad(model, flag=True):
    for p in model.parameters():
        p.requires_grad = flag


def accumulate(model1, model2, decay=0.999):
    par1 = dict(model1.named_parameters())
    par2 = dict(model2.named_parameters())
    for k in par1:
        par1[k].data.mul_(decay).add_(par2[k].data, alpha=1 - decay)


def sample_data(loader):
    while True:
        for batch in loader:
            yield batch


def d_logistic_loss(real_pred, fake_pred):
    return F.softplus(-real_pred).mean() + F.softplus(fake_pred).mean()


def d_r1_loss(real_pred, real_img):
    grad_real, = autograd.grad(outputs=real_pred.sum(), inputs=real_img, create_graph=True)
    return grad_real.pow(2).reshape(grad_real.shape[0], -1).sum(1).mean()


def g_nonsaturating_loss(fake_pred):
    return F.softplus(-fake_pred).mean()


def g_path_regularize(fake_img, latents, mean_path_length, decay=0.01):
    noise = torch.randn_like(fake_img) / math.sqrt(fake_img.shape[2] * fake_img.shape[3])
    grad, = autograd.grad(outputs=(fake_img * noise).sum(), inputs=latents, create_graph=True)
    path_lengths = torch.sqrt(grad.pow(2).sum(2).mean(1))
    path_mean = mean_path_length + decay * (path_lengths.mean() - mean_path_length)
    return (path_lengths - path_mean).pow(2).mean(), path_mean.detach(), path_lengths


def mixing_noise(batch, latent_dim, prob, device):
    count = 2 if prob > 0 and random.random() < prob else 1
    return list(torch.randn(count, batch, latent_dim, device=device).unbind(0))


def train(args, loader, generator, discriminator, g_optim, d_optim, g_ema, device):
    loader = sample_data(loader)
    mean_path_length = torch.zeros((), device=device)
    r1_loss = path_loss = torch.zeros((), device=device)
    sample_z = torch.randn(args.n_sample, args.latent, device=device)

    for i in range(args.start_iter, args.iter):
        real_img = next(loader).to(device)

        requires_grad(generator, False)
        requires_grad(discriminator, True)
        fake_img, _ = generator(mixing_noise(args.batch, args.latent, args.mixing, device))
        d_loss = d_logistic_loss(discriminator(real_img), discriminator(fake_img))
        discriminator.zero_grad()
        d_loss.backward()
        d_optim.step()

        if i % args.d_reg_every == 0:
            real_img.requires_grad = True
            real_pred = discriminator(real_img)
            r1_loss = d_r1_loss(real_pred, real_img)
            discriminator.zero_grad()
            (args.r1 / 2 * r1_loss * args.d_reg_every + 0 * real_pred[0]).backward()
            d_optim.step()

        requires_grad(generator, True)
        requires_grad(discriminator, False)
        fake_img, _ = generator(mixing_noise(args.batch, args.latent, args.mixing, device))
        g_loss = g_nonsaturating_loss(discriminator(fake_img))
        generator.zero_grad()
        g_loss.backward()
        g_optim.step()

        if i % args.g_reg_every == 0:
            path_batch = max(1, args.batch // args.path_batch_shrink)
            noise = mixing_noise(path_batch, args.latent, args.mixing, device)
            fake_img, latents = generator(noise, return_latents=True)
            path_loss, mean_path_length, path_lengths = g_path_regularize(fake_img, latents, mean_path_length)
            generator.zero_grad()
            weighted = args.path_regularize * args.g_reg_every * path_loss
            (weighted + 0 * fake_img[0, 0, 0, 0]).backward()
            g_optim.step()

        accumulate(g_ema, generator, 0.5 ** (32 / (10 * 1000)))

        if i % args.log_every == 0:
            print(f'[{i:06d}/{args.iter}] d: {d_loss.item():.4f}; g: {g_loss.item():.4f}; r1: {r1_loss.item():.4f}; '
                  f'path: {path_loss.item():.4f}; mean path: {mean_path_length.item():.4f}; '
                  f'mem: {torch.cuda.max_memory_allocated() / 2**20:.0f}MiB')
        if i % args.sample_every == 0:
            with torch.no_grad():
                g_ema.eval()
                sample, _ = g_ema([sample_z])
                os.makedirs('sample', exist_ok=True)
                np.save(f'sample/{i:06d}.npy', sample.cpu().numpy())
                print(f'sampled {i:06d}')
        if i % args.save_every == 0 and i:
            os.makedirs('checkpoint', exist_ok=True)
            torch.save({'g': generator.state_dict(), 'd': discriminator.state_dict(), 'g_ema': g_ema.state_dict(),
                        'g_optim': g_optim.state_dict(), 'd_optim': d_optim.state_dict(), 'args': args},
                       f'checkpoint/{i:06d}.pt')
            print(f'saved {i:06d}')


if __name__ == '__main__':
    device = 'cuda' if torch.cuda.is_available() else 'cpu'
    parser = argparse.ArgumentParser(description='StyleGAN2 trainer')
    parser.add_argument('--path', default='data/images')
    parser.add_argument('--images', type=int, default=20000)
    parser.add_argument('--iter', type=int, default=800000)
    parser.add_argument('--batch', type=int, default=16)
    parser.add_argument('--n_sample', type=int, default=16)
    parser.add_argument('--size', type=int, default=256)
    parser.add_argument('--latent', type=int, default=512)
    parser.add_argument('--n_mlp', type=int, default=8)
    parser.add_argument('--channel_base', type=int, default=32768)
    parser.add_argument('--channel_max', type=int, default=512)
    parser.add_argument('--r1', type=float, default=10)
    parser.add_argument('--path_regularize', type=float, default=2)
    parser.add_argument('--path_batch_shrink', type=int, default=2)
    parser.add_argument('--d_reg_every', type=int, default=16)
    parser.add_argument('--g_reg_every', type=int, default=4)
    parser.add_argument('--mixing', type=float, default=0.9)
    parser.add_argument('--ckpt', type=str, default=None)
    parser.add_argument('--lr', type=float, default=0.002)
    parser.add_argument('--workers', type=int, default=4)
    parser.add_argument('--log_every', type=int, default=16)
    parser.add_argument('--sample_every', type=int, default=100)
    parser.add_argument('--save_every', type=int, default=10000)
    args = parser.parse_args()
    args.start_iter = 0

    sizes = dict(base=args.channel_base, most=args.channel_max)
    generator = Generator(args.size, args.latent, args.n_mlp, **sizes).to(device)
    discriminator = Discriminator(args.size, **sizes).to(device)
    g_ema = Generator(args.size, args.latent, args.n_mlp, **sizes).to(device)
    g_ema.eval()
    accumulate(g_ema, generator, 0)

    g_reg_ratio = args.g_reg_every / (args.g_reg_every + 1)
    d_reg_ratio = args.d_reg_every / (args.d_reg_every + 1)
    g_optim = optim.Adam(generator.parameters(), lr=args.lr * g_reg_ratio, betas=(0.0, 0.99 ** g_reg_ratio))
    d_optim = optim.Adam(discriminator.parameters(), lr=args.lr * d_reg_ratio, betas=(0.0, 0.99 ** d_reg_ratio))
    if args.ckpt is not None:
        print('load model:', args.ckpt)
        ckpt = torch.load(args.ckpt, map_location=device, weights_only=False)
        args.start_iter = int(os.path.splitext(os.path.basename(args.ckpt))[0])
        generator.load_state_dict(ckpt['g'])
        discriminator.load_state_dict(ckpt['d'])
        g_ema.load_state_dict(ckpt['g_ema'])
        g_optim.load_state_dict(ckpt['g_optim'])
        d_optim.load_state_dict(ckpt['d_optim'])

    dataset = ImageArray(args.path, args.size, args.images)
    loader = data.DataLoader(dataset, batch_size=args.batch, sampler=data.RandomSampler(dataset), drop_last=True,
                             num_workers=args.workers, pin_memory=torch.cuda.is_available())
    train(args, loader, generator, discriminator, g_optim, d_optim, g_ema, device)
