"""How the tests beside this run ttrace and the programs in kinds/."""

import os
import subprocess
import sys
from pathlib import Path

from sweeps import warm

HERE = Path(__file__).resolve().parent
TTRACE = os.environ.get("TTRACE_PROGRAM", str(HERE.parent.parent / "build" / "bin" / "ttrace"))
SAME, DIFFERENT, COULD_NOT_LOOK = 0, 1, 2


def run(*command, mistake=""):
    environment = dict(os.environ, OMP_NUM_THREADS="1", MISTAKE=mistake)
    return subprocess.run([str(part) for part in command], env=environment, capture_output=True, text=True, timeout=300)


def python(path, *arguments):
    """The command of a Python program, by the server of warm processes where there is one."""
    return [sys.executable, *([warm.__file__] if warm.SOCKET in os.environ else []), path, *arguments]
