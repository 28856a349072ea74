"""Where the program's modules are in its source: the first line of each class's forward, with its decorators, and the
line that calls a module; and by which variable it holds a model. Once for each class and each module's name, not for
each tensor. `ModuleSources` in src/base/module_source.h has the format."""

import functools
import inspect
import json
import os
import sys
import weakref
from typing import TypeVar

import torch

from .names import recordable
from .program_files import INSTALLED
from .variables import variable_of

_MOST_BYTES = 1 << 18  # of the document, a quarter of what a trace can hold of all facts
_OWN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "")
_TORCH = os.path.join(os.path.dirname(os.path.abspath(torch.__file__)), "")

Line = tuple[str, int]  # file and number
_Fact = TypeVar("_Fact")


class Sources:
    def __init__(self, root: str, directory: str):
        """`root` is the directory that files below it are named from, `directory` the one that the program began in."""
        self._root, self._directory = os.path.join(os.path.realpath(root), ""), directory
        self._forwards: dict[str, Line | None] = {}  # by class; None: not known, or in PyTorch itself
        self._calls: dict[str, Line | None] = {}  # by name
        # A class that is made in a function has a name with others of its kind.
        self._classes: dict[str, type] = {}
        self._variables: dict[str, str] = {}  # by what the names of the model's tensors begin with
        self._held: weakref.WeakKeyDictionary[torch.nn.Module, str | None] = weakref.WeakKeyDictionary()

    def saw(self, name: str, class_name: str, module_class: type) -> None:
        """Before a module is called that is recorded as `name`; of the same name, only the first call counts."""
        if self._classes.setdefault(class_name, module_class) is not module_class:
            self._forwards[class_name] = None
        elif class_name not in self._forwards:
            self._forwards[class_name] = self._forward_of(module_class)
        if name not in self._calls:
            self._calls[name] = self._caller()

    def saw_model(self, model: torch.nn.Module, beginning: str | None = None) -> None:
        """While the program uses it. Where tensors of it are recorded, with what their names begin with; nothing stands
        for the program's first model."""
        if model not in self._held:
            self._held[model] = variable_of(model)
        held = self._held[model]
        if beginning is not None and held is not None:
            self._variables.setdefault(beginning, held)

    def as_document(self) -> dict:
        """Empty where nothing is known, or where it would be too long."""
        files: dict[str, int] = {}

        def numbered(lines: dict[str, Line | None]) -> dict[str, list[int]]:
            known = {recordable(name): line for name, line in lines.items() if line is not None}
            return {name: [files.setdefault(file, len(files)), number] for name, (file, number) in known.items()}

        forwards, calls = numbered(self._forwards), numbered(by_pattern(self._calls))
        variables = {name: recordable(held) for name, held in self._variables.items()}
        document = {"files": list(files), "forwards": forwards, "calls": calls, "variables": variables}
        return document if files and len(json.dumps(document)) <= _MOST_BYTES else {}

    def _forward_of(self, module_class: type) -> Line | None:
        forward = getattr(module_class, "forward", None)
        while isinstance(forward, functools.partial):
            forward = forward.func
        code = getattr(inspect.unwrap(forward), "__code__", None) if callable(forward) else None
        return self._line(code.co_filename, code.co_firstlineno) if code else None

    def _caller(self) -> Line | None:
        """The nearest line of the call in progress that is neither PyTorch's nor the collector's."""
        frame = sys._getframe(1)
        while frame is not None and frame.f_code.co_filename.startswith((_OWN, _TORCH)):
            frame = frame.f_back
        return self._line(frame.f_code.co_filename, frame.f_lineno) if frame else None

    def _line(self, file: str, number: int) -> Line | None:
        if file.startswith("<") or number < 1:  # made of a text
            return None
        path = os.path.join(self._directory, file)
        if path.startswith((_OWN, _TORCH)):
            return None
        path = os.path.realpath(path)
        if path.startswith(self._root) and not INSTALLED.search(path):
            path = path[len(self._root) :]
        return os.fsencode(path).decode("utf-8", "backslashreplace"), number


def by_pattern(facts: dict[str, _Fact]) -> dict[str, _Fact]:
    """With one fact for all names that are equal but for numbers, where they have the same."""
    groups: dict[str, set[_Fact]] = {}
    for name, fact in facts.items():
        groups.setdefault(_without_numbers(name), set()).add(fact)
    return {
        _without_numbers(name) if len(groups[_without_numbers(name)]) == 1 else name: fact
        for name, fact in facts.items()
    }


def _without_numbers(name: str) -> str:
    """As `without_numbers` of src/base/tensor_name.h, of a module's path."""
    return ".".join("#" if part.isascii() and part.isdigit() else part for part in name.split("."))
