"""The PyTorch collector of ttrace: records what a training program computes, in its own processes, without a changed
line. `ttrace collect` injects it (inject/sitecustomize.py); it writes through libttrace (library.py).

modules.py, checkpoints.py   calls of modules: inputs and outputs, forward and recomputation
gradients.py                 gradients of activations and parameters, the loss
optimizers.py                main gradients, gradient norm, parameter deltas, parameters after the step
perturb.py                   `--perturb`
clock.py                     iterations, micro-batches, model chunks, names
collector.py, rank_file.py   the life of the recording, this rank's file
"""

OLDEST_TORCH = (2, 2)


def install() -> None:
    """Patches torch, which has just been imported. Called once a process."""
    import torch

    from . import problems
    from .config import Config

    config = Config.from_environment()
    version = str(torch.__version__)
    if tuple(int(part) for part in version.split("+")[0].split(".")[:2]) < OLDEST_TORCH:
        import os

        rank = os.environ.get("RANK", "0")
        problems.problem(config.directory, int(rank) if rank.isdigit() else 0,
                         f"PyTorch {version} is too old; expected 2.2 or newer; nothing is recorded")  # fmt: skip
        return
    from .start import start

    start(config)
