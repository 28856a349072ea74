"""Without ttrace: what DeepSpeed says of the masters of two parameters, and what they are.
torchrun --standalone --nproc-per-node 2 confirm.py"""

import os

os.environ["DS_ACCELERATOR"] = "cpu"

import deepspeed
import torch
from deepspeed import comm
from deepspeed.utils import safe_get_full_fp32_param
from torch import nn


def main() -> None:
    deepspeed.ops.__compatible_ops__ = {}
    comm.init_distributed(dist_backend="gloo", auto_mpi_discovery=False, verbose=False)
    for in_turn in (False, True):
        model = nn.Sequential(*(nn.Linear(2, 1, bias=False) for _ in range(4)))
        for number, parameter in enumerate(model.parameters()):
            nn.init.constant_(parameter, number)
        config = {
            "train_micro_batch_size_per_gpu": 1,
            "zero_allow_untested_optimizer": True,  # of SGD
            "zero_optimization": {"stage": 2, "round_robin_gradients": in_turn},
        }
        optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
        engine, _, _, _ = deepspeed.initialize(model=model, optimizer=optimizer, config=config)
        parameters = list(engine.module.parameters())
        masters = [safe_get_full_fp32_param(parameter).flatten().tolist() for parameter in parameters]
        if comm.get_rank() == 0:
            values = [parameter.flatten().tolist() for parameter in parameters]
            print(f"round_robin_gradients {in_turn}: parameters {values}, masters {masters}", flush=True)
    comm.destroy_process_group()


if __name__ == "__main__":
    main()
