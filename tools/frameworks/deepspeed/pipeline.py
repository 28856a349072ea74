"""Trains the small model, given as a list of layers, with DeepSpeed's pipeline engine, or in plain PyTorch.

python pipeline.py --plain
python -m torch.distributed.run --nproc-per-node 2 pipeline.py --stages 2
"""

import argparse
import os

os.environ.setdefault("DS_ACCELERATOR", "cpu")

import deepspeed
import torch
from deepspeed import comm
from deepspeed.pipe import LayerSpec, PipelineModule
from model import LAYERS, Attend, Block, Embedding, Head, batches, loss_of, train_without_deepspeed
from torch import nn


def main() -> None:
    options = parsed_options()
    if options.plain:
        train_plainly(options)
    else:
        train(options)


def parsed_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--plain", action="store_true", help="one process, in float32, without DeepSpeed")
    add("--stages", type=int, default=2)
    add("--zero", type=int, default=0, help="stage, 0 or 1")
    add("--micro-batches", type=int, default=4, help="of a step, over all ranks")
    add("--clip", type=float, default=0.5, help="the largest gradient norm; 0 does not clip")
    add("--steps", type=int, default=1)
    return parser.parse_args()


def layers() -> list[LayerSpec]:
    return [LayerSpec(Embedding), *(LayerSpec(Block, Attend()) for _ in range(LAYERS)), LayerSpec(Head)]


def train_plainly(options: argparse.Namespace) -> None:
    model = nn.Sequential()
    for index, layer in enumerate(layers()):
        torch.manual_seed(index)  # as PipelineModule's seed_layers
        model.append(layer.build())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    train_without_deepspeed(model, optimizer, options.steps, options.micro_batches, options.clip)


def train(options: argparse.Namespace) -> None:
    deepspeed.ops.__compatible_ops__ = {}  # none of its own operators, one of which it would compile: gloo alone
    comm.init_distributed(dist_backend="gloo", auto_mpi_discovery=False, verbose=False)
    model = PipelineModule(
        layers(), options.stages, loss_fn=loss_of, seed_layers=True, base_seed=0, seed_fn=torch.manual_seed
    )
    data_ranks = comm.get_world_size() // options.stages
    data_rank = model.topology().get_coord(comm.get_rank()).data
    engine, _, _, _ = deepspeed.initialize(
        model=model,
        optimizer=torch.optim.AdamW(list(model.parameters()), lr=1e-3),
        config={
            "train_micro_batch_size_per_gpu": 2,
            "gradient_accumulation_steps": options.micro_batches // data_ranks,
            "gradient_clipping": options.clip,
            "zero_optimization": {"stage": options.zero},
        },
    )
    for _ in range(options.steps):
        loss = engine.train_batch(iter(batches(options.micro_batches)[data_rank::data_ranks]))
    print(f"loss {loss.item()}")
    comm.destroy_process_group()


if __name__ == "__main__":
    main()
