"""create_supervised_trainer with accumulation and a schedule of the learning rate.

package: Ignite
parallel: DDP by idist, 2 ranks
mistake: rank 1 reads a batch again
shows: (model) input
"""

import os

import ignite.distributed as idist
import torch
import torch.distributed.nn
from ignite.engine import Events, create_supervised_trainer
from ignite.handlers import PiecewiseLinear
from torch import nn

WRONG = bool(os.environ.get("MISTAKE"))


def training(local_rank):
    rank, world = idist.get_rank(), idist.get_world_size()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(12, 32), nn.LayerNorm(32), nn.Hardswish(), nn.Linear(32, 1))
    model = idist.auto_model(model)
    opt = idist.auto_optim(torch.optim.RMSprop(model.parameters(), lr=1e-3, momentum=0.5))
    g = torch.Generator().manual_seed(1)
    data = torch.utils.data.TensorDataset(torch.randn(48, 12, generator=g), torch.randn(48, 1, generator=g))
    # rank's part of each batch of 8; two batches a step
    batches = [list(range(i * 8 + rank * 8 // world, i * 8 + (rank + 1) * 8 // world)) for i in range(6)]
    if WRONG and rank == 1:
        batches[1] = batches[0]
    loader = torch.utils.data.DataLoader(data, batch_sampler=batches)
    trainer = create_supervised_trainer(
        model,
        opt,
        nn.HuberLoss(),
        gradient_accumulation_steps=2,
        output_transform=lambda x, y, y_pred, loss: loss.item(),
    )
    trainer.add_event_handler(Events.ITERATION_STARTED, PiecewiseLinear(opt, "lr", [(0, 1e-4), (4, 1e-3)]))
    trainer.run(loader, max_epochs=1)


if "RANK" in os.environ:
    with idist.Parallel(backend="gloo") as p:
        p.run(training)
else:
    training(0)
