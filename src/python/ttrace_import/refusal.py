"""Why a source is not imported."""

import contextlib
import importlib
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType


class Refused(Exception):
    """Its text is the line that the user reads: what is wrong where, and what was expected."""


# Printable for Python, and yet they take no room: two names would look the same.
_UNSEEN = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u3164\uffa0") | {
    chr(c) for first, last in ((0x180B, 0x180F), (0xFE00, 0xFE0F), (0xE0100, 0xE01EF)) for c in range(first, last + 1)
}


def one_line(text: str) -> str:
    """Fit for a terminal: what is not printable is written as an escape."""
    return "".join(c if c.isprintable() and c not in _UNSEEN else c.encode("unicode_escape").decode() for c in text)


def shown(value: object) -> str:
    """A value that anybody may have made: other ones than texts and numbers can be endless to write."""
    if isinstance(value, (str, bytes)):
        return f"{value[:100]!a:.100}"
    small = isinstance(value, (bool, float)) or (isinstance(value, int) and value.bit_length() <= 64)
    return repr(value) if value is None or small else f"a {type(value).__name__}"


def first_line(error: BaseException) -> str:
    """What somebody else's exception says, in short."""
    text = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    return one_line(f"{type(error).__name__}: {text}"[:200] if text else type(error).__name__)


@contextlib.contextmanager
def refusing(path: Path, expected: str) -> Iterator[None]:
    """Makes a refusal of whatever a library says of a damaged or hostile file."""
    try:
        yield
    except Refused:
        raise
    except MemoryError:
        raise Refused(f"{one_line(str(path))}: holds more than there is memory for") from None
    except Exception as error:
        raise Refused(f"{one_line(str(path))}: {first_line(error)}; expected {expected}") from None


def require(package: str) -> ModuleType:
    """The module; refuses where it is not installed."""
    try:
        with _uninterrupted():
            return importlib.import_module(package)
    except ImportError as error:
        name = package.partition(".")[0]
        if not isinstance(error, ModuleNotFoundError) or (error.name or "").partition(".")[0] != name:
            raise Refused(f"{name}: cannot be imported by {sys.executable}: {first_line(error)}") from None
        raise Refused(
            f"{name}: not installed for {sys.executable}; expected it: pip install {name}, or --python PYTHON"
        ) from None


@contextlib.contextmanager
def _uninterrupted() -> Iterator[None]:
    """Signals come behind it: NumPy, stopped while it is imported, says that it cannot be imported."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
