"""Where a rank stands: its coordinates and the process groups of its axes."""

import os
from dataclasses import dataclass
from datetime import timedelta

import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh


@dataclass(frozen=True)
class Coordinate:
    rank: int  # this rank's coordinate on an axis
    size: int


@dataclass(frozen=True)
class Axis(Coordinate):
    """One axis of the mesh, seen from this rank: the ranks that differ from it in this coordinate only."""

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
class ExpertAxes:
    """The ranks of a stage in the experts' order: etp + ETP * (ep + EP * edp)."""

    etp: Coordinate
    ep: Coordinate
    edp: Axis
    block: Axis  # etp and ep as one: etp + ETP * ep


@dataclass(frozen=True)
class Mesh:
    rank: int
    tp: Axis
    cp: Axis
    dp: Axis
    pp: Axis
    experts: ExpertAxes | None  # None: a model without experts


def start_mesh(options):
    """Joins the processes that torchrun started. rank = tp + TP * (cp + CP * (dp + DP * pp))."""
    # A rank that died should not keep the others waiting for half an hour, the default.
    dist.init_process_group("gloo", timeout=timedelta(minutes=5))
    # The last dimension of a device mesh is the fastest.
    names = ("pp", "dp", "cp", "tp")
    mesh = init_device_mesh("cpu", tuple(getattr(options, name) for name in names), mesh_dim_names=names)
    axes = {name: _axis(mesh, name) for name in names}
    experts = _expert_axes(options) if options.experts else None
    return Mesh(rank=int(os.environ["RANK"]), experts=experts, **axes)


def _axis(mesh, dimension):
    group = mesh.get_group(dimension)
    peers = tuple(dist.get_process_group_ranks(group))
    return Axis(mesh.get_local_rank(dimension), len(peers), group, peers)


def _expert_axes(options):
    block = options.ep * options.etp
    blocks = options.world_size // options.pp // block
    # Without names: the mesh that has them says where a rank stands.
    mesh = init_device_mesh("cpu", (options.pp, blocks, block))
    edp, block = _axis(mesh, 1), _axis(mesh, 2)
    ep, etp = divmod(block.rank, options.etp)
    return ExpertAxes(Coordinate(etp, options.etp), Coordinate(ep, options.ep), edp, block)
