"""Where the files of this installation lie: the program, libttrace, the collector and the annotation presets."""

import os
import pathlib

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
