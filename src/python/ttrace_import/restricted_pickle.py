"""Reads a pickle without running what it holds. Python's own way ("Restricting Globals" in the documentation of pickle)
with one more wall: even the names that are allowed are not the real classes, but stand-ins that only keep what they are
given. torch's `weights_only` reads protocol 2 alone; DCP writes protocol 4."""

import pickle
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

from .pickle_cost import check_cost
from .refusal import Refused, one_line, refusing, shown

_MOST_BYTES = 1 << 30


class Kept:
    """Stands for an object of a class that the pickle names."""

    of = ""  # the name
    arguments: tuple = ()  # what it was made of
    state: Any = None  # what was set

    def __new__(cls, *arguments: Any) -> "Kept":
        made = super().__new__(cls)
        made.arguments = arguments
        return made

    def __init__(self, *arguments: Any):
        pass

    def __setstate__(self, state: Any) -> None:
        self.state = state


def read_pickle(path: Path, allowed: Collection[str]) -> Any:
    """`allowed`: full names of classes, functions and enumerations, each of which becomes a `Kept`. Raises Refused."""
    size = path.stat().st_size
    if size > _MOST_BYTES:
        raise Refused(f"{one_line(str(path))}: larger than {_MOST_BYTES} bytes; expected metadata")

    def refuse(what: str) -> NoReturn:
        raise Refused(f"{one_line(str(path))}: {what}; expected metadata of DCP")

    with refusing(path, "metadata of DCP"), open(path, "rb") as file:
        check_cost(file, size, str(path))
        file.seek(0)
        return unpickle(file, allowed, refuse, lambda pid: refuse("refers to something outside"))


def unpickle(
    file: BinaryIO, allowed: Collection[str], refuse: Callable[[str], NoReturn], outside: Callable[[Any], Any]
) -> Any:
    """Of a pickle whose cost was checked. `refuse` raises, with what is wrong; `outside` makes what the pickle refers
    to by an id of the program's own."""
    classes: dict[str, type[Kept]] = {}

    class Unpickler(pickle.Unpickler):
        def find_class(self, module: str, name: str) -> type[Kept]:
            full = f"{module}.{name}"
            if full not in allowed:
                refuse(f"names {shown(full)}, and code is not run")
            return classes.setdefault(full, type("Kept", (Kept,), {"of": full}))

        def persistent_load(self, pid: Any) -> Any:
            return outside(pid)

    return Unpickler(file).load()
