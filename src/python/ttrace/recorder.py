"""Records tensors of any program, whatever computes them."""

import contextlib
import datetime
import importlib
import json
import math
import os
import platform
import sys
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal

from . import _core, _installation
from ._core import InputError

if TYPE_CHECKING:  # who records has it
    import numpy

Kind = Literal[
    "input",
    "output",
    "grad_output",
    "grad_input",
    "param",
    "param_grad",
    "main_grad",
    "param_delta",
    "param_after",
    "scalar",
    "master",
    "exp_avg",
    "exp_avg_sq",
    "max_exp_avg_sq",
    "momentum_buffer",
    "step_grad",
    "buffer",
    "buffer_after",
]
Placement = int | Literal["replicate", "partial"]  # an int: the dimension that the axis splits


def is_collected() -> bool:
    """Whether `ttrace collect` runs this program: then a Recorder needs no directory."""
    return bool(os.environ.get("TTRACE_CONFIG"))


class Recorder:
    """Records what one rank of a run computes, from any program: a trace that all of ttrace takes.

        with ttrace.Recorder(compute_dtype="float32") as recorder:              # below `ttrace collect`
            hidden = embedding[tokens] * recorder.factors("embedding", (8, 16))  # ones, but in a run with --perturb
            recorder.record("embedding", hidden)
            recorder.record("embedding.weight", embedding, kind="param")

    Below `ttrace collect` the directory, the run's id, the iterations to record and the seed of `--perturb` are those
    of the command; elsewhere `directory` is new or empty, and several ranks share a `run_id` that the program makes up.
    `axes` says how `world_size` ranks are arranged, the fastest first ("tp=2,dp=2"); `coordinates` where this rank is
    ("tp=1,dp=0"), if that does not follow from `rank`. `compute_dtype` is the one that most is computed in: what is
    perturbed, and what a tensor may differ by at least, follow from it. `device`: "cpu" lets `estimate-tolerance` run
    several side by side. `partial`, a sentence, says that the trace holds less than the run computed, and why: what is
    not in it is then not missing.

    A trace is whole when the block ends, or after `close()`; where the block raises, it is marked as not whole. Methods
    raise InputError, of one line, where a trace cannot hold what it is given."""

    def __init__(
        self,
        directory: "str | os.PathLike[str] | None" = None,
        *,
        rank: int = 0,
        world_size: int = 1,
        axes: str = "",
        coordinates: str = "",
        compute_dtype: str = "float32",
        device: str = "",
        run_id: str = "",
        perturb: int | None = None,
        partial: str = "",
    ):
        self._library = _installation.collector("library")
        run = _Run.of_command() if directory is None else _Run.here(directory, run_id, world_size, axes, perturb)
        self.iterations: frozenset[int] | None = run.iterations
        """Those that are recorded; None: all."""
        self.seed: int | None = run.seed
        """Of the perturbation; None: the run is not perturbed."""
        self._axes, self._compute_dtype, self._partial = axes or run.axes, compute_dtype, partial
        self._provenance = run.provenance | {"python": platform.python_version(), "device": device}
        self._eps = _epsilon_of(compute_dtype)
        self._started, self._seconds = time.perf_counter(), 0.0
        self._was_perturbed = False
        self._steps = _installation.collector("optimizer_steps").OptimizerSteps()
        position = _installation.collector("mesh_position").MeshPosition
        self._position = position(rank, world_size, self._axes, coordinates)
        with self._refusals():
            self._recorder = self._library.Recorder(
                str(_installation.LIBRARY),
                run.directory,
                run_id=run.run_id,
                rank=rank,
                world_size=world_size,
                axes=self._axes,
                coordinates=coordinates,
            )
            self._recorder.describe(compute_dtype, self._describe())

    def __enter__(self) -> "Recorder":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
        elif self._recorder is not None:
            with contextlib.suppress(InputError):  # the program's own error says enough
                self.close(complete=False)

    def records(self, iteration: int) -> bool:
        """Whether tensors of the iteration are recorded: `record` does nothing in others."""
        return self.iterations is None or iteration in self.iterations

    def record(
        self,
        name: str,
        values: Any,
        *,
        kind: Kind = "output",
        iteration: int = 0,
        microbatch: int | None = None,
        chunk: int = 0,
        recomputed: bool = False,
        axes: Mapping[str, Placement] | None = None,
        shape: Sequence[int] | None = None,
        slices: Sequence[tuple[Sequence[int], Sequence[int], Sequence[int]]] | None = None,
        module_class: str = "",
    ) -> None:
        """Records this rank's part of a tensor: a NumPy array or what NumPy makes one of, of a dtype that a trace has
        (ml_dtypes' bfloat16 and fp8 among them). A name, kind, micro-batch and iteration is recorded once, and the
        order of the calls is the order of execution. A masked array, or another subclass that keeps more than its
        values, is refused. Without `microbatch` a parameter or a scalar has none, and any other tensor is of the first.

        Where nothing is said of its place, annotations say it, or its shape does. `axes`: for each axis, the outermost
        first, the dimension that it splits, "replicate", or "partial": the whole is the sum. `shape`: of the whole.
        `slices` instead of axes: parts (start in `values`, start in the whole, size)."""
        _require_types(name=(name, str), kind=(kind, str), iteration=(iteration, int), chunk=(chunk, int))
        if not self.records(iteration):
            return
        started, library = time.perf_counter(), self._library
        if kind.upper() not in library.Kind.__members__:
            raise InputError(
                f"{name}: kind '{kind}'; expected one of {', '.join(known.text for known in library.Kind)}"
            )
        tensor_kind = library.Kind[kind.upper()]
        passed = library.Pass.RECOMPUTE if recomputed else library.Pass.FORWARD
        tensor_id = library.TensorId(
            iteration, library.microbatch_of(tensor_kind, microbatch), chunk, passed, tensor_kind, name
        )
        arrays, mapping = _installation.collector("arrays"), _installation.collector("mapping").mapping_of
        with self._refusals(f"{name}: "):
            owner, view = arrays.view_of_array(arrays.array_of(values))
            placed = mapping(name, self._position, axes, shape, slices)
            self._open_recorder().record(tensor_id, view, module_class=module_class, mapping=placed)
            del owner  # lived until now
        self._seconds += time.perf_counter() - started

    def factors(
        self, name: str, shape: Sequence[int], *, kind: Kind = "output", iteration: int = 0, microbatch: int = 0
    ) -> "numpy.ndarray[Any, numpy.dtype[numpy.float32]]":
        """What `--perturb` multiplies a tensor by: 1 + epsilon * u in fp32, u uniform in [-1, 1), the same in every run
        with that seed; ones in a run that is not perturbed. A program multiplies the first floating-point activation of
        each micro-batch, in fp32 (or more), and rounds it back. `shape` is of the whole: of several ranks, each takes
        its part of the result."""
        import numpy

        values: numpy.ndarray[Any, numpy.dtype[numpy.float32]] = numpy.zeros(tuple(shape), dtype=numpy.float32)
        if self.seed is None:
            return values + numpy.float32(1)
        library = self._library
        tensor_kind = library.Kind[kind.upper()]
        tensor_id = library.TensorId(
            iteration, library.microbatch_of(tensor_kind, microbatch), 0, library.Pass.FORWARD, tensor_kind, name
        )
        with self._refusals(f"{name}: "):
            self._open_recorder().perturbation(self.seed, tensor_id, values.shape, values.ctypes.data)
        self._was_perturbed = True
        return numpy.float32(1) + numpy.float32(self._eps) * values

    def optimizer_step(
        self,
        optimizer: str,
        parameters: Iterable[str],
        options: Mapping[str, float],
        *,
        iteration: int = 0,
        step: int | None = None,
        clip_factor: float = 1,
    ) -> None:
        """Says by which rule these parameters were updated, so that `check` computes the step again from what was
        recorded: param, main_grad, param_delta, param_after, and where the first step recorded is not the first of the
        run, the optimizer's state. `optimizer` is a class whose rule is known ("torch.optim.sgd.SGD",
        "torch.optim.adam.Adam", "torch.optim.adamw.AdamW") where the step is that rule, else any name. `options` are
        PyTorch's: lr, beta1, beta2, eps, weight_decay, momentum. `step` is 1 in the first. The gradient that the
        optimizer was given is `clip_factor` times main_grad."""
        if not self.records(iteration):
            return
        # JSON has no word for others, with which no step can be computed again.
        known = tuple(sorted(item for item in options.items() if math.isfinite(item[1])))
        facts = _installation.collector("optimizer_steps").StepFacts(optimizer, known, step, 1, clip_factor, "", False)
        for name in parameters:
            self._steps.add(iteration, 0, facts, name)

    def say_reduced(self, averaged: Iterable[str], summed: Iterable[str]) -> None:
        """Says that the program reduces all gradients over these axes: ranks along them have micro-batches, or slices
        of them, of their own. Before they are averaged, each rank's gradients are those of its own loss."""
        scale, axes = sorted(averaged), sorted({*averaged, *summed})
        if axes:
            said: dict[str, Any] = {"microbatches": {"axis": axes}}
            self._provenance["parallelism"] = said | ({"loss_scale": "*".join(scale)} if scale else {})

    def close(self, *, complete: bool = True) -> None:
        """Ends the trace. `complete`: it holds all that it should. Raises InputError, too, where `--perturb` was asked
        for and `factors` never called."""
        recorder = self._open_recorder()
        forgotten = complete and self.seed is not None and not self._was_perturbed
        self._recorder = None
        with self._refusals():
            try:
                recorder.describe("", self._describe())
            finally:
                recorder.close(complete and not forgotten)
        if forgotten:
            raise InputError("--perturb: nothing was perturbed; expected a program that multiplies by `factors`")

    def _open_recorder(self) -> Any:
        if self._recorder is None:
            raise InputError("the recorder is closed; expected no more tensors")
        return self._recorder

    def _describe(self) -> str:
        facts: dict[str, Any] = self._provenance | {"axes": self._axes, "recording_seconds": round(self._seconds, 3)}
        facts |= {"perturb_seed": self.seed, "perturb_at": None if self.seed is None else "input"}
        if self._partial:
            facts["not_seen"] = [{"reason": self._partial, "everything": True}]
        if steps := self._steps.as_document():
            facts["optimizer_steps"] = steps
        return json.dumps(facts)

    @contextlib.contextmanager
    def _refusals(self, where: str = "") -> Any:
        """Turns what the parts raise into InputError."""
        refusals = (
            self._library.TraceError,
            _installation.collector("arrays").NotRecordable,
            _installation.collector("problems").CollectError,
        )
        try:
            yield
        except refusals as error:
            raise InputError(f"{where}{error}") from None


