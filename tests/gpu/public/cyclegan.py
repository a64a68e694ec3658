"""Unpaired image translation: two generators with one optimizer, two discriminators with another."""

import argparse
import functools
import itertools
import os
import random
import time

import numpy as np
import torch
import torch.nn as nn
from torch.optim import lr_scheduler


class UnalignedDataset(torch.utils.data.Dataset):
    """An image of A and one of B, not of the same thing."""

    def __init__(self, opt):
        os.makedirs(opt.dataroot, exist_ok=True)
        self.opt, self.size = opt, opt.max_dataset_size
        path = os.path.join(opt.dataroot, f'ab_{opt.load_size}.npy')
        if not os.path.exists(path):
            rng = np.random.default_rng(0)
            np.save(path, rng.integers(0, 256, (2, 48, opt.load_size, opt.load_size, 3), dtype=np.uint8))
        self.images = np.load(path, mmap_mode='r')

    def crop(self, image):
        top, left = (random.randint(0, self.opt.load_size - self.opt.crop_size) for _ in range(2))
        image = image[top:top + self.opt.crop_size, left:left + self.opt.crop_size]
        if random.random() > 0.5:
            image = image[:, ::-1]
        return torch.from_numpy(np.ascontiguousarray(image.transpose(2, 0, 1))).float() / 127.5 - 1

    def __getitem__(self, index):
        b = random.randint(0, self.images.shape[1] - 1)
        return {'A': self.crop(self.images[0, index % self.images.shape[1]]), 'B': self.crop(self.images[1, b]),
                'A_paths': f'A/{index}.jpg', 'B_paths': f'B/{b}.jpg'}

    def __len__(self):
        return self.size


class ImagePool:
    """Earlier fakes: with even odds a discriminator is shown one of them."""

    def __init__(self, pool_size):
        self.pool_size, self.images = pool_size, []

    def query(self, images):
        if self.pool_size == 0:
            return images
        chosen = []
        for image in images.detach().split(1):
            if len(self.images) < self.pool_size:
                self.images.append(image)
                chosen.append(image)
            elif random.uniform(0, 1) > 0.5:
                at = random.randint(0, self.pool_size - 1)
                chosen.append(self.images[at].clone())
                self.images[at] = image
            else:
                chosen.append(image)
        return torch.cat(chosen, 0)


norm_layer = functools.partial(nn.InstanceNorm2d, affine=False, track_running_stats=False)


