"""Without ttrace: scans of a sharded DTensor by a negative dim, and by the same dim.
torchrun --standalone --nproc-per-node 2 confirm.py"""

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor


def main() -> None:
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    whole = torch.arange(1.0, 7.0)
    sharded = distribute_tensor(whole, mesh, [Shard(0)])
    for scan in (torch.cumsum, torch.cumprod, torch.logcumsumexp):
        for dim in (0, -1):
            right, found = scan(whole, dim), scan(sharded, dim).full_tensor()
            if dist.get_rank() == 0:
                rounded = [round(value, 3) for value in found.tolist()]
                print(
                    f"{scan.__name__}(dim={dim}): {rounded}: {'right' if right.equal(found) else 'wrong'}", flush=True
                )
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
