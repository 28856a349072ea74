"""Without ttrace: what `fill_` makes of a DTensor whose ranks hold parts of a sum, and a loss that does so.
torchrun --standalone --nproc-per-node 2 confirm.py"""

import torch
import torch.distributed as dist
from program import train
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial


def main() -> None:
    dist.init_process_group("gloo")
    ranks = dist.get_world_size()
    partial = DTensor.from_local(torch.ones(3), init_device_mesh("cpu", (ranks,)), [Partial()])
    filled = torch.empty_like(partial).fill_(1.0).full_tensor()
    if dist.get_rank() == 0:
        print(f"empty_like(partial).fill_(1): {filled.tolist()}")
    for composed in (False, True):
        right, found = train(composed, 1), train(composed, ranks)
        if dist.get_rank() == 0:
            name = "1 - cosine_similarity" if composed else "cosine_embedding_loss"
            print(f"{name}: one process {right:.6f}, {ranks} ranks {found:.6f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
