"""What is alive in the process, as far as Python's garbage collector knows of it: there is no other list of a program's
modules and optimizers, nor of the lists and dicts that it keeps tensors in.

There are some hundred thousand objects in a process with torch. Each look takes tens of milliseconds, and a loop in
Python over all of them would take several times as long."""

import gc
import sys
from collections import OrderedDict
from collections.abc import Collection, Iterable
from itertools import compress
from typing import Any

import torch

Holder = list | dict
_HOLDERS = frozenset((list, dict, OrderedDict))


class Living:
    """As they are at this moment. Not to be kept: it keeps them alive."""

    # Without a __dict__ it is no object that is found to hold one of the lists as its attribute.
    __slots__ = ("_holders", "modules", "optimizers")

    def __init__(self) -> None:
        modules, optimizers = subclasses(torch.nn.Module), subclasses(torch.optim.Optimizer)
        found = _of_classes(modules | optimizers | _HOLDERS, gc.get_objects())
        self.modules: list[torch.nn.Module] = _of_classes(modules, found)
        self.optimizers: list[torch.optim.Optimizer] = _of_classes(optimizers, found)
        self._holders: list[Holder] = _of_classes(_HOLDERS, found)

    def holders(self, least: int) -> list[Holder]:
        """Lists and dicts of at least so many elements."""
        return list(compress(self._holders, map(least.__le__, map(len, self._holders))))


def instances_of(*bases: type) -> list[Any]:
    classes = {each for base in bases for each in subclasses(base)}
    return _of_classes(classes, gc.get_objects()) if classes else []


def instances_named(*classes: tuple[str, str]) -> list[Any]:
    """Of classes by their modules and names; none of those that the program has not imported."""
    found = (getattr(sys.modules.get(module), name, None) for module, name in classes)
    return instances_of(*(each for each in found if each is not None))


def _of_classes(classes: Collection[type], objects: Iterable[Any]) -> list[Any]:
    return list(compress(objects, map(classes.__contains__, map(type, objects))))


def subclasses(base: type) -> set[type]:
    """With itself. To ask each object of a process whether it is an instance takes long."""
    found = {base}
    for each in type.__subclasses__(base):
        if each not in found:
            found |= subclasses(each)
    return found
