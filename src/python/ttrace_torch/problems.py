"""What went wrong while collecting: one line on stderr, and the same in a file that `ttrace collect` reads.

A problem (`rank-00000.problem`) means that the trace is not what was asked for. A warning (`rank-00000.warning`)
names what could not be recorded and is no reason to distrust the rest. Each text is told once."""

import os
import sys


class CollectError(Exception):
    """Something that the user can put right. The text is complete in itself."""


WARNINGS_SHOWN = 10  # on stderr, by a rank; the file has them all

_told: set[str] = set()


def problem(directory: str, rank: int, text: str) -> None:
    _tell(directory, rank, "problem", text)


def warning(directory: str, rank: int, text: str) -> None:
    _tell(directory, rank, "warning", text)


def _tell(directory: str, rank: int, sort: str, text: str) -> None:
    line = f"rank {rank}: " + " ".join(text.split())
    if line in _told:
        return
    _told.add(line)
    try:
        if sort == "problem" or len(_told) <= WARNINGS_SHOWN:
            # In one piece: other ranks write there too.
            sys.stderr.write(f"ttrace: {'warning: ' if sort == 'warning' else ''}{line}\n")
            sys.stderr.flush()
    except (OSError, ValueError):
        pass  # no stderr any more
    try:
        with open(os.path.join(directory, f"rank-{rank:05}.{sort}"), "a", encoding="utf-8") as file:
            file.write(line + "\n")
    except OSError:
        pass  # a full disk: the file without a completion mark says enough
