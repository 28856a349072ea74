"""Without ttrace: what sums over all dimensions are of a sharded DTensor, and gradients that need them.
torchrun --standalone --nproc-per-node 2 confirm.py"""

import torch
import torch.distributed as dist
from program import LARGEST, train, whole
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor


def main() -> None:
    dist.init_process_group("gloo")
    ranks = dist.get_world_size()
    numbers = torch.arange(1.0, 7.0).view(6, 1)
    sharded = distribute_tensor(numbers, init_device_mesh("cpu", (ranks,)), [Shard(0)])
    sums = [float(whole(tensor.sum(dim=(), keepdim=True))) for tensor in (numbers, sharded)]
    if dist.get_rank() == 0:
        print(f"sum(dim=(), keepdim=True) of 1 to 6: one process {sums[0]}, {ranks} ranks {sums[1]}")
    for name in LARGEST:
        right, found = (whole(train(name, count).first.weight.grad) for count in (1, ranks))
        if dist.get_rank() == 0:
            unsound = int((~found.isfinite()).sum())
            print(
                f"gradient of {name}: {unsound} of {found.numel()} elements of the gradient are not finite", flush=True
            )
            assert right.isfinite().all()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
