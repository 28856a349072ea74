"""The program of tools/frameworks/megatron, as one process or as ranks. MISTAKE in the environment has it make the
mistake of mistakes.py that it is given."""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "frameworks" / "megatron"))


def run(model: list[str], parallel: list[str], mistake: str) -> None:
    """`model`: options of train.py for all; `parallel`: for ranks alone."""
    ranks = int(os.environ.get("WORLD_SIZE", 1))
    import cuda_stand_in  # noqa: F401 - before megatron, which looks for a GPU
    from megatron.core.transformer.moe import moe_utils

    if not hasattr(moe_utils, "te_general_gemm"):  # which 0.13 asks for where there is no TransformerEngine, too
        moe_utils.te_general_gemm = None
    sys.argv = ["train.py", *model, *(parallel if ranks > 1 else [])]
    if os.environ.get("MISTAKE"):
        sys.argv += ["--wrong", mistake]
        import mistakes as program
    else:
        import train as program
    program.main()
