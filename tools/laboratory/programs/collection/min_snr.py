"""A U-Net of the package with its schedule of noise, min-SNR weights and an average of weights.

package: diffusers and accelerate
parallel: DDP, 2 ranks
mistake: rank 1 does not weigh
shows: loss scalar
"""

import os

import before_torchvision  # noqa: F401
import torch
from accelerate import Accelerator
from diffusers import DDPMScheduler, UNet2DModel
from diffusers.optimization import get_cosine_schedule_with_warmup
from diffusers.training_utils import EMAModel, compute_snr

WRONG = bool(os.environ.get("MISTAKE"))
acc = Accelerator(cpu=True, step_scheduler_with_optimizer=False)
rank, world = acc.process_index, acc.num_processes
torch.manual_seed(0)
unet = UNet2DModel(
    sample_size=16,
    in_channels=1,
    out_channels=1,
    layers_per_block=1,
    block_out_channels=(16, 32),
    down_block_types=("DownBlock2D", "AttnDownBlock2D"),
    up_block_types=("AttnUpBlock2D", "UpBlock2D"),
    norm_num_groups=8,
    attention_head_dim=8,
)
sched = DDPMScheduler(num_train_timesteps=100)
ema = EMAModel(unet.parameters(), decay=0.99, use_ema_warmup=True)
opt = torch.optim.AdamW(unet.parameters(), lr=1e-4, weight_decay=1e-6)
lr = get_cosine_schedule_with_warmup(opt, 1, 10)
unet, opt, lr = acc.prepare(unet, opt, lr)
g = torch.Generator().manual_seed(1)
X = torch.randn(24, 1, 16, 16, generator=g)
Eps = torch.randn(24, 1, 16, 16, generator=g)
Ts = torch.randint(100, (24,), generator=g)
n = 8
for step in range(3):
    m = n // world
    lo = step * n + rank * m
    at = slice(lo, lo + m)
    x, eps, t = X[at], Eps[at], Ts[at]
    noisy = sched.add_noise(x, eps, t)
    with acc.accumulate(unet):
        pred = unet(noisy, t, return_dict=True).sample
        snr = compute_snr(sched, t)
        w = torch.minimum(snr, torch.full_like(snr, 5.0)) / snr
        if WRONG and rank == 1:
            w = torch.ones_like(w)
        loss = ((pred - eps).pow(2).mean((1, 2, 3)) * w).mean()
        acc.backward(loss)
        if acc.sync_gradients:
            acc.clip_grad_norm_(unet.parameters(), 1.0)
        opt.step()
        lr.step()
        opt.zero_grad()
    ema.step(unet.parameters())
acc.end_training()
