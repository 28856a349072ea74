"""JAX programs: a rank for each device of a mesh, whose arrays say themselves how they are sharded.

    mesh = jax.make_mesh((2, 2), ("data", "model"))
    with ttrace.jax.MeshRecorder(mesh, compute_dtype="float32") as recorder:      # below `ttrace collect`
        recorder.record("layers.0.mlp", array)                                    # a NamedSharding of that mesh

What a jitted function computes inside is no array that one could record. `CallRecorder` takes hold of it, with no line
in the model; `Taps` hands out what one names oneself. JAX is imported where it is called, and not with this module."""

import collections
import contextlib
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import ModuleType, TracebackType
from typing import Any

from . import _jax_calls
from ._core import InputError
from .recorder import Kind, Placement, Recorder, is_collected


class MeshRecorder:
    """Recorders of those devices of `mesh`, a `jax.sharding.Mesh`, that this process drives: all of them where there is
    one process. The rank of a device is its place in the mesh, row-major; the axes are the mesh's. Options are those of
    `Recorder`; several processes that `ttrace collect` does not run share a `run_id`."""

    def __init__(self, mesh: Any, directory: Any = None, *, run_id: str = "", **options: Any):
        devices = list(mesh.devices.flat)
        process = min(device.process_index for device in devices if device in set(mesh.local_devices))
        is_alone = all(device.process_index == process for device in devices)
        if directory is not None and not run_id and is_alone:
            run_id = str(uuid.uuid4())
        options["axes"] = ",".join(f"{name}={size}" for name, size in reversed(list(mesh.shape.items())))
        options.setdefault("device", devices[0].platform)
        self._mesh = mesh
        self._recorders: dict[Any, Recorder] = {}  # by device
        for rank, device in enumerate(devices):
            if device.process_index != process:
                continue
            self._recorders[device] = Recorder(
                directory, rank=rank, world_size=len(devices), run_id=run_id if not is_collected() else "", **options
            )

    def __enter__(self) -> "MeshRecorder":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
        else:
            with contextlib.suppress(InputError):  # the program's own error says enough
                self.close(complete=False)

    def close(self, *, complete: bool = True) -> None:
        """As `Recorder.close`, of all."""
        refusals = []
        for recorder in self._recorders.values():
            try:
                recorder.close(complete=complete)
            except InputError as error:
                refusals.append(error)
        if refusals:
            raise refusals[0]

    def records(self, iteration: int) -> bool:
        """As `Recorder.records`."""
        return all(recorder.records(iteration) for recorder in self._recorders.values())

    def record(
        self,
        name: str,
        array: Any,
        *,
        kind: Kind = "output",
        iteration: int = 0,
        microbatch: int | None = None,
        module_class: str = "",
    ) -> None:
        """Records what each device holds of `array`, with the place that its sharding says. A NumPy array, or one that
        lies on no device of the mesh alone, is the same on all of them: a constant of the program. Otherwise as
        `Recorder.record`. Copies of one element on several devices are recorded each: where they differ, the program is
        wrong, and `check` says so."""
        facts: dict[str, Any] = dict(kind=kind, iteration=iteration, microbatch=microbatch, module_class=module_class)
        if not hasattr(array, "addressable_shards"):
            for recorder in self._recorders.values():
                recorder.record(name, array, axes=dict.fromkeys(self._mesh.axis_names, "replicate"), **facts)
            return
        axes = self._axes_of(name, array)
        for shard in array.addressable_shards:
            self._recorders[shard.device].record(name, shard.data, axes=axes, shape=array.shape, **facts)

    def factors(
        self, name: str, shape: Sequence[int], *, kind: Kind = "output", iteration: int = 0, microbatch: int = 0
    ) -> Any:
        """As `Recorder.factors`: of the whole, on the host."""
        recorders = list(self._recorders.values())
        for recorder in recorders[1:]:  # each trace says that it was perturbed
            recorder.factors(name, (), kind=kind, iteration=iteration, microbatch=microbatch)
        return recorders[0].factors(name, shape, kind=kind, iteration=iteration, microbatch=microbatch)

    def optimizer_step(
        self,
        optimizer: str,
        parameters: Sequence[str],
        options: Mapping[str, float],
        *,
        iteration: int = 0,
        step: int | None = None,
        clip_factor: float = 1,
    ) -> None:
        """As `Recorder.optimizer_step`."""
        facts: dict[str, Any] = dict(iteration=iteration, step=step, clip_factor=clip_factor)
        for recorder in self._recorders.values():
            recorder.optimizer_step(optimizer, parameters, options, **facts)

    def _axes_of(self, name: str, array: Any) -> dict[str, Placement]:
        """Which dimension each axis of the mesh splits, the outermost first."""
        sharding, spec = array.sharding, getattr(array.sharding, "spec", None)
        if spec is None and len(sharding.device_set) == len(self._recorders) == 1:
            return {}
        if spec is None or list(sharding.mesh.devices.flat) != list(self._mesh.devices.flat):
            raise InputError(f"{name}: sharded as {sharding}; expected a NamedSharding of the mesh that is recorded")
        if sharding.mesh.shape != self._mesh.shape:
            raise InputError(
                f"{name}: on a mesh {dict(sharding.mesh.shape)}; expected the recorder's, {dict(self._mesh.shape)}"
            )
        axes: dict[str, Placement] = {}
        for dim, entry in enumerate(spec):
            for axis in (entry,) if isinstance(entry, str) else entry or ():
                axes[axis] = dim
        return axes | {axis: "replicate" for axis in self._mesh.axis_names if axis not in axes}


