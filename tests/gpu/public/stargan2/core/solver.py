"""The training loop."""

import datetime
import os
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

from core.data_loader import InputFetcher
from core.model import build_model


class Solver(nn.Module):
    def __init__(self, args):
        super().__init__()
        self.args = args
        self.device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')
        self.nets, self.nets_ema = build_model(args)
        # networks become children of the solver, so that .to(device) finds them
        for name, module in self.nets.items():
            setattr(self, name, module)
        for name, module in self.nets_ema.items():
            setattr(self, name + '_ema', module)
        self.optims = {
            name: torch.optim.Adam(net.parameters(), lr=args.f_lr if name == 'mapping_network' else args.lr,
                                   betas=(args.beta1, args.beta2), weight_decay=args.weight_decay)
            for name, net in self.nets.items()}
        self.to(self.device)

    def _save_checkpoint(self, step):
        os.makedirs(self.args.checkpoint_dir, exist_ok=True)
        for kind, parts in (('nets', self.nets), ('nets_ema', self.nets_ema), ('optims', self.optims)):
            path = os.path.join(self.args.checkpoint_dir, f'{step:06d}_{kind}.ckpt')
            print(f'Saving checkpoint into {path}...')
            torch.save({name: part.state_dict() for name, part in parts.items()}, path)

    def _load_checkpoint(self, step):
        for kind, parts in (('nets', self.nets), ('nets_ema', self.nets_ema), ('optims', self.optims)):
            states = torch.load(os.path.join(self.args.checkpoint_dir, f'{step:06d}_{kind}.ckpt'))
            for name, part in parts.items():
                part.load_state_dict(states[name])

    def _reset_grad(self):
        for optim in self.optims.values():
            optim.zero_grad()

    def train_on(self, loaders):
        args, nets, nets_ema, optims = self.args, self.nets, self.nets_ema, self.optims
        fetcher = InputFetcher(loaders['src'], loaders['ref'], args.latent_dim, 'train')
        # a few images that samples are made of from time to time
        inputs_val = next(InputFetcher(loaders['val'], None, args.latent_dim, 'val'))
        if args.resume_iter > 0:
            self._load_checkpoint(args.resume_iter)
        initial_lambda_ds = args.lambda_ds

        print('Start training...')
        start_time = time.time()
        for i in range(args.resume_iter, args.total_iters):
            inputs = next(fetcher)
            x_real, y_org, y_trg = inputs['x_src'], inputs['y_src'], inputs['y_ref']
            zs, refs = (inputs['z_trg'], inputs['z_trg2']), (inputs['x_ref'], inputs['x_ref2'])

            d_loss, d_latent = compute_d_loss(nets, args, x_real, y_org, y_trg, z_trg=zs[0])
            self._reset_grad()
            d_loss.backward()
            optims['discriminator'].step()

            d_loss, d_ref = compute_d_loss(nets, args, x_real, y_org, y_trg, x_ref=refs[0])
            self._reset_grad()
            d_loss.backward()
            optims['discriminator'].step()

            g_loss, g_latent = compute_g_loss(nets, args, x_real, y_org, y_trg, z_trgs=zs)
            self._reset_grad()
            g_loss.backward()
            optims['generator'].step()
            optims['mapping_network'].step()
            optims['style_encoder'].step()

            g_loss, g_ref = compute_g_loss(nets, args, x_real, y_org, y_trg, x_refs=refs)
            self._reset_grad()
            g_loss.backward()
            optims['generator'].step()

            for name, net_ema in nets_ema.items():
                moving_average(nets[name], net_ema, beta=0.999)
            if args.lambda_ds > 0:
                args.lambda_ds -= initial_lambda_ds / args.ds_iter

            if (i + 1) % args.print_every == 0:
                elapsed = str(datetime.timedelta(seconds=int(time.time() - start_time)))
                log = f'Elapsed time [{elapsed}], Iteration [{i + 1}/{args.total_iters}], '
                for losses, prefix in ((d_latent, 'D/latent_'), (d_ref, 'D/ref_'), (g_latent, 'G/latent_'), (g_ref, 'G/ref_')):
                    log += ' '.join(f'{prefix}{key}: [{value:.4f}]' for key, value in losses.items()) + ' '
                print(log + f'mem: {torch.cuda.max_memory_allocated() / 2**20:.0f}MiB')

            if (i + 1) % args.sample_every == 0:
                os.makedirs(args.sample_dir, exist_ok=True)
                debug_image(nets_ema, args, inputs_val, i + 1)
            if (i + 1) % args.save_every == 0:
                self._save_checkpoint(step=i + 1)


