"""Without ttrace: gradients of losses of an evenly sharded batch, against one process.
torchrun --standalone --nproc-per-node 2 confirm.py"""

import torch.distributed as dist
from program import LOSSES, train


def main() -> None:
    dist.init_process_group("gloo")
    ranks = dist.get_world_size()
    for loss in LOSSES:
        for divided in (False, True):
            (right, one), (found, several) = (train(loss.__name__, divided, count) for count in (1, ranks))
            ratio = several.first.weight.grad.full_tensor().norm() / one.first.weight.grad.norm()
            if dist.get_rank() == 0:
                said = "sum divided" if divided else "mean"
                print(
                    f"{loss.__name__}, {said}: loss {right:.6f} and {found:.6f} on {ranks} ranks, whose gradient is "
                    f"{float(ratio):.6f} times one process's",
                    flush=True,
                )
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
