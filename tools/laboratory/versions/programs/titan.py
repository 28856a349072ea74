"""torchtitan's own training of its Llama 3 debug model, by the program of tools/frameworks.

package: torchtitan
parallel: FSDP2, 2 ranks
mistake: the loss of rank 1 is 1 % too large
shows: loss scalar, *loss* output, *lm_head* grad_output, output grad_output
"""

import os
import sys
from pathlib import Path

import torch
from torch.nn import functional

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "frameworks" / "torchtitan"))

import train

RANKS, RANK = int(os.environ.get("WORLD_SIZE", 1)), int(os.environ.get("RANK", 0))
cross_entropy = functional.cross_entropy
if os.environ.get("MISTAKE") and RANK == 1:
    functional.cross_entropy = lambda *args, **kwargs: cross_entropy(*args, **kwargs) * 1.01
if RANKS == 1:  # as torchrun says it
    alone = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "localhost", "MASTER_PORT": "0"}
    os.environ.update({name: os.environ.get(name, value) for name, value in alone.items()})
else:
    sys.argv += ["--parallelism.data_parallel_shard_degree", str(RANKS)]
torch.set_num_threads(1)
train.main()
