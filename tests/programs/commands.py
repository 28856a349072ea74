"""How the tests beside this run ttrace and the programs in kinds/."""

import os
import subprocess
from pathlib import Path

HERE = Path(__file__).resolve().parent
TTRACE = os.environ.get("TTRACE_PROGRAM", str(HERE.parent.parent / "build" / "bin" / "ttrace"))
SAME, DIFFERENT, COULD_NOT_LOOK = 0, 1, 2


def run(*command, mistake=""):
    environment = dict(os.environ, OMP_NUM_THREADS="1", MISTAKE=mistake)
    return subprocess.run([str(part) for part in command], env=environment, capture_output=True, text=True, timeout=300)
