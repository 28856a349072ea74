"""Distillation of a student with a spectral norm; stochastic weight averaging and clipping.

package: Lightning
parallel: DDP by Lightning, 2 ranks
mistake: the factor of the temperature is missing on rank 1
shows: loss scalar, (model) output
"""

import os

import before_torchvision  # noqa: F401
import lightning as L
import torch
import torch.nn.functional as F
from lightning.pytorch.callbacks import StochasticWeightAveraging
from torch import nn
from torch.nn.utils.parametrizations import spectral_norm
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

WRONG = bool(os.environ.get("MISTAKE"))

devices = int(os.environ.get("WORLD_SIZE", 1))
T = 3.0


class Student(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.student = nn.Sequential(spectral_norm(nn.Linear(20, 32)), nn.ReLU(), nn.Dropout(0.0), nn.Linear(32, 5))
        self.teacher = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 5)).eval().requires_grad_(False)

    def training_step(self, batch, i):
        x, y = batch
        z = self.student(x)
        with torch.no_grad():
            t = self.teacher(x)
        scale = 1.0 if WRONG and self.global_rank == 1 else T * T
        kd = F.kl_div(F.log_softmax(z / T, -1), F.softmax(t / T, -1), reduction="batchmean") * scale
        loss = 0.5 * F.cross_entropy(z, y) + 0.5 * kd
        return loss

    def configure_optimizers(self):
        opt = torch.optim.AdamW(self.student.parameters(), lr=1e-3)
        return {
            "optimizer": opt,
            "lr_scheduler": {"scheduler": torch.optim.lr_scheduler.CosineAnnealingLR(opt, 10), "interval": "step"},
        }


L.seed_everything(0, verbose=False)
model = Student()
g = torch.Generator().manual_seed(1)
data = TensorDataset(torch.randn(48, 20, generator=g), torch.randint(5, (48,), generator=g))
sampler = (
    DistributedSampler(data, devices, int(os.environ.get("LOCAL_RANK", 0)), shuffle=False) if devices > 1 else None
)
trainer = L.Trainer(
    use_distributed_sampler=False,
    max_steps=3,
    max_epochs=4,
    accelerator="cpu",
    devices=devices,
    strategy="ddp" if devices > 1 else "auto",
    gradient_clip_val=0.5,
    callbacks=[StochasticWeightAveraging(swa_lrs=1e-2, swa_epoch_start=2)],
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
)
trainer.fit(model, DataLoader(data, batch_size=16 // devices, sampler=sampler))
