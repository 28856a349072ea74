"""Where the files of this installation lie: the program, libttrace, the collector and the annotation presets."""

import importlib
import os
import pathlib
import sys
from types import ModuleType

from . import _core
from ._core import InputError

_PACKAGE = pathlib.Path(os.path.abspath(__file__)).parent  # links are not followed: they lead out of a build tree


def _directory() -> pathlib.Path:
    """The one that holds bin/. A wheel has it in the package; elsewhere the package is lib/python/ttrace of it."""
    for directory in (_PACKAGE, _PACKAGE.parents[2]):
        if (directory / "lib" / "libttrace.so").exists():
            return directory
    raise InputError(f"{_PACKAGE.parents[2]}/lib/libttrace.so: not there; expected a whole installation of ttrace")


DIRECTORY = _directory()
LIBRARY = DIRECTORY / "lib" / "libttrace.so"
COLLECTOR = DIRECTORY / "share" / "ttrace"  # holds the package ttrace_torch
_core.set_installation(str(DIRECTORY))


def collector(module: str = "") -> ModuleType:
    """The package ttrace_torch, or a module of it. It is no part of this package: jobs are recorded with it that have
    no NumPy. Those of its modules that name no torch work without."""
    if "ttrace_torch" not in sys.modules:
        sys.path.insert(0, str(COLLECTOR))
        try:
            importlib.import_module("ttrace_torch")
        finally:
            sys.path.remove(str(COLLECTOR))
    return importlib.import_module(f"ttrace_torch.{module}" if module else "ttrace_torch")
