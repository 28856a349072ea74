"""Trains the small model of ../../deepspeed by ZeRO-2 from weights that it sets once DeepSpeed has the model, through
DeepSpeed's function for masters, or in plain PyTorch.

python program.py --plain
python -m torch.distributed.run --nproc-per-node 2 program.py [--in-turn]
"""

import argparse
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "frameworks" / "deepspeed"))
os.environ.setdefault("DS_ACCELERATOR", "cpu")

import deepspeed
import torch
from deepspeed import comm
from deepspeed.utils import safe_set_full_fp32_param
from model import Model, batches, loss_of, train_without_deepspeed
from torch import nn

MICRO_BATCHES = 4


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plain", action="store_true", help="one process, without DeepSpeed")
    parser.add_argument("--in-turn", action="store_true", help="ranks take turns with parameters")
    arguments = parser.parse_args()
    torch.manual_seed(1)
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    if arguments.plain:
        restore(model)
        train_without_deepspeed(model, optimizer, 1, MICRO_BATCHES, 0.0)
    else:
        train(model, optimizer, arguments.in_turn)


@torch.no_grad()
def restore(model: nn.Module) -> None:
    generator = torch.Generator().manual_seed(2)
    for parameter in model.parameters():
        parameter += 0.1 * torch.randn(parameter.shape, generator=generator)


def train(model: nn.Module, optimizer: torch.optim.Optimizer, in_turn: bool) -> None:
    deepspeed.ops.__compatible_ops__ = {}  # none of its own operators, one of which it would compile: gloo alone
    comm.init_distributed(dist_backend="gloo", auto_mpi_discovery=False, verbose=False)
    ranks, rank = comm.get_world_size(), comm.get_rank()
    config = {
        "train_micro_batch_size_per_gpu": 2,
        "gradient_accumulation_steps": MICRO_BATCHES // ranks,
        "gradient_clipping": 0.0,  # by default it clips to 1
        "zero_optimization": {"stage": 2, "round_robin_gradients": in_turn},
    }
    engine, _, _, _ = deepspeed.initialize(model=model, optimizer=optimizer, config=config)
    restore(engine.module)
    for parameter in engine.module.parameters():
        safe_set_full_fp32_param(parameter, parameter.detach())
    for ids, labels in batches(MICRO_BATCHES)[rank::ranks]:
        engine.backward(loss_of(engine(ids), labels))
        engine.step()
    comm.destroy_process_group()


if __name__ == "__main__":
    main()
