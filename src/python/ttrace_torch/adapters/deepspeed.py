"""DeepSpeed: the optimizers that its engine puts around PyTorch's, for ZeRO and for bf16 and fp16.

Each keeps, per parameter group, one flat tensor with this rank's part of the masters, and hands that to PyTorch's
optimizer. What it has of a parameter:
    ZeRO-1 and 2, and BF16_Optimizer   the model has whole parameters; `_hp_mapping` says which stretch the rank updates
                                       (but where ranks take turns with parameters)
    ZeRO-3                             the model has the rank's stretch alone (`ds_tensor`), padded to equal sizes, but
                                       for small parameters, which stay gathered
    FP16_Optimizer, and                whole parameters, whole masters, flattened or not; without ZeRO, in bf16 too
    FP16_UnfusedOptimizer
An engine's step clips, where it does, inside the optimizer's step, after the division by the loss scale."""

import functools
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch.utils.weak import WeakTensorKeyDictionary

from ..living import instances_named
from ..shares import Range, Share
from .adapter import Adapter, Clipping, Function, Level

_MODULE = "deepspeed.runtime.engine"
_OPTIMIZERS = {
    "deepspeed.runtime.zero.stage_1_and_2": "DeepSpeedZeroOptimizer",
    "deepspeed.runtime.zero.stage3": "DeepSpeedZeroOptimizer_Stage3",
    "deepspeed.runtime.bf16_optimizer": "BF16_Optimizer",
    "deepspeed.runtime.fp16.fused_optimizer": "FP16_Optimizer",
    "deepspeed.runtime.fp16.unfused_optimizer": "FP16_UnfusedOptimizer",
}
# In each of them but ZeRO-3's: its lists of parameters and of masters, which have an item for each group.
_GROUPS = (
    ("bit16_groups", "single_partition_of_fp32_groups"),
    ("bf16_groups", "fp32_groups_flat_partition"),
    ("fp16_groups", "fp32_groups_flat"),
    ("fp16_groups", "fp32_groups"),
)


class DeepSpeed(Adapter, module=_MODULE, level=Level.ENGINE):
    clipping = (Clipping(_MODULE, "clip_grad_norm_", norm="result"),)  # of an engine that leaves the optimizer as it is
    steps = tuple(Function(module, f"{name}.step") for module, name in _OPTIMIZERS.items())

    def __init__(self) -> None:
        self._slots: WeakTensorKeyDictionary | None = None  # parameter -> _Slot; None: to be looked for

    def original_of(self, tensor: torch.Tensor) -> tuple[torch.autograd.graph.Node, int] | None:
        """Under ZeRO-3 what a module returns is replaced by a copy, while the module may have used the original
        already, as a model does that computes its loss from the logits that it returns. None where no node made the
        original."""
        node = tensor.grad_fn
        if type(node).__name__ != "PreBackwardFunctionForModuleBackward":
            return None
        original, index = node.next_functions[0]
        return None if original is None or hasattr(original, "variable") else (original, index)

    def loss_scale(self, optimizer: Any) -> float:
        return float(getattr(optimizer, "loss_scale", 1.0))

    def gradient_norm(self, optimizer: Any, loss_scale: float) -> Any:
        norm = getattr(optimizer, "_global_grad_norm", None) if optimizer.clip_grad > 0 else None
        if norm is not None and type(optimizer).__name__ == "FP16_UnfusedOptimizer":
            norm = norm / loss_scale  # the others have done so
        return norm

    def share(self, parameter: torch.nn.Parameter) -> Share | None:
        if hasattr(parameter, "ds_id"):
            return _zero3_share(parameter)
        slot = self._slot_of(parameter)
        if slot is None:
            return None
        if not hasattr(parameter, "_hp_mapping"):
            size = parameter.numel()
            master = slot.tensor.detach().reshape(-1)[slot.offset : slot.offset + size].view_as(parameter)
            return Share(parameter, None, master, None, slot.tensor, lambda: parameter.grad)
        if _takes_turns(slot):
            return _turns_share(parameter, slot)
        mapping = parameter._hp_mapping
        begin = mapping.lp_fragment_address.start if mapping else 0
        owned = Range(tuple(parameter.shape), begin, begin + (mapping.lp_fragment_address.numel if mapping else 0))
        master = mapping.hp_fragment.detach() if mapping else slot.tensor
        return Share(parameter, None, master, owned, slot.tensor, functools.partial(_gradient, parameter, owned))

    def _slot_of(self, parameter: torch.nn.Parameter) -> "_Slot | None":
        """None where no optimizer is known to have the parameter. An engine that is made later than another shows by
        `_hp_mapping`, or when the other one is freed."""
        slots = self._slots
        if slots is None or (parameter not in slots and hasattr(parameter, "_hp_mapping")):
            slots = self._slots = _find_slots(self._forget_slots)
        return slots.get(parameter)

    def _forget_slots(self, _: weakref.ref) -> None:
        """Once an optimizer has been freed, which no slot keeps alive."""
        self._slots = None


