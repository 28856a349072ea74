"""The gradient of what a rank gave to `AllGather`, against its definition. Without ttrace:

.venv-ring_attention/bin/python -m torch.distributed.run --standalone --nproc-per-node 2 confirm.py"""

import torch
import torch.distributed as dist
from ring_attention_pytorch.distributed import AllGather

dist.init_process_group("gloo")
rank = dist.get_rank()
given = torch.ones(1, 3, requires_grad=True)  # of each rank
gathered, _ = AllGather(dim=0)(given)  # [2, 3], on all ranks
# The loss of rank r is the sum of all elements, times 10 to the r: the sum of losses has gradient 11 everywhere.
(gathered.sum() * 10**rank).backward()
print(f"rank {rank}: gradient of the sum of losses {given.grad.tolist()}, expected {[[11.0] * 3]}", flush=True)
dist.destroy_process_group()
