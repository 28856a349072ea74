"""Without ttrace: `gather` by an index of fewer rows than its sharded input, and the loss of the program.
torchrun --standalone --nproc-per-node 2 confirm.py"""

import torch
import torch.distributed as dist
from program import train
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor


def main() -> None:
    dist.init_process_group("gloo")
    ranks, rank = dist.get_world_size(), dist.get_rank()
    mesh = init_device_mesh("cpu", (ranks,))
    rows = torch.arange(6.0).unsqueeze(1)
    for count in (6, 4, 2):
        index = torch.zeros(count, 1, dtype=torch.int64)
        sharded = distribute_tensor(rows, mesh, [Shard(0)])
        found = sharded.gather(1, distribute_tensor(index, mesh, [Replicate()])).full_tensor()
        if rank == 0:
            print(
                f"column 0 of the first {count} of 6 rows: one process {rows.gather(1, index).flatten().tolist()}, "
                f"{ranks} ranks {found.flatten().tolist()}"
            )
    for cut_first in (False, True):
        (right, _), (found, _) = train(cut_first, 1), train(cut_first, ranks)
        if rank == 0:
            said = "as many rows" if cut_first else "a row fewer"
            print(f"loss, labels of {said}: one process {right:.6f}, {ranks} ranks {found:.6f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
