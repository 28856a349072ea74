"""By which variable the program holds a model, whose names in a report begin with a number or a class: `critic`,
`agent.target`, `networks[1]`."""

import dis
import os
import sys
from collections.abc import Iterator
from types import CodeType, ModuleType
from typing import Any

import torch

from .clock import unwrapped
from .names import plain_name

_OWN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "")
_TORCH = os.path.join(os.path.dirname(os.path.abspath(torch.__file__)), "")
_MOST_ELEMENTS = 64  # of a list or dict that is looked into


def variable_of(model: torch.nn.Module) -> str | None:
    """Of the program's main file, or else of a function of it that is being called, the outermost first. None where no
    variable, attribute or element of these is the model, or a wrapper around it."""
    return next((found for each in _namespaces() if (found := _name_in(each, model)) is not None), None)


def _namespaces() -> Iterator[dict[str, Any]]:
    main = sys.modules.get("__main__")
    if main is not None:
        yield dict(vars(main))
    frames, frame = [], sys._getframe(1)
    while frame is not None:
        if not frame.f_code.co_filename.startswith((_OWN, _TORCH, "<")) and frame.f_code.co_name != "<module>":
            frames.append(frame)
        frame = frame.f_back
    for each in reversed(frames):
        values = each.f_locals
        yield {name: values[name] for name in _in_order(each.f_code) if name in values}


def _in_order(code: CodeType) -> list[str]:
    """The function's variables as it sets them, where f_locals has what closures take behind all others."""
    stored = (each.argval for each in dis.get_instructions(code) if each.opname.startswith("STORE_"))
    names = (name for argument in stored for name in (argument if isinstance(argument, tuple) else (argument,)))
    return list(dict.fromkeys((*code.co_varnames[: code.co_argcount], *names, *code.co_freevars)))


def _name_in(namespace: dict[str, Any], model: torch.nn.Module) -> str | None:
    """The first one: what loops over models comes after them."""
    for name, value in namespace.items():
        if name.startswith("_") or issubclass(type(value), (type, ModuleType)):
            continue
        if _is(value, model):
            return name
        holder = plain_name(type(value)) if name == "self" else name
        for part, own in _parts(value):
            if _is(own, model):
                return f"{holder}{part}"
    return None


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    if type(value) in (list, tuple, dict) and len(value) <= _MOST_ELEMENTS:
        elements = tuple(value.items() if isinstance(value, dict) else enumerate(value))
        yield from ((f"[{key!r}]", each) for key, each in elements if isinstance(key, (int, str)))
        return
    try:
        attributes = object.__getattribute__(value, "__dict__")  # what stands for another object is not asked for that
    except AttributeError:
        return
    if isinstance(attributes, dict):
        modules = attributes.get("_modules")
        inside = tuple(modules.items()) if isinstance(modules, dict) else ()  # TorchScript's is none
        yield from ((f".{name}", each) for name, each in (*attributes.items(), *inside))


def _is(value: Any, model: torch.nn.Module) -> bool:
    if value is model:
        return True
    # One that is being made has no children yet.
    is_module = issubclass(type(value), torch.nn.Module) and "_modules" in vars(value)
    return is_module and unwrapped(value) is unwrapped(model)