class _Run:
    """What is recorded, and where to."""

    def __init__(
        self,
        directory: str,
        run_id: str,
        iterations: frozenset[int] | None,
        axes: str,
        seed: int | None,
        provenance: dict[str, Any],
    ):
        self.directory, self.run_id, self.iterations = directory, run_id, iterations
        self.axes, self.seed, self.provenance = axes, seed, provenance

    @staticmethod
    def of_command() -> "_Run":
        if not is_collected():
            raise InputError("no directory; expected one, or a program that `ttrace collect` runs")
        config = _installation.collector("config").Config.from_environment()
        if config.rewrite is not None or config.perturb_at != "input":
            raise InputError(
                "a Recorder cannot give modules values of another run, nor perturb all of them; expected a `ttrace "
                "collect` without --inject, --rewrite and --perturb-at"
            )
        return _Run(
            config.directory, config.run_id, config.iterations, config.axes, config.perturb, dict(config.provenance)
        )

    @staticmethod
    def here(
        directory: "str | os.PathLike[str]", run_id: str, world_size: int, axes: str, perturb: int | None
    ) -> "_Run":
        if world_size > 1 and not run_id:
            raise InputError(f"a trace of {world_size} ranks; expected a run_id that all of them share")
        provenance = {
            "ttrace": _core.version,
            "command": [sys.executable, *sys.argv],
            "started": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "directory": os.getcwd(),
        }
        path = os.path.abspath(os.fspath(directory))
        return _Run(path, run_id or str(uuid.uuid4()), None, axes, perturb, provenance)


def _require_types(**arguments: tuple[object, type]) -> None:
    """Of `record`, where what it calls would say something else."""
    for name, (value, expected) in arguments.items():
        if not isinstance(value, expected) and not (expected is int and hasattr(value, "__index__")):
            raise TypeError(f"record(): {name} is of type {type(value).__name__}; expected {expected.__name__}")


def _epsilon_of(dtype: str) -> float:
    """The distance from 1 to the next number."""
    import numpy

    try:
        if dtype in ("float64", "float32", "float16"):
            return float(numpy.finfo(dtype).eps)
        return float(importlib.import_module("ml_dtypes").finfo(dtype).eps)
    except (ImportError, TypeError, ValueError, AttributeError):
        raise InputError(
            f"compute_dtype '{dtype}'; expected float64, float32, float16, or bfloat16 where ml_dtypes is there"
        ) from None