class CallRecorder(MeshRecorder):
    """Records what a program computes without a tap in it:

        with CallRecorder(mesh) as recorder:
            for i, batch in enumerate(batches):
                with recorder.iteration(i):
                    loss = train_step(model, optimizer, batch)     # jit, shard_map, grad, scan, checkpoint inside

    What is recorded: what modules of flax (nnx, linen) return, by their paths, and the gradients there; the value of
    what `jax.grad` or `jax.value_and_grad` differentiates, as `loss`; of optax's steps the parameters before and after,
    the gradients and updates, with the rule where a chain is Adam's, AdamW's, SGD's, Lion's or Adafactor's, clipped or
    not; and what the functions return that are defined in the Python modules of `functions`, by the names of the calls
    (`forward.attention`). Flax and optax are imported before the block begins, and what is compiled before, or in
    another block, is not seen.

    A device in `shard_map` records its part, whose place `check` tells by its shape; outside of it values are JAX's
    logical arrays, which are recorded whole. In a loop the calls of a module are counted (`layer#1`), and each loss
    ends a micro-batch. Other options are those of `Recorder`."""

    def __init__(
        self,
        mesh: Any,
        directory: Any = None,
        *,
        functions: Iterable[ModuleType] = (),
        run_id: str = "",
        **options: Any,
    ):
        super().__init__(mesh, directory, run_id=run_id, **options)
        is_perturbed = any(recorder.seed is not None for recorder in self._recorders.values())
        self._calls = _jax_calls.Calls(mesh.axis_names, functions, self.factors if is_perturbed else None)
        self._installed = contextlib.ExitStack()
        self._has_stepped = False  # in the iteration before, which was recorded

    def __enter__(self) -> "CallRecorder":
        self._installed.enter_context(self._calls.installed())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._installed.close()
        super().__exit__(kind, error, trace)

    @contextlib.contextmanager
    def iteration(self, number: int = 0) -> Iterator[None]:
        """The block is one iteration: all that it calls, up to one step of an optimizer."""
        with self._calls.collecting() as arrived:
            yield
        if not self.records(number):
            self._has_stepped = False
            return
        for recorder in self._recorders.values():
            recorder.say_reduced(self._calls.averaged, self._calls.summed)
        by_place: dict[tuple[int, ...] | None, list[Any]] = {}
        for site, place, value in arrived:
            by_place.setdefault(place, []).append((site, value))
        for place, of_device in by_place.items():
            of_place: Any = self if place is None else self._recorders[self._mesh.devices[place]]
            _record(of_place, _jax_calls.arranged(of_device), number, has_state=not self._has_stepped)
        self._has_stepped = bool(arrived)


def _record(recorder: Any, arrivals: list[_jax_calls.Arrival], iteration: int, has_state: bool) -> None:
    """Records what arrived of one device. `has_state`: what optimizers know of earlier steps as well."""
    for name, site, microbatch, value in arrivals:
        if site.kind == "step":
            for options, names in site.step.groups():
                facts = {key: float(number) for key, number in value.items()}
                options = options | {key: facts.pop(key) for key in ("lr", "beta2") if key in facts}
                recorder.optimizer_step(site.step.optimizer, names, options, iteration=iteration, **facts)
            continue
        is_state = site.kind in _jax_calls.STATE_KINDS
        if is_state and not (has_state and value.any()):
            continue
        recorder.record(
            name, value, kind=site.kind, iteration=iteration, microbatch=microbatch, module_class=site.module_class
        )


class Taps:
    """Hands out what a traced function computes, and by probes, zeros that it adds, the gradients there:

        def loss(parameters, probes, batch):
            taps = Taps(probes)
            hidden = taps("mlp", f(parameters, batch))
            return g(hidden), taps.values

        run = jax.value_and_grad(loss, (0, 1), has_aux=True)
        (value, outputs), (gradients, of_outputs) = run(parameters, probes, batch)

    `value + probe` is the value itself, and the gradient of the probe is that of what follows it. Without a probe of
    its name a value is handed out alone."""

    def __init__(self, probes: Mapping[str, Any] | None = None):
        self._probes = probes or {}
        self.values: collections.OrderedDict[str, Any] = collections.OrderedDict()
        """By name, in order of execution, which JAX keeps of an OrderedDict and not of a dict."""

    def __call__(self, name: str, value: Any) -> Any:
        if name in self._probes:
            value = value + self._probes[name]
        self.values[name] = value
        return value
