"""Gradients: of activations by tensor hooks, of parameters by hooks on the leaves, and the loss.

Tensor hooks see the total gradient with respect to a tensor, and leave the graph as it is. Full backward hooks of
modules would put views into the graph, which forbids in-place operations and may change the order of sums.

A gradient has the identity that it has without activation checkpointing, wherever the hook fires. Non-reentrant
checkpointing keeps the first forward's tensors in the graph, and their hooks fire. Reentrant checkpointing runs the
first forward without grad; then the recomputed tensors are hooked, but not those that a hook waits for already (the
input of the checkpointed part, which the recomputation replaces by a detached copy that sees less).

Reentrant checkpointing also runs a backward within the backward, so that a parameter which is used in two parts gets
its gradient in two portions. These are added up, as PyTorch does, and recorded when the micro-batch's backward is
over. So are the portions of a tied parameter that `fully_shard` gathers once for each of its names. A head that the
program calls on one piece of the activations after the other, each with a backward of its own, gets portions too: those
are over when a gradient of another micro-batch comes, or an optimizer wants them."""

import functools
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import torch

from . import adapters, patches
from .adapters import Adapter
from .clock import Chunk, Microbatch
from .collector import Collector
from .frame import Frame
from .library import Kind, TensorId
from .tensors import LOSS_OF_NO_MODEL, is_capturing


class _EarlyGradient(NamedTuple):
    """The arguments of `Gradients._parameter_arrived`."""

    chunk: Chunk
    parameter: torch.Tensor
    names: list[str]
    in_portions: bool
    gradient: torch.Tensor


