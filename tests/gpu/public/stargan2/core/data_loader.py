"""Loaders of source, reference and validation images, and fetchers that never end."""

import os

import numpy as np
import torch
from torch.utils import data
from torch.utils.data.sampler import WeightedRandomSampler

device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')


def make_images(root, size, number, num_domains):
    """Noise of a colour for each domain, as there is nothing to download."""
    os.makedirs(root, exist_ok=True)
    path = os.path.join(root, f'domains_{size}_{num_domains}.npy')
    if not os.path.exists(path):
        rng = np.random.default_rng(777)
        images = rng.integers(0, 120, size=(num_domains * number, 3, size, size), dtype=np.uint8)
        for k in range(num_domains):
            images[k * number:(k + 1) * number, k % 3] += 100
        np.save(path, images)
    return np.load(path, mmap_mode='r')


class Domains(data.Dataset):
    def __init__(self, images, num_domains, length):
        self.images, self.num_domains, self.length = images, num_domains, length
        self.targets = [i % num_domains for i in range(length)]

    def __len__(self):
        return self.length

    def load(self, index):
        per = len(self.images) // self.num_domains
        image = self.images[(index % self.num_domains) * per + index // self.num_domains % per]
        image = torch.from_numpy(image.copy()).float().div_(127.5).sub_(1)
        return image.flip(-1) if torch.rand(()) < 0.5 else image

    def __getitem__(self, index):
        return self.load(index), self.targets[index]


class References(Domains):
    def __getitem__(self, index):
        other = int(torch.randint(self.length // self.num_domains, ())) * self.num_domains + self.targets[index]
        return self.load(index), self.load(other), self.targets[index]


def balanced_sampler(labels):
    class_weights = 1.0 / np.bincount(labels)
    return WeightedRandomSampler(class_weights[labels], len(labels))


def get_train_loader(args, which):
    images = make_images(args.train_img_dir, args.img_size, 32, args.num_domains)
    dataset = {'source': Domains, 'reference': References}[which](images, args.num_domains, args.num_images)
    return data.DataLoader(dataset=dataset, batch_size=args.batch_size, sampler=balanced_sampler(dataset.targets),
                           num_workers=args.num_workers, pin_memory=torch.cuda.is_available(), drop_last=True)


def get_test_loader(args):
    images = make_images(args.val_img_dir, args.img_size, 8, args.num_domains)
    dataset = Domains(images, args.num_domains, 8 * args.num_domains)
    return data.DataLoader(dataset=dataset, batch_size=args.val_batch_size, shuffle=True,
                           num_workers=args.num_workers, pin_memory=torch.cuda.is_available())


class InputFetcher:
    def __init__(self, loader, loader_ref=None, latent_dim=16, mode=''):
        self.loader, self.loader_ref = loader, loader_ref
        self.latent_dim, self.mode = latent_dim, mode

    def _fetch_inputs(self):
        try:
            x, y = next(self.iter)
        except (AttributeError, StopIteration):
            self.iter = iter(self.loader)
            x, y = next(self.iter)
        return x, y

    def _fetch_refs(self):
        try:
            x, x2, y = next(self.iter_ref)
        except (AttributeError, StopIteration):
            self.iter_ref = iter(self.loader_ref)
            x, x2, y = next(self.iter_ref)
        return x, x2, y

    def __next__(self):
        x, y = self._fetch_inputs()
        if self.mode == 'train':
            x_ref, x_ref2, y_ref = self._fetch_refs()
            z_trg = torch.randn(x.size(0), self.latent_dim)
            z_trg2 = torch.randn(x.size(0), self.latent_dim)
            inputs = dict(x_src=x, y_src=y, y_ref=y_ref, x_ref=x_ref, x_ref2=x_ref2, z_trg=z_trg, z_trg2=z_trg2)
        else:
            inputs = dict(x=x, y=y)
        return {k: v.to(device) for k, v in inputs.items()}
