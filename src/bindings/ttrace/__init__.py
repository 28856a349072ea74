"""ttrace: differential testing of distributed training, from Python.

    trace = ttrace.open("candidate", annotations="gpt.yaml")     # logical tensors, put together from their shards
    trace.tensor("layers.0.mlp", kind="output")[0:4].numpy()

    report = ttrace.check("candidate", "reference", annotations="gpt.yaml", tolerance="tolerance.yaml")
    report.verdict, report.sentence, report.findings

    with ttrace.record("candidate"):                             # of this process: a module in a unit test
        layer(x).square().sum().backward()
    ttrace.testing.assert_same("candidate", "reference", tolerance="tolerance.yaml")

README.md beside this file has more; the rest of ttrace is a command line."""

from . import _installation, testing
from ._core import InputError, version
from .recording import record
from .reports import (
    Counts,
    Finding,
    OptimizerSteps,
    Override,
    Proof,
    Report,
    Root,
    Statistic,
    Worst,
    check,
    estimate_tolerance,
)
from .traces import Piece, Tensor, Trace, open

__version__ = version
__all__ = [
    "Counts",
    "Finding",
    "InputError",
    "OptimizerSteps",
    "Override",
    "Piece",
    "Proof",
    "Report",
    "Root",
    "Statistic",
    "Tensor",
    "Trace",
    "Worst",
    "__version__",
    "check",
    "estimate_tolerance",
    "open",
    "record",
    "testing",
]

InputError.__module__ = __name__
del _installation, version
