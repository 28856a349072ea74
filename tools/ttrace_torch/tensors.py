"""Tensors inside the values that modules take and return, and a tensor's bytes for the recorder."""

import dataclasses
from collections.abc import Mapping
from typing import Any, Callable, Iterator, List, Optional, Tuple

import torch

from . import library

_DTYPES = {getattr(torch, name): code for name, code in library.DTYPES.items() if hasattr(torch, name)}
_PLAIN = (torch.Tensor, torch.nn.Parameter, getattr(torch.nn, "Buffer", torch.nn.Parameter))


class NotTraceable(Exception):
    """The text says what the tensor is: "a sparse tensor"."""


def dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).rpartition(".")[2]


def inputs_of(args: tuple, kwargs: dict) -> List[Tuple[str, torch.Tensor]]:
    """A module's input tensors with the suffix of their names: "" for the only one, else ":0" (its position),
    ":mask" (its keyword). Parameters that are passed as arguments are recorded as parameters, not as inputs."""
    return _named([*_members(args, ""), *_members(kwargs, "")])


def outputs_of(result: Any) -> List[Tuple[str, torch.Tensor]]:
    return _named(list(_members(result, "")))


def _named(found: List[Tuple[str, torch.Tensor]]) -> List[Tuple[str, torch.Tensor]]:
    found = [(path, tensor) for path, tensor in found if not isinstance(tensor, torch.nn.Parameter)]
    return [("", found[0][1])] if len(found) == 1 else found


def _members(value: Any, path: str) -> Iterator[Tuple[str, torch.Tensor]]:
    if isinstance(value, torch.Tensor):
        yield path, value
        return
    for key, member in _items(value):
        yield from _members(member, f"{path}.{key}" if path else f":{key}")


def _items(value: Any) -> Iterator[Tuple[Any, Any]]:
    if isinstance(value, Mapping):
        return iter(value.items())
    if isinstance(value, (tuple, list)):
        return iter(enumerate(value))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return ((field.name, getattr(value, field.name, None)) for field in dataclasses.fields(value))
    return iter(())


def replaced(value: Any, old: torch.Tensor, new: torch.Tensor) -> Any:
    """`value` with `new` wherever it holds `old`. Containers are copied, the caller's stay as they are."""
    if value is old:
        return new
    members = [(key, replaced(member, old, new)) for key, member in _items(value)]
    if all(member is before for (_, member), (_, before) in zip(members, _items(value))):
        return value
    if dataclasses.is_dataclass(value):
        return dataclasses.replace(value, **dict(members))
    if isinstance(value, Mapping):
        return type(value)(members)
    if hasattr(value, "_fields"):  # a named tuple
        return type(value)(*(member for _, member in members))
    return type(value)(member for _, member in members)


def is_floating(tensor: torch.Tensor) -> bool:
    return tensor.dtype.is_floating_point


def first_that(test: Callable[[torch.Tensor], bool], found: List[Tuple[str, torch.Tensor]]) -> Optional[torch.Tensor]:
    return next((tensor for _, tensor in found if test(tensor)), None)


def is_dtensor(tensor: torch.Tensor) -> bool:
    return isinstance(getattr(tensor, "_local_tensor", None), torch.Tensor)


def to_host(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor in host memory that libttrace can read by address, the same one where possible; of a DTensor this
    rank's part. Raises NotTraceable."""
    if is_dtensor(tensor):
        tensor = tensor._local_tensor
    if type(tensor).__name__ == "AsyncCollectiveTensor":
        tensor = tensor.wait()
    if not isinstance(tensor, _PLAIN) or type(tensor).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__:
        raise NotTraceable(f"a {type(tensor).__name__}")
    if tensor.layout is not torch.strided:
        raise NotTraceable(f"a {dtype_name(tensor.layout)} tensor")
    if tensor.is_meta:
        raise NotTraceable("a tensor without data (device meta)")
    if tensor.dtype not in _DTYPES:
        raise NotTraceable(f"a tensor of dtype {dtype_name(tensor.dtype)}")
    if tensor.dim() > library.MAX_DIMS:
        raise NotTraceable(f"a tensor of {tensor.dim()} dimensions")
    if tensor.is_neg():
        tensor = tensor.detach().resolve_neg()
    if tensor.device.type == "cpu":
        return tensor
    if tensor.is_cuda and torch.cuda.is_current_stream_capturing():
        raise NotTraceable("computed inside a CUDA graph that is being captured")
    return tensor.detach().to("cpu")


def dtype_code(tensor: torch.Tensor) -> int:
    return _DTYPES[tensor.dtype]
