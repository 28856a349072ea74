"""What went wrong while collecting: a line in a file that `ttrace collect` reads and shows.

A problem (`rank-00000.problem`) means that the trace is not what was asked for; it is told on stderr, too, at once. A
warning (`rank-00000.warning`) names what could not be recorded and is no reason to distrust the rest: `ttrace collect`
shows it when the job has ended, once for all ranks that have it. A rank tells each text once."""

import contextlib
import os
import sys


class CollectError(Exception):
    """Something that the user can put right. The text is complete in itself."""


_NAMES_SHOWN = 3  # in a text that lists some
_MOST_CHARACTERS = 2000  # of a line; names may be long

_told: dict[str, dict[str, str]] = {}  # of each trace: line -> "problem" or "warning"
_raised: set[str] = set()  # traces whose problems end as exceptions, and need not stand on stderr as well


def listed(names: list[str]) -> str:
    """The first of them, and how many there are beside: "'a', 'b', 'c' and 2 more"."""
    more = f" and {len(names) - _NAMES_SHOWN} more" if len(names) > _NAMES_SHOWN else ""
    return ", ".join(f"'{name}'" for name in names[:_NAMES_SHOWN]) + more


def problem(directory: str, rank: int, text: str) -> None:
    """`directory` is the trace's."""
    _tell(directory, rank, "problem", text)


def warning(directory: str, rank: int, text: str) -> None:
    _tell(directory, rank, "warning", text)


def will_raise(directory: str) -> None:
    """Who records to it asks for `problems_of` it."""
    _raised.add(directory)


def raises(directory: str) -> bool:
    """Whether what goes wrong with the trace ends as an exception."""
    return directory in _raised


def problems_of(directory: str) -> list[str]:
    """Those that this process has told of the trace."""
    return [line for line, suffix in _told.get(directory, {}).items() if suffix == "problem"]


def _tell(directory: str, rank: int, suffix: str, text: str) -> None:
    line = f"rank {rank}: " + _printable(" ".join(text.split()))
    told = _told.setdefault(directory, {})
    if line in told:
        return
    told[line] = suffix
    if suffix == "problem" and directory not in _raised:
        with contextlib.suppress(Exception):  # the program may have closed its stderr, or put anything in its place
            # The line goes out in one piece, because other ranks write there too.
            sys.stderr.write(f"ttrace: {line}\n")
            sys.stderr.flush()
    path = os.path.join(directory, f"rank-{rank:05}.{suffix}")
    # Where the disk is full, the trace has no completion mark, which says enough.
    with contextlib.suppress(OSError), open(path, "a", encoding="utf-8") as file:
        file.write(line + "\n")


def _printable(text: str) -> str:
    """One line that shows what it holds: names may have characters that a terminal obeys, or that are no text."""
    shown = "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)
    return shown if len(shown) <= _MOST_CHARACTERS else f"{shown[:_MOST_CHARACTERS]}... ({len(shown)} characters)"
