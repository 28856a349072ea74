"""JAX programs: a rank for each device of a mesh, whose arrays say themselves how they are sharded.

    mesh = jax.make_mesh((2, 2), ("data", "model"))
    with ttrace.jax.MeshRecorder(mesh, compute_dtype="float32") as recorder:      # below `ttrace collect`
        recorder.record("layers.0.mlp", array)                                    # a NamedSharding of that mesh

What a jitted function computes inside is no array that one could record: `Taps` hands it out. Nothing of JAX is
imported here; the arrays that are given bring it along."""

import collections
import contextlib
import uuid
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any

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
        self, name: str, array: Any, *, kind: Kind = "output", iteration: int = 0, microbatch: int | None = None
    ) -> None:
        """Records what each device holds of `array`, with the place that its sharding says. A NumPy array, or one that
        lies on no device of the mesh alone, is the same on all of them: a constant of the program. Otherwise as
        `Recorder.record`. Copies of one element on several devices are recorded each: where they differ, the program is
        wrong, and `check` says so."""
        facts: dict[str, Any] = dict(kind=kind, iteration=iteration, microbatch=microbatch)
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
