"""Tensor parallelism on a mesh without names, as Hugging Face's `tp_plan` makes it: parameters are DTensors there, and
their gradients are not averaged over its ranks (data_parallel.py knows those)."""

from collections.abc import Iterator

import torch

from ..factoring import Group
from ..tensors import is_dtensor, named_parameters
from .adapter import Adapter
from .data_parallel import averagings
from .device_mesh import ranks_of_dims


class TensorParallel(Adapter, module="torch.distributed.tensor"):
    def groups(self, model: torch.nn.Module | None) -> Iterator[Group]:
        averaged = [ranks for averaging in averagings(model) for ranks in averaging.groups]
        parameters = () if model is None else (parameter for _, parameter in named_parameters(model))
        for mesh in {parameter.device_mesh for parameter in parameters if is_dtensor(parameter)}:
            if mesh.mesh.ndim == 1 and not mesh.mesh_dim_names and mesh.get_coordinate() is not None:
                ranks = ranks_of_dims(mesh)[0]
                if ranks not in averaged:
                    yield Group("tp", ranks)
