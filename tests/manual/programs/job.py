import sys
import time

import torch
import torch.distributed as dist
import torch.distributed.nn  # before init_process_group, or gloo now and then aborts at the end (pytorch#179291)
from torch import nn

dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Sequential(nn.Embedding(64, 32), nn.LayerNorm(32), nn.Linear(32, 64))
parallel = nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
draw = torch.Generator().manual_seed(dist.get_rank())
for step in range(50):
    tokens = torch.randint(64, (8, 17), generator=draw)
    loss = nn.functional.cross_entropy(parallel(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    time.sleep(0.2)  # as if the model were large
    if "--fault" in sys.argv and step == 25 and dist.get_rank() == 1:
        model[2].weight.data[3, 17] += 0.01  # a bit of this rank's memory flips
if dist.get_rank() == 0:
    print(f"loss {loss.item():.3f}")
dist.destroy_process_group()
