"""The program of tools/frameworks/megatron, as one process or as ranks. MISTAKE in the environment has it make the
mistake of mistakes.py that it is given."""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "frameworks" / "megatron"))


def run(model: list[str], parallel: list[str], mistake: str) -> None:
    """`model`: options of train.py for all; `parallel`: for ranks alone."""
    ranks = int(os.environ.get("WORLD_SIZE", 1))
    sys.argv = ["train.py", *model, *(parallel if ranks > 1 else [])]
    if os.environ.get("MISTAKE"):
        sys.argv += ["--wrong", mistake]
        import mistakes as program
    else:
        import train as program
    program.main()
