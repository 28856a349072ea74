"""Trains the small model with DeepSpeed's engine, or in plain PyTorch.

python train.py --plain
python -m torch.distributed.run --nproc-per-node 2 train.py --zero 2 --dtype bfloat16
"""

import argparse
import os

os.environ.setdefault("DS_ACCELERATOR", "cpu")

import deepspeed
import torch
from deepspeed import comm
from deepspeed.runtime.sequence_parallel import parallel_state_sp
from deepspeed.sequence.layer import DistributedAttention
from model import SEQUENCE, Model, attend, batches, loss_of, train_without_deepspeed


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
    add("--zero", type=int, default=0, help="stage, 0 to 3")
    add("--ulysses", choices=("mpu", "mesh"), help="the ranks divide the sequence; how DeepSpeed is told")
    add("--dtype", choices=("float32", "bfloat16"), default="float32")
    add("--all-reduce", action="store_true", help="gradients, where ZeRO would scatter them as it reduces")
    add("--round-robin", action="store_true", help="ZeRO-1 and 2: ranks take turns with parameters")
    add("--keep-gathered", type=int, default=40, help="ZeRO-3: smaller parameters stay whole")
    add("--micro-batches", type=int, default=4, help="of a step, over all ranks")
    add("--clip", type=float, default=0.5, help="the largest gradient norm; 0 does not clip")
    add("--steps", type=int, default=1)
    return parser.parse_args()


def parameter_groups(model: Model) -> list[dict]:
    """Norms and biases do not decay."""
    matrices = [parameter for parameter in model.parameters() if parameter.dim() > 1]
    vectors = [parameter for parameter in model.parameters() if parameter.dim() <= 1]
    return [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}]


def train_plainly(options: argparse.Namespace) -> None:
    torch.manual_seed(1)
    model = Model()
    optimizer = torch.optim.AdamW(parameter_groups(model), lr=1e-3)
    train_without_deepspeed(model, optimizer, options.steps, options.micro_batches, options.clip)


def train(options: argparse.Namespace) -> None:
    deepspeed.ops.__compatible_ops__ = {}  # none of its own operators, one of which it would compile: gloo alone
    comm.init_distributed(dist_backend="gloo", auto_mpi_discovery=False, verbose=False)
    ranks, rank = comm.get_world_size(), comm.get_rank()
    torch.manual_seed(1)
    if options.ulysses:
        parallel_state_sp.initialize_sequence_parallel(ranks)
        model, data_ranks, data_rank = Model(new_ulysses_attention), 1, 0
        own = slice(rank * SEQUENCE // ranks, (rank + 1) * SEQUENCE // ranks)
    else:
        model, data_ranks, data_rank = Model(), ranks, rank
        own = slice(0, SEQUENCE)
    engine, _, _, _ = deepspeed.initialize(
        model=model,
        optimizer=torch.optim.AdamW(parameter_groups(model), lr=1e-3),
        config=configuration(options, data_ranks),
        mpu=parallel_state_sp if options.ulysses == "mpu" else None,
        mesh_param=(data_ranks, ranks) if options.ulysses == "mesh" else None,
    )
    for _ in range(options.steps):
        for ids, labels in batches(options.micro_batches)[data_rank::data_ranks]:
            loss = loss_of(engine(ids[:, own], own.start), labels[:, own])
            engine.backward(loss * data_ranks / ranks)  # gradients are summed over the ranks of a sequence
            engine.step()
    print(f"loss {loss.item()}")
    comm.destroy_process_group()


def new_ulysses_attention() -> DistributedAttention:
    """Every rank attends with some of the heads over the whole sequence."""
    group = parallel_state_sp.get_sequence_parallel_group()
    return DistributedAttention(attend, group, scatter_idx=2, gather_idx=1)


def configuration(options: argparse.Namespace, data_ranks: int) -> dict:
    return {
        "train_micro_batch_size_per_gpu": 2,
        "gradient_accumulation_steps": options.micro_batches // data_ranks,
        "gradient_clipping": options.clip,
        "zero_optimization": {
            "stage": options.zero,
            "stage3_param_persistence_threshold": options.keep_gathered,
            "reduce_scatter": not options.all_reduce,
            "round_robin_gradients": options.round_robin,
        },
        "bf16": {"enabled": options.dtype == "bfloat16"},
    }


if __name__ == "__main__":
    main()
