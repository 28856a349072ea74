"""This rank's file: opened with what is known about the rank, described when more is known, closed once."""

import contextlib
import ctypes
import functools
import json
import platform
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from . import adapters, problems, program_files
from .adapters import Adapter
from .config import Config
from .coordinates import position_of_this_rank, rank_and_world_size
from .device_sketches import sketch_of
from .library import Recorder, Status, TensorId, TensorView, TraceError
from .mesh_position import MeshPosition
from .placements import Placements
from .problems import CollectError
from .processes import this_process
from .surroundings import surroundings
from .tensors import (
    NotTraceable,
    dtype_name,
    dtype_of,
    is_dtensor,
    local_part,
    named_parameters,
    traceable,
    view_as_it_is,
    view_of,
)
from .transfers import Transfers

if TYPE_CHECKING:  # at run time its presence means that the program uses it: adapters/device_mesh.py
    from torch.distributed.device_mesh import DeviceMesh

_QUEUE_BYTES = 64 << 20  # of tensors that a thread has yet to write
_MOST_BYTES = 1 << 20  # of the provenance; libttrace takes no more


class RankFile:
    """Its methods raise TraceError where libttrace refuses."""

    def __init__(self, config: Config, directory: str):
        """In `directory`, of the run or of one of its iterations."""
        self.position = position_of_this_rank(config.axes, None)
        self.compute_dtype: torch.dtype | None = None
        self._placements = Placements(self.position)
        self._asked_for_mesh = False
        self._device = ""
        self._matmul_precision = MATMUL_PRECISIONS[0]  # the coarsest so far
        self._surroundings: dict[str, str] = {}
        self._parallelism: dict[str, Any] = {}  # what the frameworks say
        self._config = config
        self._transfers = Transfers()
        self._cell_edges: dict[tuple, tuple[int, ...] | None] = {}  # by dtype, shape and mapping
        self._recorder = self._open(directory)
        self._script = program_files.script()
        self._recorder.describe("", self._provenance(0.0))

    def _open(self, directory: str) -> Recorder:
        position, config = self.position, self._config
        facts = {
            "run_id": config.run_id,
            "rank": position.rank,
            "world_size": position.world_size,
            "annotations": config.annotations,
            "queue_bytes": _QUEUE_BYTES,
        }
        try:
            where = {"axes": position.axes, "coordinates": position.coordinates}
            return Recorder(config.library, directory, **facts, **where)
        except TraceError as error:
            if error.status == Status.EXISTS:
                raise CollectError(f"{error}; not recorded: {this_process()}") from None
            if error.status != Status.INVALID or not config.axes:
                raise
            # The job goes on, and its trace shall be of use. Who records a block learns at its end that it is another.
            tell = problems.problem if problems.raises(config.directory) else problems.warning
            tell(config.directory, position.rank, f"{error}; recorded without axes: say them to `ttrace check --axes`")
            self.position = self._placements.position = replace(position, axes="")
            return Recorder(config.library, directory, **facts)

    def describe_model(self, model: torch.nn.Module) -> None:
        """Compute dtype and device, learnt from the first model that runs."""
        position, (rank, world_size) = self.position, rank_and_world_size()
        if (position.rank, position.world_size) != (rank, world_size):
            raise CollectError(
                f"recording began as rank {position.rank} of {position.world_size}, and torch.distributed, "
                f"initialised later, says rank {rank} of {world_size}"
            )
        self._find_position(model)
        if self.position.is_known:
            self._parallelism |= adapters.words(model, self.position)
        if self.compute_dtype is not None:
            return
        devices = [parameter.device.type for _, parameter in named_parameters(model)]
        # A skeleton on "meta" computes with others' parameters (torch.func.functional_call).
        self._device = next((device for device in devices if device != "meta"), "cpu")
        self._surroundings = surroundings(self._device, _autocast_dtype(self._device))
        self.compute_dtype = _compute_dtype(model, self._device)
        self._recorder.describe(dtype_name(self.compute_dtype), self._provenance(0.0))

    def look_for_autocast(self) -> None:
        """Where the program computes just now: a model may begin autocast in its forward."""
        dtype = None if self.compute_dtype is None else _autocast_dtype(self._device)
        if dtype is not None and torch.finfo(dtype).eps > torch.finfo(self.compute_dtype).eps:
            self.compute_dtype = dtype
            self._surroundings["autocast"] = str(dtype)
            self._recorder.describe(dtype_name(dtype), self._provenance(0.0))

    def record(
        self, tensor_id: TensorId, tensor: torch.Tensor, *, module_class: str, mapping: str, sketch: bool
    ) -> None:
        """`sketch`: record one in place of a large tensor's elements. `mapping` is what the caller knows of where the
        tensor lies in the logical one, or "": a DTensor's placements say it. Raises NotTraceable, CollectError,
        TraceError."""
        view = view_as_it_is(tensor) if self._transfers.pass_from_host() else None
        if view is not None:
            self._recorder.record(tensor_id, view, module_class=module_class, mapping=mapping, sketch=sketch)
            return
        if not mapping and is_dtensor(tensor):
            if not self._asked_for_mesh:
                self._asked_for_mesh = True
                self._find_position(None)  # where no model has run yet, a mesh is there all the same
            mapping = self._placements.mapping_of(tensor)
        part, tensor = local_part(tensor), traceable(tensor)
        if mapping and tensor.shape != part.shape:
            raise NotTraceable(f"a part of a tensor of {part.dim()} dimensions that is recorded with {tensor.dim()}")
        facts = {"module_class": module_class, "mapping": mapping}
        sketched = self._sketch_on_device(tensor, mapping) if sketch and self._transfers.crosses_bus(tensor) else None
        if sketched is not None:
            view = TensorView(0, dtype_of(tensor), tuple(tensor.shape))
            self._transfers.add(sketched, functools.partial(self._hand_over_sketch, tensor_id, view, facts))
        else:
            facts["sketch"] = sketch
            self._transfers.add(tensor, functools.partial(self._hand_over, tensor_id, facts))

    def _hand_over(self, tensor_id: TensorId, facts: dict[str, Any], host: torch.Tensor) -> None:
        self._recorder.record(tensor_id, view_of(host), **facts)

    def _hand_over_sketch(
        self, tensor_id: TensorId, view: TensorView, facts: dict[str, Any], host: torch.Tensor
    ) -> None:
        fingerprint = int.from_bytes(ctypes.string_at(host.data_ptr() + host.numel() - 8, 8), "little")
        self._recorder.record_sketch(tensor_id, view._replace(address=host.data_ptr()), fingerprint, **facts)

    def _sketch_on_device(self, tensor: torch.Tensor, mapping: str) -> torch.Tensor | None:
        """None where it is recorded whole in any case, or the device cannot: then libttrace sketches it."""
        key = tensor.dtype, tensor.shape, mapping
        if key not in self._cell_edges:
            self._cell_edges[key] = self._recorder.cell_edges(dtype_of(tensor), tensor.shape, mapping)
        edges = self._cell_edges[key]
        try:
            return None if edges is None else sketch_of(tensor, edges)
        except RuntimeError:  # no memory, or no fp64
            return None

    def finish_transfers(self) -> None:
        """Waits for all that was recorded to be in the file. Raises CollectError where a device fails."""
        self._transfers.finish()

    def mapping_of_term(self, shape: torch.Size, over: "DeviceMesh | tuple[str, ...]") -> str:
        """For `record`: of a tensor that the program sums later, over all ranks of a mesh or over axes; "" where the
        trace does not have these. Raises CollectError."""
        return self._placements.of_term(shape, over)

    def perturbation(self, seed: int, tensor_id: TensorId, shape: torch.Size) -> torch.Tensor:
        """u in [-1, 1), fp32, on the host, for this rank's part of the tensor: shape `shape`."""
        noise = torch.zeros(shape, dtype=torch.float32, device="cpu")
        self._recorder.perturbation(seed, tensor_id, shape, noise.data_ptr())
        return noise

    def require_axes(self, what: str) -> MeshPosition:
        """The position on a mesh with axes. Raises CollectError where nothing says them; `what` needs them."""
        if self.position.is_known:
            return self.position
        size = self.position.world_size
        raise CollectError(
            f"{what}: the run has {size} ranks and nothing says how they are arranged; expected --axes, as in "
            f"--axes dp={size}"
        )

    def _find_position(self, model: torch.nn.Module | None) -> None:
        """Asks the frameworks again, where they did not know before."""
        if self.position.is_known or self._config.axes:
            return
        self.position = self._placements.position = position_of_this_rank(self._config.axes, model)
        if self.position.is_known:
            self._recorder.describe_axes(self.position.axes, self.position.coordinates)

    def close(self, complete: bool, seconds: float, facts: dict[str, Any]) -> None:
        """`facts`: what the provenance says, by name; `configurations`, `sources`, `draws` and `optimizer_steps` of
        them may be left out where it grows too long."""
        facts = facts | {"program_files": program_files.program_files(self._config.source_root, self._script)}
        if self._device not in ("", "cpu", "cuda"):
            facts.pop("draws", None)  # by generators that were not looked at
        provenance = self._provenance(seconds, **facts)
        for less_needed in ("configurations", "sources", "draws"):
            if len(provenance) > _MOST_BYTES and facts.pop(less_needed, None):
                provenance = self._provenance(seconds, **facts)
        if len(provenance) > _MOST_BYTES and facts.get("optimizer_steps"):
            text = f"not recorded: optimizers' options: {len(provenance)} bytes; expected at most {_MOST_BYTES}"
            problems.warning(self._config.directory, self.position.rank, text)
            del facts["optimizer_steps"]
            provenance = self._provenance(seconds, **facts)
        is_written = False
        try:
            self.finish_transfers()
            self._recorder.describe("", provenance)
            is_written = True
        finally:
            self._recorder.close(complete and is_written)

    def _provenance(self, seconds: float, **said: Any) -> str:
        """`said`: what is known of the run at its end; what is empty is not said."""
        facts = dict(self._config.provenance)
        facts["python"] = platform.python_version()
        facts["torch"] = str(torch.__version__)
        facts["device"] = self._device
        facts["perturb_seed"] = self._config.perturb
        facts["perturb_at"] = None if self._config.perturb is None else self._config.perturb_at
        if self._parallelism:
            facts["parallelism"] = self._parallelism
        if self._surroundings:
            facts["surroundings"] = self._surroundings
        facts["recording_seconds"] = round(seconds, 3)
        self._matmul_precision = max(self._matmul_precision, matmul_precision(), key=MATMUL_PRECISIONS.index)
        facts["matmul_precision"] = self._matmul_precision
        facts |= {name: fact for name, fact in said.items() if fact}
        return json.dumps(facts)


