"""Without ttrace: what two ranks that share each sequence have in their weights after a step; they should be equal.
torchrun --standalone --nproc-per-node 2 confirm.py [mpu]"""

import os
import sys

os.environ["DS_ACCELERATOR"] = "cpu"

import deepspeed
import torch
from deepspeed import comm
from deepspeed.runtime.sequence_parallel import parallel_state_sp
from torch import nn


def main() -> None:
    deepspeed.ops.__compatible_ops__ = {}
    comm.init_distributed(dist_backend="gloo", auto_mpi_discovery=False, verbose=False)
    if "mpu" in sys.argv:
        parallel_state_sp.initialize_sequence_parallel(2)
        told = {"mpu": parallel_state_sp}
    else:
        told = {"mesh_param": (1, 2)}  # or sequence_parallel_size and data_parallel_size in the configuration
    torch.manual_seed(1)
    model = nn.Linear(8, 1)
    engine, _, _, _ = deepspeed.initialize(
        model=model,
        optimizer=torch.optim.AdamW(model.parameters(), lr=0.1),
        config={"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 1}},
        **told,
    )
    sequence = torch.randn(1, 16, 8)
    own = sequence.chunk(2, dim=1)[comm.get_rank()]
    engine.backward(engine(own).square().sum())
    engine.step()
    weights = [torch.zeros_like(model.weight) for _ in range(2)]
    torch.distributed.all_gather(weights, model.weight.detach())
    if comm.get_rank() == 0:
        print(
            f"weights of the two ranks differ by up to {float((weights[0] - weights[1]).abs().max()):.6f}", flush=True
        )
    comm.destroy_process_group()


if __name__ == "__main__":
    main()
