"""ttrace: differential testing of distributed training, from Python.

    trace = ttrace.open("candidate", annotations="gpt.yaml")     # logical tensors, put together from their shards
    trace.tensor("layers.0.mlp", kind="output")[0:4].numpy()

    ttrace.compare({"w": before}, {"w": after})                  # two dicts of arrays, checkpoints, files or traces

    report = ttrace.check("candidate", "reference", annotations="gpt.yaml", tolerance="tolerance.yaml")
    report.verdict, report.sentence, report.findings

    with ttrace.record("candidate"):                             # of this process: a module in a unit test
        layer(x).square().sum().backward()
    ttrace.testing.assert_same("candidate", "reference", tolerance="tolerance.yaml")

    with ttrace.Recorder("candidate") as recorder:               # of any program: what it names itself
        recorder.record("layers.0.mlp", array)

The page of the Python package in the manual has more; the rest of ttrace is a command line."""

import platform

try:
    from ._core import InputError, version
except ImportError as error:
    raise ImportError(
        f"ttrace: its extension module cannot be imported: {error}; expected the Python that it was built for "
        f"(-DTTRACE_PYTHON of CMake), and this is Python {platform.python_version()}"
    ) from None

from . import _installation, testing
from .comparing import NotSame, compare
from .recorder import Recorder, is_collected
from .recording import record
from .report_types import Counts, Finding, OptimizerSteps, Override, Proof, Root, Statistic, Worst
from .reports import Report, check, estimate_tolerance
from .traces import Piece, Tensor, Trace, open

__version__ = version
__all__ = [
    "Counts",
    "Finding",
    "InputError",
    "NotSame",
    "OptimizerSteps",
    "Override",
    "Piece",
    "Proof",
    "Recorder",
    "Report",
    "Root",
    "Statistic",
    "Tensor",
    "Trace",
    "Worst",
    "__version__",
    "check",
    "compare",
    "estimate_tolerance",
    "is_collected",
    "open",
    "record",
    "testing",
]

InputError.__module__ = NotSame.__module__ = __name__
del _installation, platform, version