class Gradients:
    def __init__(self, collector: Collector):
        self._collector = collector
        self._hooked_parameters: set[tuple[int, int]] = set()  # (chunk, id of the parameter)
        self._left_out: set[tuple[int, str]] = set()  # (chunk, name) of parameters
        self._loss_of_no_model = False  # since the last backward of a model, one of a number that no model has made
        self._first_in_backward: Microbatch | None = None  # whose gradient came first in this backward
        # What parameters got in this backward before any activation did, as in that of a gradient; None outside of one.
        self._early: list[_EarlyGradient] | None = None
        # Of each micro-batch: name of a parameter -> sum of its gradients so far, and where that lies.
        self._portions: dict[Microbatch, dict[str, tuple[torch.Tensor, str]]] = {}

    def install(self) -> None:
        # torch.Tensor.backward looks it up there.
        patches.replace(torch.autograd, "backward", self._observed(torch.autograd.backward))

    def install_adapters(self) -> None:
        for function in adapters.functions("backward"):
            function.wrap(self._observed)
        for adapter in adapters.OVERRIDING["gathering"]:
            for function in adapter.gathering:
                function.wrap(functools.partial(self._gathering, adapter))
        for function in adapters.functions("weight_backward"):
            function.wrap(self._of_microbatch)

    def _of_microbatch(self, backward: Callable) -> Callable:
        collector = self._collector

        @functools.wraps(backward)
        def patched(stage: Any, number: int, *args: Any, **kwargs: Any) -> Any:
            collector.safely(self._begin_weights, stage.submod, number)
            return backward(stage, number, *args, **kwargs)

        return patched

    def _begin_weights(self, module: torch.nn.Module, number: int) -> None:
        """The gradients to come are those of parameters alone: no activation's tells the micro-batch."""
        chunk = self._collector.clock.chunk_of(module)
        if chunk is not None and number < len(chunk.microbatches):
            chunk.in_backward = chunk.microbatches[number]

    def _observed(self, backward: Callable) -> Callable:
        collector = self._collector

        @functools.wraps(backward)
        def patched(tensors: Any, *args: Any, **kwargs: Any) -> Any:
            if not collector.active or torch._C._current_graph_task_id() != -1:
                return backward(tensors, *args, **kwargs)
            collector.safely(self._begin_backward)
            entered = collector.threads.enter()
            try:
                result = backward(tensors, *args, **kwargs)
            finally:
                if entered:
                    collector.threads.leave()
            collector.safely(self._end_backward, tensors, args[0] if args else kwargs.get("grad_tensors"))
            return result

        return patched

    # Activations.

    def hook(
        self,
        microbatch: Microbatch,
        tensor_id: TensorId,
        tensor: torch.Tensor,
        module_class: str,
        replacement: Callable[[TensorId, torch.Tensor], torch.Tensor | None] | None = None,
    ) -> None:
        """Records the gradient of `tensor` as `tensor_id` when it arrives. Backward goes on with what
        `replacement(tensor_id, gradient)` returns, unless that is None."""
        if not tensor.requires_grad or tensor_id in microbatch.hooked:
            return
        microbatch.hooked.add(tensor_id)
        collector = self._collector
        arrived = functools.partial(self._fired, microbatch, tensor_id, module_class, tensor.is_leaf, replacement)
        original = adapters.first(Adapter.original_of, tensor) if replacement is None else None
        try:
            plain = type(tensor) is torch.Tensor
            if original is not None:
                node, place = original
                node.register_prehook(lambda gradients: arrived(gradients[place]))
            elif plain and tensor._is_view() and tensor._base.requires_grad and not tensor._base.is_leaf:
                _ViewHooks(tensor, arrived)
            else:
                tensor.register_hook(arrived)
        except RuntimeError as error:
            collector.warn(f"not traceable: the gradient of '{tensor_id.name}' ({error})")
            collector.not_seen(
                f"it cannot be hooked: {error}", (tensor_id.kind,), tensor_id.chunk, tensors=[tensor_id.name]
            )

    def _fired(
        self,
        microbatch: Microbatch,
        tensor_id: TensorId,
        module_class: str,
        is_leaf: bool,
        replacement: Callable[[TensorId, torch.Tensor], torch.Tensor | None] | None,
        gradient: torch.Tensor | None,
    ) -> torch.Tensor | None:
        """What `hook` registers, but for the gradient. A closure would hold as much in four times as many objects,
        through which Python's garbage collector then goes."""
        # A leaf outlives the micro-batch, and its hooks fire in the backward of others too.
        if is_leaf and microbatch.chunk is not None and microbatch.chunk.in_backward is not microbatch:
            return None
        self._collector.safely(self._arrived, microbatch, tensor_id, module_class, gradient)
        if replacement is None or gradient is None:
            return None
        return self._collector.safely(replacement, tensor_id, gradient)

    def _arrived(
        self, microbatch: Microbatch, tensor_id: TensorId, module_class: str, gradient: torch.Tensor | None
    ) -> None:
        if microbatch.chunk is not None:
            microbatch.chunk.in_backward = microbatch
        if self._first_in_backward is None:
            self._first_in_backward = microbatch
        if self._early and microbatch.chunk is not None:
            self._record_early(microbatch.chunk)
        if self._portions:
            self._record_portions_of(other for other in self._portions if other is not microbatch)
        if gradient is None:
            return
        if tensor_id in microbatch.arrived:
            self._collector.warn(
                f"not traceable: the gradient of '{tensor_id.name}' came more than once in a micro-batch; "
                "only the first is recorded"
            )
            return
        microbatch.arrived.add(tensor_id)
        self._collector.record(tensor_id, gradient, module_class=module_class)

    # Parameters.

    def hook_parameters(self, chunk: Chunk) -> None:
        for parameter, names in chunk.names_by_parameter():
            key = chunk.number, id(parameter)
            if torch.nn.parameter.is_lazy(parameter):  # it has no value before its module is called
                continue
            if parameter.requires_grad and parameter.is_leaf and key not in self._hooked_parameters:
                self._hooked_parameters.add(key)
                all_names = chunk.tied_names(names)
                in_portions = len(names) < len(all_names)
                patches.keep(parameter.register_hook(self._parameter_hook(chunk, parameter, all_names, in_portions)))

    def leave_out(self, frame: Frame, module: torch.nn.Module) -> None:
        """The parameters of `module`, to which experts' tokens come from several ranks: what one micro-batch's backward
        adds to their gradients is that of other ranks' micro-batches, too."""
        if frame.chunk is not None:
            self._left_out.update((frame.chunk.number, f"{frame.path}.{name}") for name in module._parameters)

    def hook_gathered_parameters(self, chunk: Chunk, module: torch.nn.Module) -> None:
        """Of `module`, which `fully_shard` shards and which is about to be called: its own hook that comes first
        replaces its parameters by whole ones. Those get the gradient of a micro-batch."""

        def gathered(*_: Any) -> None:
            handle.remove()
            self._collector.safely(self.hook_parameters, chunk)

        handle = module.register_forward_pre_hook(gathered)

    def _gathering(self, adapter: Adapter, gather: Callable) -> Callable:
        collector = self._collector

        @functools.wraps(gather)
        def patched(handle: Any, *args: Any, **kwargs: Any) -> Any:
            result = gather(handle, *args, **kwargs)
            collector.safely(self._hook_gathered, adapter, handle)
            return result

        return patched

    def _hook_gathered(self, adapter: Adapter, handle: Any) -> None:
        """The parameters that have just been gathered for a forward."""
        for places, tensor in adapter.gathered_parameters(handle):
            chunk = self._collector.clock.chunk_of(places[0][0])
            if chunk is not None and tensor.requires_grad:
                tensor.register_hook(self._parameter_hook(chunk, tensor, chunk.names_in(list(places))))

    def _parameter_hook(
        self, chunk: Chunk, parameter: torch.Tensor, names: list[str], in_portions: bool = False
    ) -> Callable:
        """`in_portions`: `parameter` gets only a part of the gradient of what goes by `names`."""
        collector = self._collector

        def hook(gradient: torch.Tensor | None) -> None:
            collector.safely(self._parameter_arrived, chunk, parameter, names, in_portions, gradient)

        return hook

    def _is_of_another(self, chunk: Chunk) -> bool:
        """Whether `chunk` is part of a model that is in its backward, and gets the gradient there."""
        others = self._collector.clock.chunks.values()
        return any(other.in_backward is not None and id(chunk.base) in other.names for other in others)

    def _parameter_arrived(
        self, chunk: Chunk, parameter: torch.Tensor, names: list[str], in_portions: bool, gradient: torch.Tensor | None
    ) -> None:
        microbatch = chunk.in_backward
        if gradient is None or not self._collector.is_recorded():
            return
        if microbatch is None and self._is_of_another(chunk):
            return
        if microbatch is None and self._early is not None:
            self._early.append(_EarlyGradient(chunk, parameter, names, in_portions, gradient.detach().clone()))
            return
        if microbatch is None or not microbatch.recorded:
            self._collector.warn(f"not traceable: a gradient of '{names[0]}' that belongs to no micro-batch")
            self._collector.not_seen("belongs to no micro-batch", (Kind.PARAM_GRAD,), chunk.number, tensors=names)
            return
        if getattr(parameter, "grad_added_to_main_grad", False):
            self._collector.warn(f"not traceable: param_grad of '{names[0]}', which a fused kernel adds to main_grad")
            self._collector.not_seen(
                "added to main_grad by a fused kernel", (Kind.PARAM_GRAD,), chunk.number, tensors=names
            )
            return
        if (chunk.number, names[0]) in self._left_out:
            self._collector.not_seen(
                "the gradient of the tokens that came to a rank, of whichever micro-batch",
                (Kind.PARAM_GRAD,),
                chunk.number,
                tensors=names,
            )
            return
        over = adapters.first(Adapter.summed_later_over, parameter, names[0])
        mapping = self._collector.open().mapping_of_term(gradient.shape, over) if over is not None else ""
        for name in names:
            tensor_id = microbatch.tensor_id(Kind.PARAM_GRAD, name)
            first = tensor_id not in microbatch.arrived
            if (in_portions or microbatch.gets_portions(name)) and (
                first or name in self._portions.get(microbatch, ())
            ):
                microbatch.arrived.add(tensor_id)
                self._add_portion(microbatch, name, gradient, mapping)
            elif not first:
                self._collector.warn(
                    f"not traceable: '{name}' got its gradient in more than one portion; param_grad is the first"
                )
            else:
                microbatch.arrived.add(tensor_id)
                self._collector.record(tensor_id, gradient, mapping=mapping)

    def _record_early(self, chunk: Chunk) -> None:
        """Of the micro-batch of `chunk` that is in its backward now."""
        assert self._early is not None
        early = [each for each in self._early if each.chunk is chunk]
        self._early = [each for each in self._early if each.chunk is not chunk]
        for each in early:
            self._parameter_arrived(*each)

    def _add_portion(self, microbatch: Microbatch, name: str, gradient: torch.Tensor, mapping: str) -> None:
        if is_capturing():  # it has no value that could be added up
            self._collector.record(microbatch.tensor_id(Kind.PARAM_GRAD, name), gradient)
            return
        portions = self._portions.setdefault(microbatch, {})
        with torch.no_grad():
            before, _ = portions.get(name, (None, ""))
            # A copy: PyTorch may take this very tensor as the parameter's `.grad` and add to it.
            portions[name] = (gradient.detach().clone() if before is None else before + gradient), mapping

    def record_portions(self) -> None:
        """Of all micro-batches: nothing more is added to their parameter gradients."""
        self._record_portions_of(self._portions)

    def _record_portions_of(self, microbatches: Iterable[Microbatch]) -> None:
        for microbatch in list(microbatches):
            for name, (gradient, mapping) in self._portions.pop(microbatch).items():
                self._collector.record(microbatch.tensor_id(Kind.PARAM_GRAD, name), gradient, mapping=mapping)

    def _record_finished_portions(self) -> None:
        """Between two backwards of the program."""
        self._record_portions_of(microbatch for microbatch in self._portions if not microbatch.called_alone)

    # The loss.

    def _begin_backward(self) -> None:
        self._first_in_backward, self._early = None, []
        self._record_finished_portions()
        for chunk in self._collector.clock.chunks.values():
            chunk.in_backward = None

    def _end_backward(self, roots: Any, gradients: Any) -> None:
        early, self._early = self._early, None
        for each in early or ():  # no activation's came
            self._parameter_arrived(*each)
        self._record_finished_portions()
        roots, gradients = _as_list(roots), [gradient for gradient in _as_list(gradients) if gradient is not None]
        microbatch = self._first_in_backward
        is_of_value = len(roots) == 1 and roots[0].numel() == 1
        if microbatch is None:
            self._loss_of_no_model = self._loss_of_no_model or (is_of_value and not gradients)
            return
        if self._loss_of_no_model and gradients:  # which are what that backward has made, most likely
            chunk = 0 if microbatch.chunk is None else microbatch.chunk.number
            self._collector.not_seen(LOSS_OF_NO_MODEL, (Kind.SCALAR,), chunk, tensors=["loss"])
        self._loss_of_no_model = False
        if not microbatch.recorded or not is_of_value:
            return
        if gradients and gradients[0].numel() != 1:
            return  # a pipeline stage's output, whose data was freed
        name = "loss" + microbatch.losses.next_suffix("loss")
        self._collector.record(microbatch.tensor_id(Kind.SCALAR, name), roots[0].detach().reshape(()))


