"""Classes of modules whose `__call__` is their own and never comes to PyTorch's, such as GPyTorch's: what `_call_impl`
is to others, that method is to these. Which they are is read from its code: one that names nothing which leads to
PyTorch's (`super`, another `__call__`) does not come there."""

import functools
import inspect
from collections.abc import Callable
from typing import Any

import torch

from . import patches
from .living import subclasses

_LEADS_ON = {"super", "_call_impl", "_wrapped_call_impl", "__call__"}


def watch(wrap: Callable[[Callable], Callable]) -> None:
    """Has `wrap` put its function in the place of each such method, also of classes that are yet to be defined."""
    for subclass in subclasses(torch.nn.Module) - {torch.nn.Module}:
        _wrap_own_call(subclass, wrap)

    def __init_subclass__(cls: type, *args: Any, **kwargs: Any) -> None:
        super(torch.nn.Module, cls).__init_subclass__(*args, **kwargs)  # PyTorch has none of its own
        _wrap_own_call(cls, wrap)

    patches.replace(torch.nn.Module, "__init_subclass__", classmethod(__init_subclass__))


def _wrap_own_call(cls: type, wrap: Callable[[Callable], Callable]) -> None:
    own = vars(cls).get("__call__")
    code = getattr(inspect.unwrap(own), "__code__", None) if callable(own) else None
    if code is None or cls.__module__.split(".")[0] == "torch" or _LEADS_ON & set(code.co_names):
        return
    patches.replace(cls, "__call__", functools.wraps(own)(wrap(own)))
