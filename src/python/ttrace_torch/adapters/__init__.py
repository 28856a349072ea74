"""What the collector knows about frameworks, a small file each: the class Adapter says what such a file has.

What an adapter can be asked is a method of that class, and is asked here by its name: first(Adapter.share, parameter).
Only adapters that override it are asked, and only where their framework is loaded."""

import importlib
import pkgutil
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch

from ..imports import after_import
from ..mesh_position import MeshPosition
from . import averaging
from .adapter import OVERRIDING, Adapter, Clipping, Function, Level, Observe

__all__ = [
    "OVERRIDING",
    "Adapter",
    "Clipping",
    "Function",
    "Level",
    "any_says",
    "every",
    "first",
    "functions",
    "observe_framework_calls",
    "words",
]


def first(method: Callable, *args: Any) -> Any:
    """The first answer that is not None; None where there is no such."""
    for adapter in OVERRIDING[method.__name__]:
        if adapter.module in sys.modules:
            answer = getattr(adapter, method.__name__)(*args)
            if answer is not None:
                return answer
    return None


def any_says(method: Callable, *args: Any) -> bool:
    """Whether one of the answers is yes."""
    for adapter in OVERRIDING[method.__name__]:
        if adapter.module in sys.modules and getattr(adapter, method.__name__)(*args):
            return True
    return False


def every(method: Callable, *args: Any) -> Iterator[Any]:
    """All answers."""
    for adapter in OVERRIDING[method.__name__]:
        if adapter.module in sys.modules:
            yield getattr(adapter, method.__name__)(*args)


def functions(name: str) -> Iterator[Any]:
    """Those in the list `name` of all adapters, loaded or not."""
    for adapter in OVERRIDING[name]:
        yield from getattr(adapter, name)


def words(model: torch.nn.Module, position: MeshPosition) -> dict[str, Any]:
    """What the frameworks say together of how the program is parallel."""
    together: dict[str, Any] = {}
    for said in every(Adapter.words, model, position):
        for key, value in said.items():
            is_product = key == "loss_scale" and key in together
            together[key] = averaging.product(together[key], value) if is_product else value
    return together


def observe_framework_calls(observe: Observe) -> None:
    """Has `observe` called where frameworks call what a module does other than by calling it."""
    for adapter in OVERRIDING["observe_calls"]:
        after_import(adapter.module, lambda _, adapter=adapter: adapter.observe_calls(observe))


for _file in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_file.name}")
