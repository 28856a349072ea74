"""Without ttrace: the cross-entropy of an evenly sharded batch whose ignored labels are not spread evenly, against one
process. torchrun --standalone --nproc-per-node 2 confirm.py"""

import torch.distributed as dist
from program import IGNORED, UNEVENLY, train


def main() -> None:
    dist.init_process_group("gloo")
    ranks = dist.get_world_size()
    for labels in (UNEVENLY, (IGNORED, 1, 0, IGNORED, 3, 0), (IGNORED, IGNORED, IGNORED, 2, 3, 0)):
        for divided in (False, True):
            right, found = train(labels, divided, 1), train(labels, divided, ranks)
            if dist.get_rank() == 0:
                said = "sum divided" if divided else "mean"
                print(f"labels {labels}, {said}: one process {right:.6f}, {ranks} ranks {found:.6f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
