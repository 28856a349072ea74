"""Errors of type in one line."""

import contextlib
import re
from collections.abc import Iterator

_SIGNATURE = re.compile(r"1\. \w+\((?:self, )?(.*)\) -> .*\n\nInvoked with types: (.*)", re.DOTALL)


@contextlib.contextmanager
def typed(function: str) -> Iterator[None]:
    """Makes one line, in the words of the `function` that users call, of what nanobind says in several of its own."""
    try:
        yield
    except TypeError as error:
        found = _SIGNATURE.search(str(error))
        if found is None:
            raise
        expected, given = (" ".join(part.split()).replace("ttrace._core.", "ttrace.") for part in found.groups())
        raise TypeError(f"{function}(): arguments of the types {given}; expected {expected}") from None
