"""What the collector puts in the place of functions of torch and of frameworks, and its hooks. A job keeps them to its
end; after a block (block.py) they are taken back."""

from collections.abc import Callable
from typing import Any, Protocol

_undo: list[Callable[[], None]] = []


class Handle(Protocol):
    """Of a hook."""

    def remove(self) -> None: ...


def replace(owner: Any, name: str, function: Callable) -> None:
    """`owner` is a module or a class."""
    before = vars(owner).get(name)  # None: inherited
    setattr(owner, name, function)

    def undo() -> None:
        if vars(owner).get(name) is not function:
            return  # somebody has wrapped it: without a recording it only calls what it is in the place of
        if before is None:
            delattr(owner, name)
        else:
            setattr(owner, name, before)

    _undo.append(undo)


def keep(handle: Handle) -> None:
    """A hook that outlives what it is about, unless it is removed."""
    _undo.append(handle.remove)


def take_back() -> None:
    while _undo:
        _undo.pop()()
