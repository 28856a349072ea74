"""The program's own source files, which decide what it computes."""

import os
import re
import sys
import types

_MOST_FILES = 2000
INSTALLED = re.compile(r"[/\\](site|dist)-packages[/\\]")
_STANDARD_LIBRARY = os.path.join(os.path.dirname(os.path.realpath(os.__file__)), "")
_OWN = os.path.join(os.path.dirname(os.path.realpath(__file__)), "")


def script() -> str | None:
    """The file that runs, which no module names any more when the process ends."""
    file = sys.modules["__main__"].__dict__.get("__file__")
    return os.path.realpath(file) if isinstance(file, str) else None


def program_files(root: str, script: str | None) -> list[str]:
    """The script's file and those of the modules that are loaded now, as far as they lie below `root`, named from it;
    without what is installed."""
    prefix = os.path.join(os.path.realpath(root), "")
    modules = [module for module in list(sys.modules.values()) if type(module) is types.ModuleType]
    files = {module.__dict__.get("__file__") for module in modules} | {script}
    paths = {os.path.realpath(file) for file in files if isinstance(file, str) and not INSTALLED.search(file)}
    own = [path for path in paths if path.startswith(prefix) and not _is_installed(path)]
    return [os.fsencode(path[len(prefix) :]).decode("utf-8", "backslashreplace") for path in sorted(own)[:_MOST_FILES]]


def _is_installed(path: str) -> bool:
    return bool(INSTALLED.search(path)) or path.startswith((_OWN, _STANDARD_LIBRARY))
