"""Wasserstein GAN with gradient penalty: five steps of the critic for each of the generator."""

import argparse
import os
import time

import numpy as np
import torch
import torch.autograd as autograd
import torch.nn as nn
import torch.optim as optim

parser = argparse.ArgumentParser()
parser.add_argument('--data', default='data')
parser.add_argument('--out', default='tmp/wgan')
parser.add_argument('--images', type=int, default=50000)
parser.add_argument('--size', type=int, default=64, help='width of an image')
parser.add_argument('--dim', type=int, default=128, help='model dimensionality')
parser.add_argument('--latent', type=int, default=128)
parser.add_argument('--batch-size', type=int, default=64)
parser.add_argument('--critic-iters', type=int, default=5)
parser.add_argument('--lambda-gp', type=float, default=10)
parser.add_argument('--iters', type=int, default=200000, help='generator iterations')
parser.add_argument('--workers', type=int, default=2)
parser.add_argument('--print-every', type=int, default=10)
parser.add_argument('--dev-every', type=int, default=100)
parser.add_argument('--save-every', type=int, default=1000)
parser.add_argument('--resume', default='')
args = parser.parse_args()

use_cuda = torch.cuda.is_available()
device = torch.device('cuda' if use_cuda else 'cpu')
torch.manual_seed(1)
os.makedirs(args.out, exist_ok=True)
os.makedirs(args.data, exist_ok=True)


class Squares(torch.utils.data.Dataset):
    def __init__(self, count, seed):
        path = os.path.join(args.data, f'squares_{args.size}.npy')
        if not os.path.exists(path):
            np.save(path, np.random.default_rng(7).integers(0, 256, (200, 3, args.size, args.size), dtype=np.uint8))
        self.images = np.load(path, mmap_mode='r')
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        return torch.from_numpy(self.images[i % len(self.images)] / np.float32(127.5) - 1), i % 10


class Generator(nn.Module):
    def __init__(self, dim, size):
        super().__init__()
        self.start = size // 8
        self.dim = dim
        self.preprocess = nn.Sequential(
            nn.Linear(args.latent, self.start ** 2 * 4 * dim), nn.BatchNorm1d(self.start ** 2 * 4 * dim), nn.ReLU(True))
        self.block1 = nn.Sequential(nn.ConvTranspose2d(4 * dim, 2 * dim, 2, stride=2), nn.BatchNorm2d(2 * dim), nn.ReLU(True))
        self.block2 = nn.Sequential(nn.ConvTranspose2d(2 * dim, dim, 2, stride=2), nn.BatchNorm2d(dim), nn.ReLU(True))
        self.deconv_out = nn.ConvTranspose2d(dim, 3, 2, stride=2)

    def forward(self, z):
        h = self.preprocess(z).view(-1, 4 * self.dim, self.start, self.start)
        return torch.tanh(self.deconv_out(self.block2(self.block1(h))))


class Discriminator(nn.Module):
    def __init__(self, dim, size):
        super().__init__()
        self.main = nn.Sequential(
            nn.Conv2d(3, dim, 3, 2, padding=1), nn.LeakyReLU(),
            nn.Conv2d(dim, 2 * dim, 3, 2, padding=1), nn.LeakyReLU(),
            nn.Conv2d(2 * dim, 4 * dim, 3, 2, padding=1), nn.LeakyReLU())
        self.linear = nn.Linear((size // 8) ** 2 * 4 * dim, 1)

    def forward(self, x):
        return self.linear(self.main(x).flatten(1))


netG, netD = Generator(args.dim, args.size).to(device), Discriminator(args.dim, args.size).to(device)
print(netG)
print(netD)
optimizerD = optim.Adam(netD.parameters(), lr=1e-4, betas=(0.5, 0.9))
optimizerG = optim.Adam(netG.parameters(), lr=1e-4, betas=(0.5, 0.9))
if args.resume:
    state = torch.load(args.resume, map_location=device)
    netG.load_state_dict(state['G'])
    netD.load_state_dict(state['D'])


def calc_gradient_penalty(netD, real_data, fake_data):
    alpha = torch.rand(real_data.size(0), 1, 1, 1, device=device)
    interpolates = (alpha * real_data + (1 - alpha) * fake_data).requires_grad_(True)
    disc_interpolates = netD(interpolates)
    gradients = autograd.grad(outputs=disc_interpolates, inputs=interpolates,
                              grad_outputs=torch.ones_like(disc_interpolates),
                              create_graph=True, retain_graph=True, only_inputs=True)[0]
    return ((gradients.flatten(1).norm(2, dim=1) - 1) ** 2).mean() * args.lambda_gp


train_loader = torch.utils.data.DataLoader(Squares(args.images, 0), args.batch_size, shuffle=True, drop_last=True,
                                           num_workers=args.workers, pin_memory=use_cuda)
dev_loader = torch.utils.data.DataLoader(Squares(max(args.images // 100, 8), 1), args.batch_size)
fixed_noise = torch.randn(16, args.latent, device=device)


def inf_train_gen():
    while True:
        for images, _ in train_loader:
            yield images


gen = inf_train_gen()
start_time = time.time()
for iteration in range(args.iters):
    # (1) update the critic
    for p in netD.parameters():
        p.requires_grad = True
    for _ in range(args.critic_iters):
        real_data = next(gen).to(device, non_blocking=True)
        netD.zero_grad()
        D_real = netD(real_data).mean()
        D_real.backward(torch.tensor(-1.0, device=device))
        noise = torch.randn(args.batch_size, args.latent, device=device)
        with torch.no_grad():
            fake = netG(noise)
        D_fake = netD(fake).mean()
        D_fake.backward()
        gradient_penalty = calc_gradient_penalty(netD, real_data, fake)
        gradient_penalty.backward()
        D_cost = D_fake - D_real + gradient_penalty
        Wasserstein_D = D_real - D_fake
        optimizerD.step()

    # (2) update the generator
    for p in netD.parameters():
        p.requires_grad = False # to avoid computation
    netG.zero_grad()
    G_cost = -netD(netG(torch.randn(args.batch_size, args.latent, device=device))).mean()
    G_cost.backward()
    optimizerG.step()

    if iteration % args.print_every == 0:
        print(f'iter {iteration}\ttrain disc cost {D_cost.item():.4f}\ttrain gen cost {G_cost.item():.4f}'
              f'\twasserstein distance {Wasserstein_D.item():.4f}\tmem {torch.cuda.max_memory_allocated() / 2**20:.0f}MiB')
    if iteration % args.dev_every == args.dev_every - 1:
        dev_costs = []
        with torch.no_grad():
            for images, _ in dev_loader:
                dev_costs.append(-netD(images.to(device)).mean().item())
            samples = netG(fixed_noise)
        np.save(os.path.join(args.out, f'samples_{iteration}.npy'), samples.cpu().numpy())
        print(f'\tdev disc cost {np.mean(dev_costs):.4f}\ttime {(time.time() - start_time) / (iteration + 1):.3f}')
    if iteration % args.save_every == args.save_every - 1:
        torch.save({'G': netG.state_dict(), 'D': netD.state_dict()}, os.path.join(args.out, 'latest.pt'))
        print('saved')
