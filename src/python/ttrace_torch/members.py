"""The tensors inside the values that modules take and return: what they are called, and how to put others in their
place."""

import copy
import dataclasses
import enum
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import BuiltinFunctionType, FunctionType, MappingProxyType, MethodType, ModuleType
from typing import Any

import torch

from .problems import CollectError
from .tensors import is_floating

# With the suffix that its name has in that of the module: ":0" (its position), ":mask" (its keyword), ":0.hidden"
# (deeper inside); "" for the only positional argument, and for the only tensor that is returned, where it has no name.
Member = tuple[str, torch.Tensor]

# Tensors and containers in what one call is given, or returns. Lists that hold a list twice, forty of them one inside
# the other, have 2^40: a program that does not look into them is not to wait for that.
_MOST_VALUES = 1_000_000

_LISTS = (tuple, list, deque)
_PLAIN_CONTAINERS = (*_LISTS, dict)  # no class derived from one: that may be an iterator

# Values in which no tensors are looked for: they have none, or it is recorded elsewhere (a module's parameters).
_WITHOUT_TENSORS = (
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
_LISTED_OR_WITHOUT = (torch.Tensor, *_WITHOUT_TENSORS)
_NUMBERS_AND_TEXTS = frozenset((type(None), bool, int, float, str))
_CLOSED = _NUMBERS_AND_TEXTS | {torch.Tensor, torch.nn.Parameter}  # the most frequent ones


def inputs_of(args: tuple, kwargs: dict) -> list[Member]:
    """The tensors that a module is given. Parameters among them are left out: they are recorded as parameters. What one
    is called does not depend on which others are None: pipeline stages, and programs, differ in that."""
    only, look = len(args) == 1 and isinstance(args[0], torch.Tensor), _Look()
    positional = [("", args[0])] if only else _members(args, "", look)
    return _without_parameters([*positional, *_members(kwargs, "", look)] if kwargs else positional)


def outputs_of(result: Any) -> list[Member]:
    if type(result) is torch.Tensor:
        return [("", result)]
    found = _without_parameters(_members(result, "", _Look()))
    has_name = any(not part.isdigit() for path, _ in found for part in path[1:].split("."))
    return [("", found[0][1])] if len(found) == 1 and not has_name else found


def _without_parameters(found: Iterable[Member]) -> list[Member]:
    # The second question takes long.
    return [
        (path, tensor)
        for path, tensor in found
        if type(tensor) is torch.Tensor or not isinstance(tensor, torch.nn.Parameter)
    ]


class _Look:
    """Lists the values inside others, and no more than `_MOST_VALUES` in all. Raises CollectError."""

    def __init__(self) -> None:
        self._left = _MOST_VALUES

    def items(self, value: Any) -> Iterator[tuple[Any, Any]]:
        for item in _items(value):
            self._left -= type(item[1]) not in _NUMBERS_AND_TEXTS
            if self._left < 0:
                raise CollectError(
                    f"a module is given, or returns, more than {_MOST_VALUES:,} tensors and containers, with those "
                    f"that are repeated in them, the last in a {type(value).__name__}; expected fewer"
                )
            yield item


def _members(value: Any, path: str, look: _Look) -> Iterator[Member]:
    if isinstance(value, torch.Tensor):
        yield path, value
        return
    for key, member in look.items(value):
        yield from _members(member, f"{path}.{key}" if path else f":{key}", look)


def _items(value: Any) -> Iterator[tuple[Any, Any]]:
    if isinstance(value, _LISTS):
        return enumerate(value)
    if isinstance(value, (dict, Mapping)):  # most are dictionaries; to ask whether something is a Mapping takes long
        return iter(value.items())
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return ((field.name, getattr(value, field.name, None)) for field in dataclasses.fields(value))
    return iter(())


def is_plainly_seen(value: Any) -> bool:
    """Whether a glance tells that `unseen_in` finds nothing in `value`."""
    kind = type(value)
    if kind in _CLOSED:
        return True
    if kind is not tuple and kind is not dict:
        return False
    return all(type(member) in _CLOSED for member in (value if kind is tuple else value.values()))


def unseen_in(value: Any, path: str = "", look: _Look | None = None) -> Iterator[tuple[str, Any]]:
    """What `value` holds that `inputs_of` and `outputs_of` pass over, though tensors may be in it: iterators, which
    looking would use up, and objects of classes unknown here that hold a floating-point tensor (one of integers is like
    a number: a place, a mask). With its path, as in ":0.cache"."""
    is_plain = type(value) in _PLAIN_CONTAINERS
    if not is_plain and isinstance(value, _LISTED_OR_WITHOUT):
        return
    look = look or _Look()
    for key, member in look.items(value):
        yield from unseen_in(member, f"{path}.{key}" if path else f":{key}", look)
    if is_plain:  # it holds nothing but its items
        return
    if isinstance(value, Iterator) or any(_holds_floating(member, 2) for member in _unlisted(value)):
        yield path, value


def _holds_floating(value: Any, depth: int) -> bool:
    if isinstance(value, torch.Tensor):
        return is_floating(value)
    if isinstance(value, Iterator):
        return True
    if depth == 0 or isinstance(value, _WITHOUT_TENSORS):
        return False
    members = [*(member for _, member in _items(value)), *_unlisted(value)]
    return any(_holds_floating(member, depth - 1) for member in members)


def _unlisted(value: Any) -> list:
    """What `value` holds and `_items` does not list."""
    if isinstance(value, (*_LISTS, Mapping)):
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


def replaced(value: Any, old: torch.Tensor, new: torch.Tensor, look: _Look | None = None) -> Any:
    """`value` with `new` wherever it holds `old`. Containers are copied, the caller's stay as they are. Raises
    CollectError where one cannot be copied."""
    if value is old:
        return new
    look = look or _Look()
    items = list(look.items(value))
    members = {key: replaced(member, old, new, look) for key, member in items}
    if all(members[key] is before for key, before in items):
        return value
    try:
        again = _with_members(value, items, members)
    except Exception as error:
        raise CollectError(f"a {type(value).__name__} cannot be copied with another tensor in it: {error!r}") from error
    held = dict(_items(again))  # what is the same may have been copied, too, by a class's own `__copy__`
    if any(members[key] is not before and held.get(key) is not members[key] for key, before in items):
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


def first_that(test: Callable[[torch.Tensor], bool], found: list[Member]) -> Member | None:
    return next((member for member in found if test(member[1])), None)
