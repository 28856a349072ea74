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
import gc
import sys
from typing import Any, NamedTuple

import torch

from ..shares import Range, Share

MODULE = "deepspeed.runtime.engine"
CLIPPING = [(MODULE, "clip_grad_norm_")]  # of an engine that leaves the optimizer as it is
# They return without a step of PyTorch's optimizer where gradients overflowed.
STEPS = [
    ("deepspeed.runtime.zero.stage_1_and_2", "DeepSpeedZeroOptimizer.step"),
    ("deepspeed.runtime.zero.stage3", "DeepSpeedZeroOptimizer_Stage3.step"),
    ("deepspeed.runtime.bf16_optimizer", "BF16_Optimizer.step"),
    ("deepspeed.runtime.fp16.fused_optimizer", "FP16_Optimizer.step"),
    ("deepspeed.runtime.fp16.unfused_optimizer", "FP16_UnfusedOptimizer.step"),
]
# In each of them but ZeRO-3's: its lists of parameters and of masters, which have an item for each group.
_GROUPS = (
    ("bit16_groups", "single_partition_of_fp32_groups"),
    ("bf16_groups", "fp32_groups_flat_partition"),
    ("fp16_groups", "fp32_groups_flat"),
    ("fp16_groups", "fp32_groups"),
)


def original_of(tensor: torch.Tensor) -> tuple[torch.autograd.graph.Node, int] | None:
    """Under ZeRO-3 what a module returns is replaced by a copy, while the module may have used the original already, as
    a model does that computes its loss from the logits that it returns. The node that made the original, and which of
    the node's outputs it is; None where `tensor` is no copy, or was made by no node."""
    node = tensor.grad_fn
    if type(node).__name__ != "PreBackwardFunctionForModuleBackward":
        return None
    original, index = node.next_functions[0]
    return None if original is None or hasattr(original, "variable") else (original, index)


def loss_scale(optimizer: Any) -> float:
    """What the gradients are still multiplied by, before a step."""
    return float(getattr(optimizer, "loss_scale", 1.0))


def gradient_norm(optimizer: Any, scale: float) -> Any:
    """After a step, before which the loss scale was `scale`: the norm by which it has clipped; None where it does not
    clip."""
    norm = getattr(optimizer, "_global_grad_norm", None) if optimizer.clip_grad > 0 else None
    if norm is not None and type(optimizer).__name__ == "FP16_UnfusedOptimizer":
        norm = norm / scale  # the others have done so
    return norm


def share(parameter: torch.nn.Parameter) -> Share | None:
    if hasattr(parameter, "ds_id"):
        return _zero3_share(parameter)
    slot = _slots().get(id(parameter))
    if slot is None and hasattr(parameter, "_hp_mapping"):
        _slots.cache_clear()  # of an engine that was made later
        slot = _slots().get(id(parameter))
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
    paddings = getattr(slot.optimizer, "round_robin_bit16_padding", None)
    return getattr(slot.optimizer, "round_robin_gradients", False) and not (paddings and any(paddings[slot.group]))


def _turns_share(parameter: torch.nn.Parameter, slot: "_Slot") -> Share:
    optimizer, group, shape = slot.optimizer, slot.group, tuple(parameter.shape)
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
    optimizer: Any
    group: int


@functools.cache
def _slots() -> dict[int, _Slot]:
    """By id of the parameter. DeepSpeed keeps no list of its optimizers."""
    names = {(module, name.split(".")[0]) for module, name in STEPS}
    types = {getattr(sys.modules[module], name) for module, name in names if module in sys.modules}
    slots = {}
    for optimizer in [found for found in gc.get_objects() if type(found) in types]:
        for parameters, masters in _GROUPS:
            groups = zip(getattr(optimizer, parameters, ()), getattr(optimizer, masters, ()), strict=False)
            for number, (group, found) in enumerate(groups):
                offset = 0
                for index, parameter in enumerate(group):
                    flat = isinstance(found, torch.Tensor)
                    tensor, begin = (found, offset) if flat else (found[index], 0)
                    slots[id(parameter)] = _Slot(tensor, begin, optimizer, number)
                    offset += parameter.numel()
    return slots
