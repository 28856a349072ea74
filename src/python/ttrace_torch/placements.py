"""Where a DTensor lies, as a recorded mapping (src/base/mapping.h): which axis of the trace splits which
dimension, and the shape of the whole.

A dimension of the program's device mesh is the axis, or the nested axes, whose ranks it joins in the same order. Its
name, where it has one that the trace knows, must say the same."""

import inspect
import json
import sys
from typing import TYPE_CHECKING, Any

import torch

from .mesh_position import MeshPosition
from .problems import CollectError
from .tensors import NotTraceable, is_dtensor

if TYPE_CHECKING:  # at run time its presence means that the program uses it: adapters/device_mesh.py
    from torch.distributed.device_mesh import DeviceMesh


class Placements:
    def __init__(self, position: MeshPosition):
        self.position = position
        self._known: dict[tuple, str] = {}  # (mesh, placements, shape) -> JSON

    def mapping_of(self, tensor: torch.Tensor) -> str:
        """JSON; "" for a tensor that is no DTensor, or one of this rank alone. Raises NotTraceable; CollectError where
        the mesh contradicts the axes of the trace."""
        if not is_dtensor(tensor):
            return ""
        key = (tensor.device_mesh, tensor.placements, tuple(tensor.shape))
        if key not in self._known:
            axes = [entry for dim in _nesting(tensor) for entry in self._entries(tensor, dim)]
            self._known[key] = json.dumps({"axes": axes, "shape": list(tensor.shape)}) if axes else ""
        return self._known[key]

    def of_term(self, shape: torch.Size, over: "DeviceMesh | tuple[str, ...]") -> str:
        """Of a tensor that is yet to be summed, over all ranks of a mesh or over axes. As `mapping_of`; "" where the
        trace does not have these axes, or they are of one rank."""
        if isinstance(over, tuple):
            axes = [(name, size) for name, size in self.position.sizes().items() if name in over and size > 1]
            if not axes:
                return ""
        else:
            axes = [axis for dim in range(over.ndim) for axis in self._axes_of(over, dim)]
        partial = [{"axis": name, "size": size, "placement": "partial"} for name, size in axes]
        return json.dumps({"axes": partial, "shape": list(shape)})

    def _entries(self, tensor: torch.Tensor, mesh_dim: int) -> list[dict]:
        placement = tensor.placements[mesh_dim]
        axes = self._axes_of(tensor.device_mesh, mesh_dim)
        if placement.is_replicate():
            words: dict[str, Any] = {"placement": "replicate"}
        elif placement.is_partial():
            words = {"placement": _word_of_partial(placement)}
        else:
            words = {"placement": "shard", "dim": placement.dim % tensor.dim()}
            blocks = _stacked_blocks(tensor, mesh_dim)
            if blocks > 1 and len(axes) > 1:
                raise NotTraceable(f"a DTensor placed {placement!r} over several axes of the trace")
            if blocks > 1:
                words |= {"layout": "stacked", "blocks": [1] * blocks}
        return [{"axis": name, "size": size, **words} for name, size in axes]

    def _axes_of(self, mesh: "DeviceMesh", mesh_dim: int) -> list[tuple[str, int]]:
        """Name and size of the axes that a dimension of the mesh consists of, outermost first."""
        if not self.position.is_known:
            raise NotTraceable("a DTensor, of a program whose meshes do not say together how its ranks are arranged")
        at = mesh.get_coordinate()
        if at is None:
            raise NotTraceable("a DTensor on a mesh that this rank is no part of")
        ranks = mesh.mesh[(*at[:mesh_dim], slice(None), *at[mesh_dim + 1 :])].tolist()
        if len(ranks) == 1:
            return []
        position = self.position
        name = position.axis_named(mesh.mesh_dim_names[mesh_dim].lower()) if mesh.mesh_dim_names else None
        if position.coordinates:  # the ranks are in an order of their own: names must do
            agrees = name is not None and (position.size(name), position.coordinate(name)) == (len(ranks), at[mesh_dim])
            found = [(name, len(ranks))] if agrees else []
        else:
            found = position.axes_joining(ranks, name)
            agrees = bool(found) and (name is None or found == [(name, len(ranks))])
        if not agrees:
            raise CollectError(_disagreement(mesh, mesh_dim, ranks, position))
        return found


