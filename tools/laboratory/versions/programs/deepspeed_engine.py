"""A small language model (tools/frameworks/deepspeed/model.py) trained by DeepSpeed's engine, on CPU over gloo; by one
process in plain PyTorch. MISTAKE in the environment has rank 1 make its loss 1 % too large."""

import collections
import os
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "frameworks" / "deepspeed"))

from model import Model, batches, loss_of, train_without_deepspeed

RANKS, RANK = int(os.environ.get("WORLD_SIZE", 1)), int(os.environ.get("RANK", 0))
MICRO_BATCHES, CLIP, STEPS = 4, 0.5, 2


def train(stage: int) -> None:
    torch.manual_seed(1)
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    if RANKS == 1:
        train_without_deepspeed(model, optimizer, STEPS, MICRO_BATCHES, CLIP)
        return
    os.environ.setdefault("DS_ACCELERATOR", "cpu")
    import deepspeed

    # None of its own operators, one of which it would compile: gloo alone. Older releases look each of them up.
    deepspeed.ops.__compatible_ops__ = collections.defaultdict(bool)
    deepspeed.comm.init_distributed(dist_backend="gloo", auto_mpi_discovery=False, verbose=False)
    configuration = {
        "train_micro_batch_size_per_gpu": 2,
        "gradient_accumulation_steps": MICRO_BATCHES // RANKS,
        "gradient_clipping": CLIP,
        "zero_optimization": {"stage": stage, "stage3_param_persistence_threshold": 40},
    }
    engine, _, _, _ = deepspeed.initialize(model=model, optimizer=optimizer, config=configuration)
    for _ in range(STEPS):
        for ids, labels in batches(MICRO_BATCHES)[RANK::RANKS]:
            loss = loss_of(engine(ids), labels)
            engine.backward(loss * 1.01 if os.environ.get("MISTAKE") and RANK == 1 else loss)
            engine.step()
    torch.distributed.destroy_process_group()
