"""How a process ends that was forked from one with PyTorch: as Python's own does, but it does not take the interpreter
apart. A thread of gloo that still holds a tensor would then abort the process
(https://github.com/pytorch/pytorch/pull/179291), and to visit every object copies all pages that the processes share:
a second of a processor, where the program itself takes a tenth of that."""

import atexit
import os
import runpy
import signal
import sys
import threading
from typing import NoReturn


def run_and_leave(arguments: list[str]) -> NoReturn:
    """Runs the program arguments[0] as `python PROGRAM ARGUMENTS...` does, and ends as it does."""
    leave(_code_of(arguments))


def leave(code: int) -> NoReturn:
    """Ends the process when its threads have ended, as Python does: with that exit code, or the signal -code."""
    threading._shutdown()
    atexit._run_exitfuncs()
    if not _flush(sys.stdout) and code == 0:
        code = 120  # as Python
    _flush(sys.stderr)
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


def _code_of(arguments: list[str]) -> int:
    sys.argv = arguments
    sys.path[0] = os.path.dirname(os.path.abspath(arguments[0]))
    try:
        runpy.run_path(arguments[0], run_name="__main__")
    except SystemExit as end:
        return _code_of_exit(end.code)
    except BaseException as error:
        sys.last_type, sys.last_value, sys.last_traceback = type(error), error, error.__traceback__
        sys.excepthook(type(error), error, error.__traceback__)
        return -signal.SIGINT if isinstance(error, KeyboardInterrupt) else 1
    return 0


def _code_of_exit(code: object) -> int:
    if code is None:
        return 0
    if isinstance(code, int):
        return code & 0xFF
    print(code, file=sys.stderr)
    return 1


def _flush(stream) -> bool:
    try:
        stream.flush()
    except (OSError, ValueError):
        return False
    return True
