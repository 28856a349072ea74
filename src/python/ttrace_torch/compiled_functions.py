"""Functions that torch.compile returns. They are wrapped, so that nothing inside is recorded; the forward of a module,
compiled as a function, is recorded as a call of the module. (For a module torch.compile returns another, which
modules.py sees; compiled.py says what is hidden.)"""

import functools
from collections.abc import Callable
from typing import Any

import torch

from . import patches
from .collector import Collector
from .compiled import is_compiling, is_disabled
from .modules import Modules


def install(collector: Collector, modules: Modules) -> None:
    compile_ = torch.compile

    @functools.wraps(compile_)
    def patched(model: Any = None, *args: Any, **kwargs: Any) -> Any:
        compiled = compile_(model, *args, **kwargs)
        # Without a model it is a decorator, which calls torch.compile.
        if model is None or is_disabled() or isinstance(compiled, torch.nn.Module):
            return compiled
        module = getattr(model, "__self__", None)
        if isinstance(module, torch.nn.Module) and model == module._call_impl:
            return _unless_compiling(compiled, lambda args, kwargs: modules.observe(compiled, module, args, kwargs))
        name = getattr(model, "__qualname__", type(model).__name__)
        return _unless_compiling(
            compiled, lambda args, kwargs: _run_unseen(collector, modules, name, compiled, args, kwargs)
        )

    patches.replace(torch, "compile", patched)


def _unless_compiling(compiled: Callable, run: Callable[[tuple, dict], Any]) -> Callable:
    @functools.wraps(compiled)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return compiled(*args, **kwargs) if is_compiling() else run(args, kwargs)

    return wrapper


def _run_unseen(
    collector: Collector, modules: Modules, name: str, compiled: Callable, args: tuple, kwargs: dict
) -> Any:
    collector.safely(modules.gaps.function_hides, name)
    modules.stack.frames.append(None)
    try:
        return compiled(*args, **kwargs)
    finally:
        modules.stack.frames.pop()
