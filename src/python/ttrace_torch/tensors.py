"""Tensors inside the values that modules take and return, and a tensor's bytes for the recorder."""

import copy
import dataclasses
import enum
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from types import BuiltinFunctionType, FunctionType, MappingProxyType, MethodType, ModuleType
from typing import Any

import torch

from . import library
from .problems import CollectError

_DTYPES = {getattr(torch, name): code for name, code in library.DTYPES.items() if hasattr(torch, name)}
_PLAIN = (torch.Tensor, torch.nn.Parameter, getattr(torch.nn, "Buffer", torch.nn.Parameter))
# Of no interest for tensors: what they hold is recorded elsewhere (a module's parameters), or never a module's input.
_HOLDS_NOTHING = (
    type(None),
    bool,
    int,
    float,
    complex,
    str,
    bytes,
    range,
    slice,
    type,
    enum.Enum,
    torch.dtype,
    torch.device,
    torch.Generator,
    torch.nn.Module,
    FunctionType,
    MethodType,
    BuiltinFunctionType,
    ModuleType,
)


class NotTraceable(Exception):
    """The text says what the tensor is: "a sparse tensor"."""


def dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).rpartition(".")[2]


def inputs_of(args: tuple, kwargs: dict) -> list[tuple[str, torch.Tensor]]:
    """A module's input tensors with the suffix of their names: "" for the only one, else ":0" (its position),
    ":mask" (its keyword). Parameters that are passed as arguments are recorded as parameters, not as inputs."""
    return _named([*_members(args, ""), *_members(kwargs, "")])


def outputs_of(result: Any) -> list[tuple[str, torch.Tensor]]:
    return _named(list(_members(result, "")))


def _named(found: list[tuple[str, torch.Tensor]]) -> list[tuple[str, torch.Tensor]]:
    found = [(path, tensor) for path, tensor in found if not isinstance(tensor, torch.nn.Parameter)]
    return [("", found[0][1])] if len(found) == 1 else found


def _members(value: Any, path: str) -> Iterator[tuple[str, torch.Tensor]]:
    if isinstance(value, torch.Tensor):
        yield path, value
        return
    for key, member in _items(value):
        yield from _members(member, f"{path}.{key}" if path else f":{key}")


def _items(value: Any) -> Iterator[tuple[Any, Any]]:
    if isinstance(value, Mapping):
        return iter(value.items())
    if isinstance(value, (tuple, list, deque)):
        return iter(enumerate(value))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return ((field.name, getattr(value, field.name, None)) for field in dataclasses.fields(value))
    return iter(())


def unseen_in(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """What `value` holds that `inputs_of` and `outputs_of` pass over, though tensors may be in it: iterators, which
    looking would use up, and objects of classes unknown here that hold a floating-point tensor (one of integers is like
    a number: a place, a mask). With its path, as in ":0.cache"."""
    if isinstance(value, (torch.Tensor, *_HOLDS_NOTHING)):
        return
    for key, member in _items(value):
        yield from unseen_in(member, f"{path}.{key}" if path else f":{key}")
    if isinstance(value, Iterator) or any(_holds_floating(member, 2) for member in _unlisted(value)):
        yield path, value


def _holds_floating(value: Any, depth: int) -> bool:
    if isinstance(value, torch.Tensor):
        return is_floating(value)
    if isinstance(value, Iterator):
        return True
    if depth == 0 or isinstance(value, _HOLDS_NOTHING):
        return False
    members = [*(member for _, member in _items(value)), *_unlisted(value)]
    return any(_holds_floating(member, depth - 1) for member in members)


def _unlisted(value: Any) -> list:
    """What `value` holds and `_items` does not list."""
    if isinstance(value, (Mapping, tuple, list, deque)):
        return []
    if isinstance(value, (set, frozenset)):
        return list(value)
    listed = {name for name, _ in _items(value)}
    slots = {
        name: getattr(value, name)
        for base in type(value).__mro__
        for name in getattr(base, "__slots__", ())
        if hasattr(value, name)
    }
    attributes = {**slots, **getattr(value, "__dict__", {})}
    return [member for name, member in attributes.items() if name not in listed]


def replaced(value: Any, old: torch.Tensor, new: torch.Tensor) -> Any:
    """`value` with `new` wherever it holds `old`. Containers are copied, the caller's stay as they are. Raises
    CollectError where one cannot be copied."""
    if value is old:
        return new
    items = list(_items(value))
    members = {key: replaced(member, old, new) for key, member in items}
    if all(members[key] is before for key, before in items):
        return value
    try:
        again = _with_members(value, items, members)
    except Exception as error:
        raise CollectError(f"a {type(value).__name__} cannot be copied with another tensor in it: {error!r}")
    if any(member is not members[key] for key, member in _items(again)):
        raise CollectError(f"a {type(value).__name__} cannot be copied with another tensor in it: the copy has the old")
    return again


def _with_members(value: Any, items: list, members: dict) -> Any:
    if isinstance(value, tuple):
        make = getattr(value, "_make", type(value))  # a named tuple's takes them as one
        return make(members.values())
    if isinstance(value, MappingProxyType):
        return MappingProxyType({**value, **members})
    if isinstance(value, Mapping) and not isinstance(value, dict):
        # A shallow copy may share what it keeps the members in. This is the deep one, that keeps all but the one.
        return copy.deepcopy(value, {id(before): members[key] for key, before in items})
    again = copy.copy(value)
    for key, before in items:
        if members[key] is not before and dataclasses.is_dataclass(value):
            object.__setattr__(again, key, members[key])  # also where it is frozen
        if members[key] is not before and isinstance(value, (dict, list, deque)):
            again[key] = members[key]
    return again


def is_floating(tensor: torch.Tensor) -> bool:
    return tensor.dtype.is_floating_point


def first_that(test: Callable[[torch.Tensor], bool], found: list[tuple[str, torch.Tensor]]) -> torch.Tensor | None:
    return next((tensor for _, tensor in found if test(tensor)), None)


def is_dtensor(tensor: torch.Tensor) -> bool:
    return isinstance(getattr(tensor, "_local_tensor", None), torch.Tensor)


def to_host(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor in host memory that libttrace can read by address, the same one where possible; of a DTensor this
    rank's part. Raises NotTraceable."""
    if torch.nn.parameter.is_lazy(tensor):
        raise NotTraceable("a lazy parameter: it has no value before the first forward, and no gradient hook then")
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