@torch.no_grad()
def debug_image(nets, args, inputs, step):
    x = inputs['x']
    device, n = x.device, len(x)
    rows = [x]
    for domain in range(args.num_domains):
        y = torch.full((n,), domain, device=device)
        s = nets['mapping_network'](torch.randn(n, args.latent_dim, device=device), y)
        rows.append(nets['generator'](x, s))
    np.save(os.path.join(args.sample_dir, f'{step:06d}_latent.npy'), torch.stack(rows).cpu().numpy())
    print(f'Sampled {step:06d}_latent.npy')


def compute_d_loss(nets, args, x_real, y_org, y_trg, z_trg=None, x_ref=None):
    assert (z_trg is None) != (x_ref is None)
    x_real.requires_grad_()
    out = nets['discriminator'](x_real, y_org)
    loss_real, loss_reg = adv_loss(out, 1), r1_reg(out, x_real)
    with torch.no_grad():
        s_trg = nets['mapping_network'](z_trg, y_trg) if z_trg is not None else nets['style_encoder'](x_ref, y_trg)
        x_fake = nets['generator'](x_real, s_trg)
    loss_fake = adv_loss(nets['discriminator'](x_fake, y_trg), 0)
    loss = loss_real + loss_fake + args.lambda_reg * loss_reg
    return loss, dict(real=loss_real.item(), fake=loss_fake.item(), reg=loss_reg.item())


def compute_g_loss(nets, args, x_real, y_org, y_trg, z_trgs=None, x_refs=None):
    assert (z_trgs is None) != (x_refs is None)
    style = nets['mapping_network'] if z_trgs is not None else nets['style_encoder']
    first, second = z_trgs if z_trgs is not None else x_refs
    s_trg = style(first, y_trg)
    x_fake = nets['generator'](x_real, s_trg)
    loss_adv = adv_loss(nets['discriminator'](x_fake, y_trg), 1)
    loss_sty = torch.mean(torch.abs(nets['style_encoder'](x_fake, y_trg) - s_trg))
    x_fake2 = nets['generator'](x_real, style(second, y_trg)).detach()
    loss_ds = torch.mean(torch.abs(x_fake - x_fake2))
    x_rec = nets['generator'](x_fake, nets['style_encoder'](x_real, y_org))
    loss_cyc = torch.mean(torch.abs(x_rec - x_real))
    loss = loss_adv + args.lambda_sty * loss_sty - args.lambda_ds * loss_ds + args.lambda_cyc * loss_cyc
    return loss, dict(adv=loss_adv.item(), sty=loss_sty.item(), ds=loss_ds.item(), cyc=loss_cyc.item())


def moving_average(model, model_test, beta=0.999):
    for param, param_test in zip(model.parameters(), model_test.parameters()):
        param_test.data = torch.lerp(param.data, param_test.data, beta)


def adv_loss(logits, target):
    return F.binary_cross_entropy_with_logits(logits, torch.full_like(logits, fill_value=target))


def r1_reg(d_out, x_in):
    grad, = torch.autograd.grad(outputs=d_out.sum(), inputs=x_in, create_graph=True)
    return 0.5 * grad.pow(2).view(x_in.size(0), -1).sum(1).mean(0)
