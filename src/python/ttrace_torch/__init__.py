"""The PyTorch collector of ttrace: records what a training program computes, in its own processes, without a changed
line. `ttrace collect` injects it (inject/sitecustomize.py); it writes through libttrace (library.py).

What is recorded:
    modules.py              calls of modules: inputs and outputs, in forward and recomputation
    checkpoints.py          recomputations by torch.utils.checkpoint
    compiled_functions.py   functions that torch.compile returns
    captures.py             what is read before a CUDA graph is captured
    gradients.py            gradients of activations and parameters, the loss
    optimizers.py           main gradients, gradient norm, parameter deltas, parameters after the step
    buffers.py              buffers, and models that no optimizer updates
    turns.py                ... by which optimizers: an iteration is a step of each
    own_steps.py            ... or of a program that has none of PyTorch's
    steps.py                what optimizers step with: options, step count, clip factor, state
    zero_gradients.py       ... of which more iterations would show more
    step_facts.py           ... as they say it themselves
    step_gradients.py       ... of the gradient that they are given
    optimizer_steps.py      ... as the trace says it
    trained.py              which parameters want gradients, and which optimizers have them
    explicit.py             what the program passes to `record`, below
    without_grad.py         what runs without gradients, where nothing else does
    gaps.py                 what is not recorded of modules
    not_seen.py             what is not recorded, as the trace says it
    selection.py            what is to be recorded
What the program computes with, changed:
    perturb.py              `--perturb`: activations with noise on them
    rewrite.py              `--inject`, `--rewrite`: values from a trace
What a tensor is called, and where it lies:
    schedule.py             which iterations are recorded
    clock.py                iterations, micro-batches, chunks of the model, names of modules
    frame.py                a module call in progress
    coordinates.py          this rank's position on the mesh
    mesh_position.py        what a position is
    factoring.py            axes, worked out from groups of ranks
    placements.py           DTensors
    mapping.py              what the program says of it
    masters.py              the parameters of a model, each with this rank's share of it
    shares.py               what a rank has of a parameter: all of it, or a range under FSDP1 and ZeRO; its master
    adapters/               what frameworks know of meshes, averaged gradients, clipping, FSDP1 and ZeRO
    imports.py              acts when a framework has been imported
What all of them use:
    start.py                puts the parts together
    replays.py              the recorded iterations once more, in the same launch
    program_state.py        ... from what the program had before them
    loaded_data.py          ... with the data that it was given
    patches.py              what is put in the place of functions of torch, and hooks
    block.py                recording of a part of a program
    collector.py            the life of the recording, and the way in for all that PyTorch calls
    threads.py              which thread of the program is recorded
    processes.py            ... which process
    rank_file.py            this rank's file
    library.py              libttrace by ctypes: TensorId, kinds, passes, dtypes
    config.py               what `ttrace collect` asks for
    problems.py             problems and warnings, as the user sees them
    members.py              the tensors inside what modules take and return
    recursion.py            Python's limit on recursion
    names.py                names as a trace can hold them
    tensors.py              what a tensor is, and its bytes in host memory
    transfers.py            ... of a device's on their way to host memory
    side_stream.py          ... copied while the program goes on
    device_sketches.py      ... or sketched there
    copies.py               copies of tensors, in memory that is used again
    arrays.py               the same of NumPy arrays, for those that record without torch
    compiled.py             what torch.compile and TorchScript hide
Beside the collector:
    calibrate.py            random matrix products, for `ttrace calibrate`

A program may record tensors of its own, and say where they lie:

    import torch
    try:
        from ttrace_torch import record  # there under `ttrace collect`, once torch is imported
    except ImportError:
        def record(*args, **kwargs): pass
"""

import atexit
import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # the package is also imported where there is no torch
    import torch

    from .collector import Collector
    from .config import Config
    from .explicit import ExplicitRecording
    from .mapping import Slice
    from .modules import Modules

OLDEST_TORCH = (2, 2)

_explicit: "ExplicitRecording | None" = None  # set in a process that is collected


def record(
    name: str,
    tensor: "torch.Tensor",
    *,
    kind: str = "output",
    axes: Mapping[str, int | str] | None = None,
    shape: Sequence[int] | None = None,
    slices: "Sequence[Slice] | None" = None,
) -> None:
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
    from . import problems
    from .config import Config

    config = Config.from_environment()
    problem = _problem_of_torch()
    if problem:
        rank = os.environ.get("RANK", "0")
        problems.problem(config.directory, int(rank) if rank.isdigit() else 0, f"{problem}; nothing is recorded")
        return

    collector, modules = _record(config)
    os.register_at_fork(after_in_child=collector.after_fork)
    atexit.register(collector.at_exit)
    if config.replays:
        from .replays import Replays

        Replays(config, _record).follow(collector, modules)


def _record(config: "Config") -> "tuple[Collector, Modules]":
    from .explicit import ExplicitRecording
    from .start import start

    global _explicit
    collector, modules = start(config)
    _explicit = ExplicitRecording(collector, modules)
    return collector, modules


@contextlib.contextmanager
def recorded_block(
    directory: str, library: str, axes: str, perturb: int | None, provenance: dict[str, Any]
) -> Iterator[None]:
    """Records what runs inside: `ttrace.record` of the Python package. `library` is the path of libttrace. Raises
    CollectError, at the end where the trace is not whole."""
    from .block import Block, configuration
    from .problems import CollectError

    global _explicit
    problem = _problem_of_torch()
    if problem or _explicit is not None:
        raise CollectError(problem or "this process is recorded already; expected one recording at a time")
    block = Block(configuration(directory, library, axes, perturb, provenance))
    _explicit = block.begin()
    raised = True
    try:
        yield
        raised = False
    finally:
        _explicit = None
        found = block.end(raised)
    if found:
        raise CollectError("; ".join(found))


def _problem_of_torch() -> str:
    """Why it cannot be recorded, or ""."""
    import torch

    version = str(torch.__version__)
    if tuple(int(part) for part in version.split("+")[0].split(".")[:2]) >= OLDEST_TORCH:
        return ""
    return f"PyTorch {version} is too old; expected {'.'.join(map(str, OLDEST_TORCH))} or newer"
