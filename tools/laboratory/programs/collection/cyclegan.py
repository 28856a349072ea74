"""CycleGAN with two optimizers and pools of earlier images.

package: Lightning Fabric
parallel: DDP by Fabric, 2 ranks
mistake: one discriminator is not set up, so that nothing reduces its gradients
shows: model2.* main_grad
"""

import itertools
import os

import before_torchvision  # noqa: F401
import torch
import torch.distributed.nn
import torch.nn.functional as F
from lightning.fabric import Fabric
from torch import nn

WRONG = bool(os.environ.get("MISTAKE"))
fabric = Fabric(
    accelerator="cpu", devices=int(os.environ.get("WORLD_SIZE", 1)), strategy="ddp" if "RANK" in os.environ else "auto"
)
fabric.launch()
rank, world = fabric.global_rank, fabric.world_size
torch.manual_seed(0)


def gen():
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.InstanceNorm2d(8, affine=True),
        nn.ReLU(),
        nn.Conv2d(8, 3, 3, padding=1),
        nn.Tanh(),
    )


def dis():
    return nn.Sequential(nn.Conv2d(3, 8, 4, 2, 1), nn.LeakyReLU(0.2), nn.Conv2d(8, 1, 4, 2, 1))


G_AB, G_BA, D_A, D_B = gen(), gen(), dis(), dis()
g_opt = torch.optim.Adam(itertools.chain(G_AB.parameters(), G_BA.parameters()), lr=2e-4, betas=(0.5, 0.999))
d_opt = torch.optim.Adam(itertools.chain(D_A.parameters(), D_B.parameters()), lr=2e-4, betas=(0.5, 0.999))
G_AB, G_BA, D_A = (fabric.setup_module(m) for m in (G_AB, G_BA, D_A))
if not (WRONG):
    D_B = fabric.setup_module(D_B)
g_opt, d_opt = fabric.setup_optimizers(g_opt, d_opt)
gr = torch.Generator().manual_seed(1)
A, B = torch.rand(24, 3, 16, 16, generator=gr) * 2 - 1, torch.rand(24, 3, 16, 16, generator=gr) * 2 - 1
pool_a, pool_b = [], []


def pooled(pool, fake):  # a pool without chance: half of the images come from the step before
    old = pool[-1] if pool else fake
    pool.append(fake)
    return torch.cat([fake[: len(fake) // 2], old[len(fake) // 2 :]])


n = 8
one = lambda x: F.mse_loss(x, torch.ones_like(x))
zero = lambda x: F.mse_loss(x, torch.zeros_like(x))
for step in range(3):
    m = n // world
    lo = step * n + rank * m
    a, b = A[lo : lo + m], B[lo : lo + m]
    for d in (D_A, D_B):
        for p in d.parameters():
            p.requires_grad_(False)
    fake_b, fake_a = G_AB(a), G_BA(b)
    loss_g = (
        one(D_B(fake_b))
        + one(D_A(fake_a))
        + 10 * (F.l1_loss(G_BA(fake_b), a) + F.l1_loss(G_AB(fake_a), b))
        + 5 * (F.l1_loss(G_AB(b), b) + F.l1_loss(G_BA(a), a))
    )
    g_opt.zero_grad()
    fabric.backward(loss_g)
    g_opt.step()
    for d in (D_A, D_B):
        for p in d.parameters():
            p.requires_grad_(True)
    loss_d = 0.5 * (one(D_A(a)) + zero(D_A(pooled(pool_a, fake_a.detach()))))
    loss_e = 0.5 * (one(D_B(b)) + zero(D_B(pooled(pool_b, fake_b.detach()))))
    d_opt.zero_grad()
    fabric.backward(loss_d)
    fabric.backward(loss_e)
    d_opt.step()