def part_of(whole: torch.Tensor, tensor: torch.Tensor) -> torch.Tensor:
    """`whole`, which every rank has, placed as the DTensor `tensor` is. Raises CollectError."""
    if any(placement.is_partial() for placement in tensor.placements):
        raise CollectError(f"--perturb: the first activation is a DTensor placed {tensor.placements}; expected no sum")
    # From where its class is, whose module has had several names; a program without DTensors need not load it.
    modules = (sys.modules.get(base.__module__) for base in type(tensor).__mro__)
    distribute = next(module.distribute_tensor for module in modules if hasattr(module, "distribute_tensor"))
    # Without that option it sends the first rank's, which is the same.
    local = {"src_data_rank": None} if "src_data_rank" in inspect.signature(distribute).parameters else {}
    return distribute(whole, tensor.device_mesh, tensor.placements, **local)


def _nesting(tensor: torch.Tensor) -> list[int]:
    """The dimensions of the mesh, outermost first. DTensor splits by them in order, but for a strided shard, which
    splits what `split_factor` parts by later dimensions of the mesh have left (FSDP after tensor parallelism), or each
    of that many blocks (a packed projection)."""
    order: list[int] = []
    for mesh_dim in reversed(range(len(tensor.placements))):
        placement = tensor.placements[mesh_dim]
        blocks = _stacked_blocks(tensor, mesh_dim)
        left, at = getattr(placement, "split_factor", 1) // blocks, 0
        while left > 1 and at < len(order):
            outer = tensor.placements[order[at]]
            if hasattr(outer, "dim") and outer.dim == placement.dim:
                left //= tensor.device_mesh.size(order[at])
            at += 1
        if left != 1:
            raise NotTraceable(f"a DTensor placed {placement!r} of mesh {tuple(tensor.device_mesh.mesh.shape)}")
        order.insert(at, mesh_dim)
    return order


def _stacked_blocks(tensor: torch.Tensor, mesh_dim: int) -> int:
    """Of how many equal blocks, one after the other, each rank holds its share: a strided shard that no other dimension
    of the mesh splits has as many as its split factor. 1 for any other placement."""
    placement, mesh = tensor.placements[mesh_dim], tensor.device_mesh
    blocks = getattr(placement, "split_factor", 1)
    others = [other for dim, other in enumerate(tensor.placements) if dim != mesh_dim and mesh.size(dim) > 1]
    if blocks == 1 or any(getattr(other, "dim", None) == placement.dim for other in others):
        return 1
    if tensor.shape[placement.dim] % (blocks * mesh.size(mesh_dim)):
        raise NotTraceable(f"a DTensor of {tuple(tensor.shape)} placed {placement!r}, which does not divide it")
    return blocks


def _word_of_partial(placement: Any) -> str:
    operation = str(placement.reduce_op).lower()
    # Sums and means only: not the subclasses for norms and for masked embeddings.
    if type(placement).__name__ not in ("Partial", "_Partial") or not ("sum" in operation or "avg" in operation):
        raise NotTraceable(f"a DTensor placed {placement!r}")
    return "partial" if "sum" in operation else "mean"


def _disagreement(mesh: "DeviceMesh", mesh_dim: int, ranks: list[int], position: MeshPosition) -> str:
    names = mesh.mesh_dim_names or "?" * mesh.ndim
    dims = ", ".join(f"{name}={size}" for name, size in zip(names, mesh.mesh.shape, strict=True))
    called = f"'{mesh.mesh_dim_names[mesh_dim]}'" if mesh.mesh_dim_names else str(mesh_dim)
    return (
        f"--axes {position.axes}: the program's device mesh ({dims}) joins ranks {', '.join(map(str, ranks))} in its "
        f"dimension {called}; expected an axis of that name that joins the same ranks"
    )
