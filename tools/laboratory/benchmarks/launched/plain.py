"""A plain loop of PyTorch with DDP."""

import os

import feed
import torch
from torch import nn

chosen = feed.options()
world, rank = int(os.environ.get("WORLD_SIZE", 1)), int(os.environ.get("RANK", 0))
if world > 1:
    torch.distributed.init_process_group("gloo")
feed.wait(chosen.wait)
torch.manual_seed(0)
layer = nn.TransformerEncoderLayer(64, 4, 128, dropout=0.0, batch_first=True)
model = nn.Sequential(nn.Embedding(128, 64), nn.TransformerEncoder(layer, 2), nn.Linear(64, 128))
net = nn.parallel.DistributedDataParallel(model) if world > 1 else model
optimizer = torch.optim.AdamW(net.parameters(), 1e-3)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, feed.STEPS)
data = torch.utils.data.Subset(feed.Tokens(8 * feed.STEPS, 33, 128), range(rank, 8 * feed.STEPS, world))
for tokens in feed.batches(chosen.source, data, 8 // world):
    loss = nn.functional.cross_entropy(net(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    optimizer.step()
    schedule.step()
if world > 1:
    torch.distributed.destroy_process_group()
