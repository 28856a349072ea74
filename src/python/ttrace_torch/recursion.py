"""Python limits how deep calls may be. What recording adds to a program's own calls shall not count, so that a model
that is nested as deep as the limit allows runs as it does without: the limit is raised on the way in by as much, and
lowered again on the way out."""

import contextlib
import sys
import threading

_EVERY = 16  # calls of modules, one inside the other
_PER_CALL = 8  # calls that recording adds to one of a module; more than it does
_TO_RECORD = 200  # calls, one inside the other, that recording a tensor may take

_lock = threading.Lock()  # the limit is that of all threads
_limit = sys.getrecursionlimit()  # the program's own
_raised = 0  # by so much, just now


def room_at(depth: int) -> int:
    """What the limit is to be raised by, before a module is called in `depth` others."""
    if depth % _EVERY:
        return 0
    return _EVERY * _PER_CALL + (0 if depth else _TO_RECORD)


def raise_limit(by: int) -> None:
    """`by` is negative on the way out."""
    global _limit, _raised
    with _lock:
        if sys.getrecursionlimit() != _limit + _raised:  # the program has set another one
            _limit = sys.getrecursionlimit()
        with contextlib.suppress(RecursionError):  # too low for where the program is: the limit stays for now
            sys.setrecursionlimit(_limit + _raised + by)
            _raised += by