class ResnetBlock(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.conv_block = nn.Sequential(
            nn.ReflectionPad2d(1), nn.Conv2d(dim, dim, 3), norm_layer(dim), nn.ReLU(True),
            nn.ReflectionPad2d(1), nn.Conv2d(dim, dim, 3), norm_layer(dim))

    def forward(self, x):
        return x + self.conv_block(x)


class ResnetGenerator(nn.Module):
    def __init__(self, ngf, n_blocks):
        super().__init__()
        model = [nn.ReflectionPad2d(3), nn.Conv2d(3, ngf, 7), norm_layer(ngf), nn.ReLU(True)]
        for mult in (1, 2):
            model += [nn.Conv2d(ngf * mult, ngf * mult * 2, 3, stride=2, padding=1), norm_layer(ngf * mult * 2), nn.ReLU(True)]
        model += [ResnetBlock(ngf * 4) for _ in range(n_blocks)]
        for mult in (4, 2):
            model += [nn.ConvTranspose2d(ngf * mult, ngf * mult // 2, 3, stride=2, padding=1, output_padding=1),
                      norm_layer(ngf * mult // 2), nn.ReLU(True)]
        self.model = nn.Sequential(*model, nn.ReflectionPad2d(3), nn.Conv2d(ngf, 3, 7), nn.Tanh())

    def forward(self, x):
        return self.model(x)


class NLayerDiscriminator(nn.Module):
    def __init__(self, ndf, n_layers=3):
        super().__init__()
        layers, width = [nn.Conv2d(3, ndf, 4, 2, 1), nn.LeakyReLU(0.2, True)], ndf
        for n in range(1, n_layers + 1):
            out = ndf * min(2 ** n, 8)
            layers += [nn.Conv2d(width, out, 4, 2 if n < n_layers else 1, 1), norm_layer(out), nn.LeakyReLU(0.2, True)]
            width = out
        self.model = nn.Sequential(*layers, nn.Conv2d(width, 1, 4, 1, 1))

    def forward(self, x):
        return self.model(x)


def init_net(net, device):
    for m in net.modules():
        if isinstance(m, (nn.Conv2d, nn.ConvTranspose2d)):
            nn.init.normal_(m.weight, 0.0, 0.02)
            nn.init.zeros_(m.bias)
    return net.to(device)


class CycleGANModel:
    model_names = ('G_A', 'G_B', 'D_A', 'D_B')

    def __init__(self, opt, device):
        self.opt, self.device = opt, device
        self.netG_A = init_net(ResnetGenerator(opt.ngf, opt.n_blocks), device)
        self.netG_B = init_net(ResnetGenerator(opt.ngf, opt.n_blocks), device)
        self.netD_A = init_net(NLayerDiscriminator(opt.ndf), device)
        self.netD_B = init_net(NLayerDiscriminator(opt.ndf), device)
        self.fake_A_pool, self.fake_B_pool = ImagePool(opt.pool_size), ImagePool(opt.pool_size)
        self.criterionGAN, self.criterionCycle, self.criterionIdt = nn.MSELoss(), nn.L1Loss(), nn.L1Loss()
        self.optimizer_G = torch.optim.Adam(itertools.chain(self.netG_A.parameters(), self.netG_B.parameters()),
                                            lr=opt.lr, betas=(opt.beta1, 0.999))
        self.optimizer_D = torch.optim.Adam(itertools.chain(self.netD_A.parameters(), self.netD_B.parameters()),
                                            lr=opt.lr, betas=(opt.beta1, 0.999))
        self.optimizers = [self.optimizer_G, self.optimizer_D]

        def rule(epoch):
            return 1.0 - max(0, epoch + opt.epoch_count - opt.n_epochs) / float(opt.n_epochs_decay + 1)
        self.schedulers = [lr_scheduler.LambdaLR(optimizer, rule) for optimizer in self.optimizers]

    def set_input(self, data):
        self.real_A, self.real_B = data['A'].to(self.device), data['B'].to(self.device)

    def forward(self):
        self.fake_B = self.netG_A(self.real_A)
        self.rec_A = self.netG_B(self.fake_B)
        self.fake_A = self.netG_B(self.real_B)
        self.rec_B = self.netG_A(self.fake_A)

    def gan_loss(self, prediction, is_real):
        return self.criterionGAN(prediction, torch.tensor(float(is_real), device=self.device).expand_as(prediction))

    def backward_D_basic(self, netD, real, fake):
        loss_D = (self.gan_loss(netD(real), True) + self.gan_loss(netD(fake.detach()), False)) * 0.5
        loss_D.backward()
        return loss_D

    def backward_G(self):
        a, b, idt = self.opt.lambda_A, self.opt.lambda_B, self.opt.lambda_identity
        self.loss_idt_A = self.criterionIdt(self.netG_A(self.real_B), self.real_B) * b * idt
        self.loss_idt_B = self.criterionIdt(self.netG_B(self.real_A), self.real_A) * a * idt
        self.loss_G_A = self.gan_loss(self.netD_A(self.fake_B), True)
        self.loss_G_B = self.gan_loss(self.netD_B(self.fake_A), True)
        self.loss_cycle_A = self.criterionCycle(self.rec_A, self.real_A) * a
        self.loss_cycle_B = self.criterionCycle(self.rec_B, self.real_B) * b
        self.loss_G = (self.loss_G_A + self.loss_G_B + self.loss_cycle_A + self.loss_cycle_B
                       + self.loss_idt_A + self.loss_idt_B)
        self.loss_G.backward()

    @staticmethod
    def set_requires_grad(nets, requires_grad=False):
        for net in nets:
            for param in net.parameters():
                param.requires_grad = requires_grad

    def optimize_parameters(self):
        self.forward()
        self.set_requires_grad([self.netD_A, self.netD_B], False)
        self.optimizer_G.zero_grad()
        self.backward_G()
        self.optimizer_G.step()
        self.set_requires_grad([self.netD_A, self.netD_B], True)
        self.optimizer_D.zero_grad()
        self.loss_D_A = self.backward_D_basic(self.netD_A, self.real_B, self.fake_B_pool.query(self.fake_B))
        self.loss_D_B = self.backward_D_basic(self.netD_B, self.real_A, self.fake_A_pool.query(self.fake_A))
        self.optimizer_D.step()

    def get_current_losses(self):
        return {name: getattr(self, 'loss_' + name).item() for name in
                ('D_A', 'G_A', 'cycle_A', 'idt_A', 'D_B', 'G_B', 'cycle_B', 'idt_B')}

    def save_networks(self, suffix):
        os.makedirs(self.opt.checkpoints_dir, exist_ok=True)
        for name in self.model_names:
            net = getattr(self, 'net' + name)
            torch.save(net.cpu().state_dict(), os.path.join(self.opt.checkpoints_dir, f'{suffix}_net_{name}.pth'))
            net.to(self.device)

    def load_networks(self, suffix):
        for name in self.model_names:
            path = os.path.join(self.opt.checkpoints_dir, f'{suffix}_net_{name}.pth')
            getattr(self, 'net' + name).load_state_dict(torch.load(path, map_location=self.device))

    def update_learning_rate(self):
        for scheduler in self.schedulers:
            scheduler.step()
        print('learning rate = %.7f' % self.optimizers[0].param_groups[0]['lr'])


if __name__ == '__main__':
    parser = argparse.ArgumentParser()
    parser.add_argument('--dataroot', default='data/unaligned')
    parser.add_argument('--checkpoints_dir', default='checkpoints/cyclegan')
    parser.add_argument('--max_dataset_size', type=int, default=1000)
    parser.add_argument('--load_size', type=int, default=286)
    parser.add_argument('--crop_size', type=int, default=256)
    parser.add_argument('--batch_size', type=int, default=1)
    parser.add_argument('--num_threads', type=int, default=4)
    parser.add_argument('--ngf', type=int, default=64)
    parser.add_argument('--ndf', type=int, default=64)
    parser.add_argument('--n_blocks', type=int, default=9)
    parser.add_argument('--pool_size', type=int, default=50)
    parser.add_argument('--lr', type=float, default=0.0002)
    parser.add_argument('--beta1', type=float, default=0.5)
    parser.add_argument('--lambda_A', type=float, default=10.0)
    parser.add_argument('--lambda_B', type=float, default=10.0)
    parser.add_argument('--lambda_identity', type=float, default=0.5)
    parser.add_argument('--n_epochs', type=int, default=100)
    parser.add_argument('--n_epochs_decay', type=int, default=100)
    parser.add_argument('--epoch_count', type=int, default=1)
    parser.add_argument('--continue_train', action='store_true')
    parser.add_argument('--print_freq', type=int, default=100)
    parser.add_argument('--save_epoch_freq', type=int, default=5)
    opt = parser.parse_args()

    torch.backends.cudnn.benchmark = True
    device = torch.device('cuda:0') if torch.cuda.is_available() else torch.device('cpu')
    dataset = UnalignedDataset(opt)
    loader = torch.utils.data.DataLoader(dataset, batch_size=opt.batch_size, shuffle=True, num_workers=opt.num_threads)
    print('The number of training images = %d' % len(dataset))
    model = CycleGANModel(opt, device)
    if opt.continue_train:
        model.load_networks('latest')
    total_iters = 0
    for epoch in range(opt.epoch_count, opt.n_epochs + opt.n_epochs_decay + 1):
        epoch_start_time = iter_data_time = time.time()
        epoch_iter = 0
        for i, data in enumerate(loader):
            iter_start_time = time.time()
            if total_iters % opt.print_freq == 0:
                t_data = iter_start_time - iter_data_time
            total_iters += 1
            epoch_iter += 1
            model.set_input(data)
            model.optimize_parameters()
            if total_iters % opt.print_freq == 0:
                losses = model.get_current_losses()
                t_comp = (time.time() - iter_start_time) / opt.batch_size
                message = '(epoch: %d, iters: %d, time: %.3f, data: %.3f) ' % (epoch, epoch_iter, t_comp, t_data)
                message += ' '.join('%s: %.3f' % pair for pair in losses.items())
                print(message + ' mem: %.0fMiB' % (torch.cuda.max_memory_allocated() / 2**20))
            iter_data_time = time.time()
        if epoch % opt.save_epoch_freq == 0:
            print('saving the model at the end of epoch %d, iters %d' % (epoch, total_iters))
            model.save_networks('latest')
        print('End of epoch %d / %d \t Time Taken: %d sec' % (
            epoch, opt.n_epochs + opt.n_epochs_decay, time.time() - epoch_start_time))
        model.update_learning_rate()
