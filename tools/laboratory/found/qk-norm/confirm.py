"""Without ttrace: the gradients of a query norm and of another norm under tensor parallelism, against one process, for
1 to 4 micro-batches. torchrun --standalone --nproc-per-node 2 confirm.py"""

import tempfile

import torch
import torch.distributed as dist
from program import load, micro_batches, save_checkpoint
from torch.distributed.tensor import DTensor

NAMES = ("self_attn.q_norm", "self_attn.k_norm", "input_layernorm")


def compare(path: str) -> None:
    for count in range(1, 5):
        one, several = load(path, 1), load(path, 2)
        for model in (one, several):
            for tokens in micro_batches(count):
                model(input_ids=tokens, labels=tokens).loss.backward()
        errors = []
        for name in NAMES:
            right, found = (model.model.layers[0].get_submodule(name).weight.grad for model in (one, several))
            found = found.full_tensor() if isinstance(found, DTensor) else found
            errors.append(f"{name} {float(torch.dist(right, found) / right.norm()):.3g}")
        if dist.get_rank() == 0:
            print(f"{count} micro-batches: relative errors of gradients: {', '.join(errors)}", flush=True)


def main() -> None:
    with tempfile.TemporaryDirectory() as path:
        save_checkpoint(path)
        dist.init_process_group("gloo")
        compare(path)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
