"""The PyTorch collector of ttrace: records what a training program computes, in its own processes, without a changed
line. `ttrace collect` injects it (inject/sitecustomize.py); it writes through libttrace (library.py).

modules.py, checkpoints.py   calls of modules: inputs and outputs, forward and recomputation
compiled.py, gaps.py         what is not seen of them, named: torch.compile, TorchScript, objects that hide tensors
gradients.py                 gradients of activations and parameters, the loss
optimizers.py                main gradients, gradient norm, parameter deltas, parameters after the step
placements.py, ownership.py  where DTensors and the shards of ZeRO optimizers lie
explicit.py                  `record`, below
perturb.py                   `--perturb`
clock.py                     iterations, micro-batches, model chunks, names
collector.py, rank_file.py   the life of the recording, this rank's file

A program may record tensors of its own, and say where they lie:

    import torch
    try:
        from ttrace_torch import record  # there under `ttrace collect`, once torch is imported
    except ImportError:
        def record(*args, **kwargs): pass
"""

_explicit = None  # of a process that is collected

OLDEST_TORCH = (2, 2)


def record(name, tensor, *, kind="output", axes=None, shape=None, slices=None):
    """Records `tensor` in the micro-batch at hand, under `name`; does nothing in a process that is not collected, and
    in evaluation. Where the program says nothing of its place, annotations do (a DTensor speaks for itself).
    `axes`: axis -> the dimension that it splits, "partial" or "replicate"; outermost first: {"cp": 0, "tp": -1}.
    `shape`: of the whole tensor.
    `slices`: instead of axes; parts (local start, start, size) of `tensor` and of the whole, which has `shape`; all
    ranks' together cover it: [((0, 0), (4, 0), (4, 16))] says that rows 0 to 3 are rows 4 to 7 of the whole.
    `kind`: output, input, grad_output, grad_input, scalar."""
    if _explicit is not None:
        _explicit.record(name, tensor, kind, axes, shape, slices)


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
        problems.problem(
            config.directory,
            int(rank) if rank.isdigit() else 0,
            f"PyTorch {version} is too old; expected 2.2 or newer; nothing is recorded",
        )
        return
    from .start import start

    global _explicit
    _explicit = start(config)
