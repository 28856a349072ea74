"""Functions of a framework that are called before any model runs must be wrapped as soon as it has been imported."""

import importlib.util
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from . import patches


def after_import(name: str, act: Callable[[ModuleType], None]) -> None:
    """Calls `act` with the module `name` once it has been imported; now, where it has."""
    if name in sys.modules:
        act(sys.modules[name])
    else:
        finder = _Finder(name, act)
        sys.meta_path.insert(0, finder)
        patches.keep(finder)


class _Finder:
    """Finds nothing itself: for its module it asks the others, and acts as soon as the module has run."""

    def __init__(self, name: str, act: Callable[[ModuleType], None]):
        self._name, self._act, self._asking = name, act, False

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: Any = None) -> ModuleSpec | None:
        if name != self._name or self._asking:
            return None
        self._asking = True
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self._asking = False
        if spec is not None and hasattr(spec.loader, "exec_module"):
            spec.loader.exec_module = self._run_and_act(spec.loader.exec_module)
        return spec

    def remove(self) -> None:
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def _run_and_act(self, run_module: Callable[[ModuleType], None]) -> Callable[[ModuleType], None]:
        def exec_module(module: ModuleType) -> None:
            run_module(module)
            if self in sys.meta_path:
                sys.meta_path.remove(self)
                self._act(module)

        return exec_module
