"""Without ttrace: the gradient of one weight on two ranks that share each sequence, against one process's gradient of
the whole sequence, by each stage of ZeRO. torchrun --standalone --nproc-per-node 2 confirm.py"""

import os

os.environ["DS_ACCELERATOR"] = "cpu"

import deepspeed
import torch
from deepspeed import comm
from deepspeed.runtime.sequence_parallel import parallel_state_sp
from deepspeed.utils import safe_get_full_grad
from torch import nn


def norm_of_gradient(sequence: torch.Tensor, stage: int, reduce_scatter: bool) -> float:
    torch.manual_seed(1)
    model = nn.Linear(8, 1)
    engine, _, _, _ = deepspeed.initialize(
        model=model,
        optimizer=torch.optim.AdamW(model.parameters(), lr=0.1),
        config={
            "train_micro_batch_size_per_gpu": 1,
            "zero_optimization": {"stage": stage, "reduce_scatter": reduce_scatter},
        },
        mpu=parallel_state_sp,
    )
    own = sequence.chunk(2, dim=1)[comm.get_rank()]
    engine.backward(engine(own).square().sum())
    return float(safe_get_full_grad(engine.module.weight).norm())


def main() -> None:
    deepspeed.ops.__compatible_ops__ = {}
    comm.init_distributed(dist_backend="gloo", auto_mpi_discovery=False, verbose=False)
    parallel_state_sp.initialize_sequence_parallel(2)
    torch.manual_seed(1)
    one = nn.Linear(8, 1)
    sequence = torch.randn(1, 16, 8)
    one(sequence).square().sum().backward()
    for stage, reduce_scatter in ((1, True), (2, True), (3, True), (3, False)):
        ratio = norm_of_gradient(sequence, stage, reduce_scatter) / float(one.weight.grad.norm())
        if comm.get_rank() == 0:
            print(f"ZeRO-{stage}, reduce_scatter {reduce_scatter}: {ratio:.6f} of one process's gradient", flush=True)
    comm.destroy_process_group()


if __name__ == "__main__":
    main()
