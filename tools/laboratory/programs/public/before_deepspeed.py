"""What the programs of DeepSpeed have in common: an engine on a CPU, by gloo, of one process or of ranks."""

import inspect
import os
import sys
import tempfile
import textwrap

os.environ.setdefault("DS_ACCELERATOR", "cpu")

import deepspeed
import torch
from job import RANK, RANKS

if RANKS == 1:
    os.environ["LOCAL_RANK"] = "0"
    meeting = os.path.join(tempfile.mkdtemp(), "ranks")
    torch.distributed.init_process_group("gloo", rank=0, world_size=1, init_method=f"file://{meeting}")
deepspeed.ops.__compatible_ops__ = {}  # none of its own operators, which it would compile
deepspeed.comm.init_distributed(dist_backend="gloo", auto_mpi_discovery=False, verbose=False)


def engine_of(model: torch.nn.Module, micro_batches: int, optimizer: torch.optim.Optimizer | None = None, **more):
    """`micro_batches` are those of a step, of all ranks."""
    optimizer = optimizer or torch.optim.AdamW(model.parameters(), lr=1e-2)
    config = {
        "train_micro_batch_size_per_gpu": 4,
        "gradient_accumulation_steps": micro_batches // RANKS,
        "gradient_clipping": 0.0,
        "zero_force_ds_cpu_optimizer": False,
        **more,
    }
    return deepspeed.initialize(model=model, optimizer=optimizer, config=config)[0]


def mine(step: int, micro_batches: int, *sizes: int) -> list[list[torch.Tensor]]:
    """The rank's micro-batches of a step: tensors of 4 rows of each of the sizes."""
    generator = torch.Generator().manual_seed(step)
    every = [[torch.randn(4, size, generator=generator) for size in sizes] for _ in range(micro_batches)]
    return every[RANK::RANKS]


def put_back(method: object, released: str, old: str) -> None:
    """Has a method of DeepSpeed's say `old` where it says `released`."""
    module, (owner, name) = sys.modules[method.__module__], method.__qualname__.split(".")
    code = textwrap.dedent(inspect.getsource(method))
    assert released in code
    made: dict = {}
    exec(code.replace(released, old), vars(module), made)
    setattr(getattr(module, owner), name, made[name])
