"""Without ttrace: the loss and the gradient of the head's weight, of one process and of the program's ranks.
torchrun --standalone --nproc-per-node 2 confirm.py"""

import torch.distributed as dist
from program import train


def main() -> None:
    dist.init_process_group("gloo")
    ranks, rank = dist.get_world_size(), dist.get_rank()
    for flattened in (False, True):
        (right, model), (found, sharded) = train(flattened, 1), train(flattened, ranks)
        expected, gradient = model.head.weight.grad, sharded.head.weight.grad.full_tensor()
        if rank == 0:
            said = "a row for each pixel" if flattened else "images"
            print(
                f"{said}: loss of one process {right:.6f}, of {ranks} ranks {found:.6f}; gradient of the head's weight "
                f"off by {float((gradient - expected).norm() / expected.norm()):.2g} of its norm",
                flush=True,
            )
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