def _gradient(parameter: torch.nn.Parameter, owned: Range) -> torch.Tensor | None:
    """Between the last backward of an iteration and the step."""
    if parameter._hp_mapping is None:
        return parameter.new_empty(0)
    try:
        found = parameter._hp_mapping.get_lp_grad_fragment(parameter._index_in_param_group)
    except (ValueError, KeyError):  # there are none just now
        return None
    return owned.of(found.detach())


def _takes_turns(slot: "_Slot") -> bool:
    """Whether ranks take turns with the parameters of the group, and `_hp_mapping` is that of ranks which do not:
    DeepSpeed takes the turns into account only where there is padding between parameters."""
    optimizer = slot.optimizer()
    paddings = getattr(optimizer, "round_robin_bit16_padding", None)
    return getattr(optimizer, "round_robin_gradients", False) and not (paddings and any(paddings[slot.group]))


def _turns_share(parameter: torch.nn.Parameter, slot: "_Slot") -> Share:
    optimizer, group, shape = slot.optimizer(), slot.group, tuple(parameter.shape)
    place = 0  # in the rank's masters
    for index, other in enumerate(optimizer.params_in_partition[group]):
        begin = 0 if index else optimizer.first_offset[group]
        end = min(other.numel(), begin + slot.tensor.numel() - place)
        if other is parameter:
            break
        place += end - begin
    else:
        return Share(parameter, None, slot.tensor, Range(shape, 0, 0), slot.tensor, lambda: parameter.new_empty(0))
    owned = Range(shape, begin, end)

    def gradient() -> torch.Tensor | None:
        known = optimizer.offload_gradient_dict if optimizer.cpu_offload else optimizer.averaged_gradients
        found = known.get(group)
        return None if found is None else owned.of(found[index].detach())  # there are none after the step

    master = slot.tensor.detach()[place : place + end - begin]
    return Share(parameter, None, master, owned, slot.tensor, gradient)


def _zero3_share(parameter: torch.nn.Parameter) -> Share:
    shape, part = tuple(parameter.ds_shape), parameter.ds_tensor.detach().reshape(-1)
    begin = min(parameter.ds_process_group.rank() * part.numel(), parameter.ds_numel)
    owned = Range(shape, begin, min(begin + part.numel(), parameter.ds_numel))
    size = owned.end - owned.begin
    gathered = parameter.ds_status.name == "AVAILABLE"
    held, held_range = (parameter, None) if gathered else (part[:size], owned)
    optimizer = getattr(parameter, "_z3_optimizer", None)
    place = optimizer.grad_position.get(optimizer.get_param_id(parameter)) if optimizer is not None else None
    group, offset, _ = place or (None, 0, 0)
    flat = None if group is None else optimizer.fp32_partitioned_groups_flat[group]
    if flat is None or flat.numel() < offset + size:  # it is not trained, or its master is swapped out
        return Share(held, held_range, held, held_range, parameter, lambda: None)
    master = flat.detach()[offset : offset + size]

    def gradient() -> torch.Tensor | None:
        try:
            return optimizer.get_local_fp32_grad_for_param(parameter)[:size]
        except KeyError:
            return None

    return Share(held, held_range, master, owned, flat, gradient)


class _Slot(NamedTuple):
    """Where an optimizer keeps a parameter's master."""

    tensor: torch.Tensor  # that of a group, or of the parameter alone
    offset: int  # of the parameter in that of a group without partitions
    optimizer: weakref.ref
    group: int


def _find_slots(when_freed: Callable[[weakref.ref], None]) -> WeakTensorKeyDictionary:
    """By parameter. `when_freed` is called when one of the optimizers is. DeepSpeed keeps no list of them."""
    slots = WeakTensorKeyDictionary()
    for optimizer in instances_named(*_OPTIMIZERS.items()):
        freed = weakref.ref(optimizer, when_freed)
        for parameters, masters in _GROUPS:
            groups = zip(getattr(optimizer, parameters, ()), getattr(optimizer, masters, ()), strict=False)
            for number, (group, found) in enumerate(groups):
                offset = 0
                for index, parameter in enumerate(group):
                    flat = isinstance(found, torch.Tensor)
                    tensor, begin = (found, offset) if flat else (found[index], 0)
                    slots[parameter] = _Slot(tensor, begin, freed, number)
                    offset += parameter.numel()
    return slots