def _as_list(value: Any) -> list:
    return [value] if value is None or isinstance(value, torch.Tensor) else list(value)


@functools.lru_cache(maxsize=64)
def _empty(dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    return torch.empty(0, dtype=dtype, device=device)


class _ViewHooks:
    """An in-place operation on a view (what nn.Linear returns for three dimensions is one) takes its node out of the
    graph, and the hook with it. Then the gradient of the view's base, at the place of the view, is the total gradient
    of what the view was when it was hooked."""

    __slots__ = ("_arrived", "_base_shape", "_base_strides", "_offset", "_probe", "_shape", "_strides", "_version")

    def __init__(self, view: torch.Tensor, arrived: Callable):
        """Registers the hooks, which call arrived(gradient)."""
        base = view._base
        self._arrived = arrived
        self._shape, self._strides = view.shape, view.stride()
        self._offset = view.storage_offset() - base.storage_offset()
        self._base_shape, self._base_strides = base.shape, base.stride()
        # Shares the view's version, which counts in-place operations, and holds none of its memory.
        self._probe = view.detach()
        self._probe.data = _empty(view.dtype, view.device)
        self._version = self._probe._version
        view.register_hook(self._of_view)
        base.register_hook(self._of_base)

    def _of_view(self, gradient: torch.Tensor | None) -> torch.Tensor | None:
        return self._arrived(gradient) if self._probe._version == self._version else None

    def _of_base(self, gradient: torch.Tensor | None) -> None:
        if self._probe._version != self._version and gradient is not None:
            with torch.no_grad():
                dense = torch.empty_strided(
                    self._base_shape, self._base_strides, dtype=gradient.dtype, device=gradient.device
                )
                self._arrived(dense.copy_(gradient).as_strided(self._shape, self._strides, self._offset))
