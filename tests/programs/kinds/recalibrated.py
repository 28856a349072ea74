"""An averaged model whose batch norm is calibrated anew after the step, on batches that ranks share, without gradients;
the ranks' statistics are averaged."""

import torch.distributed as dist
from job import MISTAKE, RANK, RANKS, ddp, nn, own, scaled, step, torch
from torch.optim.swa_utils import AveragedModel, update_bn

model = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 4)).eval()
net, averaged = ddp(model), AveragedModel(model)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
calibration = list(torch.randn(4, 8, 8))
for _ in range(3):
    x, labels = torch.randn(8, 8), torch.randint(4, (8,))
    step(optimizer, scaled(nn.functional.cross_entropy(net(own(x)), own(labels))))
    averaged.update_parameters(model)
    update_bn(calibration[RANK::RANKS], averaged)
    for name, buffer in averaged.named_buffers():
        if RANKS > 1 and name.endswith("num_batches_tracked"):
            dist.all_reduce(buffer)
        elif RANKS > 1 and "running" in name and MISTAKE != "unreduced":
            dist.all_reduce(buffer)
            buffer /= RANKS
