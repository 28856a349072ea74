"""Records a block of this program."""

import contextlib
import datetime
import os
from collections.abc import Iterator

from . import _core, _installation
from ._core import InputError


@contextlib.contextmanager
def record(directory: "str | os.PathLike[str]", *, axes: str = "", perturb: int | None = None) -> Iterator[None]:
    """Records what PyTorch modules compute inside the block, forward and backward, to a trace in `directory`, which is
    new or empty. No training loop is needed, and no optimizer: the gradients that the block leaves in `.grad` are
    recorded as main_grad; where an optimizer does step, what it does is recorded, too. What runs with gradients
    disabled is not.

        with ttrace.record("candidate"):
            layer(x).square().sum().backward()

    The program computes the same as without it. On several ranks, each records its part: torch.distributed must be
    initialised, and `axes` says how they are arranged ("tp=2"), where no device mesh or framework does. A rank that has
    left the block does not wait for the others.

    With `perturb`, a seed, the first floating-point activation of each forward is perturbed by rounding errors, for
    `estimate_tolerance`. Raises InputError, at the end where the trace is not whole."""
    provenance = {
        "ttrace": _core.version,
        "command": None,  # which would not run the block alone
        "started": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "git_commit": None,
        "axes": axes,
        "directory": os.getcwd(),
        "rewritten": None,
    }
    path = os.path.abspath(os.fspath(directory))
    try:
        with _installation.collector().recorded_block(path, str(_installation.LIBRARY), axes, perturb, provenance):
            yield
    except _installation.collector("problems").CollectError as error:
        raise InputError(str(error)) from None
