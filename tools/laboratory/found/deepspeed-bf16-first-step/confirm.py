"""Without ttrace: the first update of Adam by DeepSpeed's engine in bf16 without ZeRO, against Adam's own.
torchrun --standalone --nproc-per-node 1 confirm.py"""

import os

os.environ["DS_ACCELERATOR"] = "cpu"

import deepspeed
import torch
from deepspeed import comm
from torch import nn


def main() -> None:
    deepspeed.ops.__compatible_ops__ = {}
    comm.init_distributed(dist_backend="gloo", auto_mpi_discovery=False, verbose=False)
    model = nn.Linear(4, 1, bias=False)
    nn.init.zeros_(model.weight)
    engine, _, _, _ = deepspeed.initialize(
        model=model,
        optimizer=torch.optim.AdamW(model.parameters(), lr=1.0),
        config={"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": True}, "zero_optimization": {"stage": 0}},
    )
    adam = engine.optimizer.optimizer
    before = [int(state["step"]) for state in adam.state.values()]
    engine.backward(engine(torch.ones(1, 4, dtype=torch.bfloat16)).sum())
    engine.step()
    print(
        f"Adam's steps before training: {before}; first update {model.weight.flatten().tolist()}, Adam's own -1",
        flush=True,
    )
    comm.destroy_process_group()


if __name__ == "__main__":
    main()
