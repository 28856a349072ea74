"""PyTorch's DeviceMesh: the mesh that the program made with `init_device_mesh(..., mesh_dim_names=...)`.

Micro-batches are told apart along the axis `dp` (unless annotations name another). Where no dimension is called that
and only one of several ranks has a data parallel name (`fsdp`, `dp_shard`, `data`, ...), `dp` is an alias of it."""

import gc
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

MODULE = "torch.distributed.device_mesh"


def find(world_size: int) -> tuple[str, str] | None:
    """Of the meshes of all ranks that exist, the one with the most named dimensions (a flattened one has fewer);
    None where two of them disagree."""
    mesh_type = getattr(sys.modules[MODULE], "DeviceMesh", None)
    if mesh_type is None:
        return None
    # PyTorch keeps no public list of meshes; looking for them once costs some 50 ms.
    meshes = [found for found in gc.get_objects() if type(found) is mesh_type]
    meshes = [mesh for mesh in meshes if mesh.mesh_dim_names and mesh.mesh.numel() == world_size]
    dims = max((mesh.mesh.ndim for mesh in meshes), default=0)
    found = {_texts(mesh) for mesh in meshes if mesh.mesh.ndim == dims}
    return found.pop() if len(found) == 1 else None


def _texts(mesh: "DeviceMesh") -> tuple[str, str]:
    """Axes and coordinates, as `find` returns them."""
    sizes = dict(zip((name.lower() for name in mesh.mesh_dim_names), mesh.mesh.shape, strict=True))
    # The last dimension is the fastest, which `axes` names first.
    axes = ",".join(f"{name}={size}" for name, size in reversed(list(sizes.items())))
    data_parallel = [name for name, size in sizes.items() if size > 1 and _is_data_parallel(name)]
    if "dp" not in sizes and len(data_parallel) == 1:
        axes += f",dp={data_parallel[0]}"
    if mesh.mesh.flatten().tolist() == list(range(mesh.mesh.numel())):
        return axes, ""  # coordinates follow from the rank
    return axes, ",".join(f"{name}={at}" for name, at in zip(sizes, mesh.get_coordinate(), strict=True))


def _is_data_parallel(name: str) -> bool:
    return name != "edp" and ("dp" in name or name.startswith("data") or name in ("replicate", "shard"))