MATMUL_PRECISIONS = ("highest", "high", "medium")  # torch's words, from the finest to the coarsest


def matmul_precision() -> str:
    """What products of fp32 matrices round their operands to: not at all, TF32, bf16."""
    switches = [torch.backends, torch.backends.cuda.matmul, getattr(torch.backends.mkldnn, "matmul", None)]  # 2.9
    new = [getattr(switch, "fp32_precision", "none") for switch in switches]
    words = [{"tf32": "high", "bf16": "medium"}.get(precision, "highest") for precision in new]
    # Of a program that has set the new switches, torch does not read the old ones.
    with contextlib.suppress(RuntimeError):
        words += [torch.get_float32_matmul_precision(), "high" if torch.backends.cuda.matmul.allow_tf32 else "highest"]
    return max(words, key=MATMUL_PRECISIONS.index)


def _compute_dtype(model: torch.nn.Module, device: str) -> torch.dtype:
    """Autocast's where it is on, else the one that a wrapper casts parameters to, else that of most elements of the
    floating parameters."""
    dtype = _autocast_dtype(device) or adapters.first(Adapter.parameter_dtype, model)
    if dtype is not None:
        return dtype
    elements: dict[torch.dtype, int] = {}
    for parameter in dict.fromkeys(parameter for _, parameter in named_parameters(model)):  # shared ones count once
        if parameter.dtype.is_floating_point and not torch.nn.parameter.is_lazy(parameter):
            elements[parameter.dtype] = elements.get(parameter.dtype, 0) + parameter.numel()
    return max(elements, key=elements.get, default=torch.get_default_dtype())


def _autocast_dtype(device: str) -> torch.dtype | None:
    """None where autocast is off."""
    if not _autocast_enabled(device):
        return None
    if hasattr(torch, "get_autocast_dtype"):  # 2.4
        return torch.get_autocast_dtype(device)
    return torch.get_autocast_cpu_dtype() if device == "cpu" else torch.get_autocast_gpu_dtype()


def _autocast_enabled(device: str) -> bool:
    if hasattr(torch, "get_autocast_dtype"):
        return torch.is_autocast_enabled(device)
    return torch.is_autocast_cpu_enabled() if device == "cpu" else torch.is_autocast_enabled()
