"""Without ttrace: losses of an unevenly sharded batch, against one process.
torchrun --standalone --nproc-per-node 2 confirm.py"""

import torch.distributed as dist
from program import BATCH, LOSSES, train


def main() -> None:
    dist.init_process_group("gloo")
    ranks = dist.get_world_size()
    for loss in LOSSES:
        for divided in (False, True):
            (right, _), (found, _) = (train(loss.__name__, divided, count) for count in (1, ranks))
            if dist.get_rank() == 0:
                said = "sum divided" if divided else "mean"
                print(
                    f"{loss.__name__}, {said}, of {BATCH} rows: one process {right:.6f}, {ranks} ranks {found:.6f}",
                    flush=True,
                )
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
