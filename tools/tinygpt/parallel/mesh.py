"""Where a rank stands: its coordinates and the process groups of its axes."""

import os
from dataclasses import dataclass
from datetime import timedelta

import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh


@dataclass(frozen=True)
class Axis:
    """One axis of the mesh, seen from this rank: the ranks that differ from it in this coordinate only."""

    rank: int  # this rank's coordinate
    size: int
    group: dist.ProcessGroup
    peers: tuple[int, ...]  # global ranks, by coordinate

    def sum(self, tensor):
        """Adds up `tensor` over the axis, in place."""
        if self.size > 1:
            dist.all_reduce(tensor, group=self.group)
        return tensor

    def max(self, tensor):
        if self.size > 1:
            dist.all_reduce(tensor, op=dist.ReduceOp.MAX, group=self.group)
        return tensor


@dataclass(frozen=True)
class Mesh:
    rank: int
    tp: Axis
    cp: Axis
    dp: Axis
    pp: Axis


def start_mesh(options):
    """Joins the processes that torchrun started. rank = tp + TP * (cp + CP * (dp + DP * pp))."""
    # A rank that died should not keep the others waiting for half an hour, the default.
    dist.init_process_group("gloo", timeout=timedelta(minutes=5))
    # The last dimension of a device mesh is the fastest.
    names = ("pp", "dp", "cp", "tp")
    mesh = init_device_mesh("cpu", tuple(getattr(options, name) for name in names), mesh_dim_names=names)
    axes = {}
    for name in names:
        group = mesh.get_group(name)
        peers = tuple(dist.get_process_group_ranks(group))
        axes[name] = Axis(mesh.get_local_rank(name), len(peers), group, peers)
    return Mesh(rank=int(os.environ["RANK"]), **axes)
