"""A vector-quantized autoencoder; after a while a discriminator joins, whose weight follows the gradients."""

import argparse
import os

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset


class ImagePaths(Dataset):
    def __init__(self, root, size, count):
        os.makedirs(root, exist_ok=True)
        path = os.path.join(root, f'vq_{size}.npy')
        if not os.path.exists(path):
            np.save(path, np.random.default_rng(0).integers(0, 256, (48, 3, size, size), dtype=np.uint8))
        self.images, self.count = np.load(path, mmap_mode='r'), count

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        return torch.from_numpy(self.images[i % len(self.images)].copy()).float() / 127.5 - 1


class ResBlock(nn.Module):
    def __init__(self, cin, cout):
        super().__init__()
        self.block = nn.Sequential(nn.GroupNorm(4, cin), nn.SiLU(), nn.Conv2d(cin, cout, 3, 1, 1),
                                   nn.GroupNorm(4, cout), nn.SiLU(), nn.Conv2d(cout, cout, 3, 1, 1))
        self.up = nn.Conv2d(cin, cout, 1) if cin != cout else nn.Identity()

    def forward(self, x):
        return self.up(x) + self.block(x)


class VQGAN(nn.Module):
    def __init__(self, ch, latent, codes):
        super().__init__()
        widths = (ch, ch, 2 * ch, 4 * ch)
        encoder, decoder = [nn.Conv2d(3, ch, 3, 1, 1)], [nn.Conv2d(latent, 4 * ch, 3, 1, 1)]
        for a, b in zip(widths[:-1], widths[1:]):
            encoder += [ResBlock(a, b), ResBlock(b, b), nn.Conv2d(b, b, 3, 2, 1)]
        for b, a in zip(widths[:0:-1], widths[-2::-1]):
            decoder += [ResBlock(b, a), ResBlock(a, a), nn.Upsample(scale_factor=2), nn.Conv2d(a, a, 3, 1, 1)]
        self.encoder = nn.Sequential(*encoder, nn.Conv2d(4 * ch, latent, 3, 1, 1))
        self.decoder = nn.Sequential(*decoder, nn.GroupNorm(4, ch), nn.SiLU(), nn.Conv2d(ch, 3, 3, 1, 1))
        self.codebook = nn.Embedding(codes, latent)
        nn.init.uniform_(self.codebook.weight, -1.0 / codes, 1.0 / codes)

    def quantize(self, z):
        z = z.permute(0, 2, 3, 1).contiguous()
        flat = z.view(-1, z.shape[-1])
        d = flat.pow(2).sum(1, keepdim=True) + self.codebook.weight.pow(2).sum(1) - 2 * flat @ self.codebook.weight.t()
        z_q = self.codebook(d.argmin(1)).view(z.shape)
        loss = ((z_q.detach() - z) ** 2).mean() + 0.25 * ((z_q - z.detach()) ** 2).mean()
        return (z + (z_q - z).detach()).permute(0, 3, 1, 2), loss

    def forward(self, x):
        z_q, q_loss = self.quantize(self.encoder(x))
        return self.decoder(z_q), q_loss

    def calculate_lambda(self, rec_loss, gan_loss):
        last = self.decoder[-1].weight
        rec_grads = torch.autograd.grad(rec_loss, last, retain_graph=True)[0]
        gan_grads = torch.autograd.grad(gan_loss, last, retain_graph=True)[0]
        return 0.8 * torch.clamp(rec_grads.norm() / (gan_grads.norm() + 1e-4), 0, 1e4).detach()


class Discriminator(nn.Sequential):
    def __init__(self, nf):
        super().__init__(nn.Conv2d(3, nf, 4, 2, 1), nn.LeakyReLU(0.2), nn.Conv2d(nf, 2 * nf, 4, 2, 1, bias=False),
                         nn.BatchNorm2d(2 * nf), nn.LeakyReLU(0.2), nn.Conv2d(2 * nf, 1, 4, 1, 1))


def main():
    parser = argparse.ArgumentParser(description='VQGAN')
    parser.add_argument('--dataset-path', default='data/vq')
    parser.add_argument('--images', type=int, default=20000)
    parser.add_argument('--image-size', type=int, default=256)
    parser.add_argument('--channels', type=int, default=128)
    parser.add_argument('--latent-dim', type=int, default=256)
    parser.add_argument('--num-codebook-vectors', type=int, default=1024)
    parser.add_argument('--batch-size', type=int, default=6)
    parser.add_argument('--epochs', type=int, default=100)
    parser.add_argument('--learning-rate', type=float, default=2.25e-5)
    parser.add_argument('--disc-start', type=int, default=10000)
    parser.add_argument('--num-workers', type=int, default=4)
    parser.add_argument('--log-every', type=int, default=10)
    args = parser.parse_args()
    device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')
    torch.backends.cudnn.benchmark = True
    torch.manual_seed(0)
    vqgan = VQGAN(args.channels, args.latent_dim, args.num_codebook_vectors).to(device)
    discriminator = Discriminator(max(args.channels // 2, 4)).to(device)
    opt_vq = torch.optim.Adam(vqgan.parameters(), lr=args.learning_rate, eps=1e-08, betas=(0.5, 0.9))
    opt_disc = torch.optim.Adam(discriminator.parameters(), lr=args.learning_rate, eps=1e-08, betas=(0.5, 0.9))
    for folder in ('results', 'checkpoints'):
        os.makedirs(folder, exist_ok=True)
    loader = DataLoader(ImagePaths(args.dataset_path, args.image_size, args.images), batch_size=args.batch_size,
                        shuffle=True, drop_last=True, num_workers=args.num_workers, pin_memory=torch.cuda.is_available())
    for epoch in range(args.epochs):
        for i, imgs in enumerate(loader):
            imgs = imgs.to(device)
            decoded, q_loss = vqgan(imgs)
            step = epoch * len(loader) + i
            disc_factor = 1.0 if step >= args.disc_start else 0.0
            rec_loss = (imgs - decoded).abs().mean()
            g_loss = -discriminator(decoded).mean()
            lam = vqgan.calculate_lambda(rec_loss, g_loss)
            vq_loss = rec_loss + q_loss + disc_factor * lam * g_loss
            disc_real, disc_fake = discriminator(imgs), discriminator(decoded.detach())
            gan_loss = disc_factor * 0.5 * (F.relu(1.0 - disc_real).mean() + F.relu(1.0 + disc_fake).mean())
            opt_vq.zero_grad()
            vq_loss.backward(retain_graph=True)
            opt_disc.zero_grad()
            gan_loss.backward()
            opt_vq.step()
            opt_disc.step()
            if i % args.log_every == 0:
                print(f'epoch {epoch} it {i}/{len(loader)} VQ_Loss {vq_loss.item():.5f} GAN_Loss {gan_loss.item():.3f} '
                      f'mem {torch.cuda.max_memory_allocated() / 2**20:.0f}MiB')
        with torch.no_grad():
            np.save(os.path.join('results', f'{epoch}.npy'), torch.cat((imgs[:4], decoded[:4])).cpu().numpy())
        torch.save(vqgan.state_dict(), os.path.join('checkpoints', 'vqgan_last.pt'))
        print(f'epoch {epoch} done')


if __name__ == '__main__':
    main()
