"""What PyTorch's optimizers, and those that others build like them, say of themselves."""

import math
import numbers
from collections.abc import Hashable, Iterable, Mapping
from typing import Any

import torch

from . import device_sketches
from . import library as libttrace
from .library import Kind
from .masters import TrainedParameter
from .shares import Share
from .tensors import as_real, has_plain_values, local_part

# What an optimizer keeps of a parameter, that a step follows from.
STATES = {
    "exp_avg": Kind.EXP_AVG,
    "exp_avg_sq": Kind.EXP_AVG_SQ,
    "max_exp_avg_sq": Kind.MAX_EXP_AVG_SQ,
    "momentum_buffer": Kind.MOMENTUM_BUFFER,
}
_SEVERAL = {"betas": "beta", "eps": "eps"}  # options that are several numbers, and what one is called
_ADAM, _ADAMW = torch.optim.Adam, torch.optim.AdamW  # programs may put functions in their places


def class_name(optimizer: Any) -> str:
    kind = type(optimizer)
    return f"{kind.__module__}.{kind.__qualname__}"


def options_of(optimizer: Any, group: dict[str, Any]) -> tuple[tuple[str, float], ...]:
    """Those of a parameter group that are numbers or truth values, by name."""
    options = {}
    for name, value in group.items():
        if name in _SEVERAL and isinstance(value, (tuple, list)):
            members = {f"{_SEVERAL[name]}{place}": member for place, member in enumerate(value, 1)}
        else:
            members = {} if name in ("params", "step") else {name: value}
        for member, given in members.items():
            number = _number(given)
            if number is not None:
                options[member] = number
    if "decoupled_weight_decay" not in options:
        # Fused ones of other makers say it beside their groups; PyTorch's before 2.6 by their class.
        mode = getattr(optimizer, "adam_w_mode", None)
        if mode is None and isinstance(optimizer, (_ADAM, _ADAMW)):
            mode = isinstance(optimizer, _ADAMW)
        if mode is not None:
            options["decoupled_weight_decay"] = float(bool(mode))
    return tuple(sorted(options.items()))


def step_counts(states: Mapping[Hashable, tuple[dict[str, Any], dict[str, Any]]]) -> dict[Hashable, float | None]:
    """Steps that optimizers have taken with parameters, by key: of the state of each, and its group, for which some
    keep the count. Waits for each device once."""
    counts: dict[Hashable, float | None] = {}
    on_devices: dict[tuple, dict[Hashable, torch.Tensor]] = {}
    for key, (state, group) in states.items():
        count = state.get("step", group.get("step"))
        if isinstance(count, torch.Tensor) and count.numel() == 1 and not (count.is_cpu or count.is_meta):
            count = local_part(count)
            on_devices.setdefault((count.device, count.dtype), {})[key] = count.reshape(())
        else:
            counts[key] = _number(count)
    for found in on_devices.values():
        counts |= zip(found, map(_number, torch.stack(list(found.values())).tolist()), strict=True)
    return counts


def _number(value: Any) -> float | None:
    """None where it is none, and where JSON has no word for it."""
    if isinstance(value, torch.Tensor):
        value = local_part(value).item() if value.numel() == 1 and not value.is_meta else None
    # What is most frequent comes first: to ask whether something is a Real takes long.
    if not isinstance(value, (float, int, numbers.Real)) or not math.isfinite(value):
        return None
    return float(value)


def gradient_of(share: Share) -> torch.Tensor | None:
    """The whole of what the optimizer finds as the gradient of `share.stepped`."""
    gradient = share.stepped.grad
    return getattr(share.stepped, "decoupled_grad", None) if gradient is None else gradient


def is_flat_shard(share: Share) -> bool:
    """Whether its master is some range of the parameter, nobody knows which."""
    return share.owned is None and share.master.shape != share.held.shape


def updates_itself(share: Share) -> bool:
    """Whether the optimizer updates what the model uses, or this rank's part of it, without a master."""
    master, held = local_part(share.master), local_part(share.held)
    end = _address(held) + max(_bytes(held), 1)  # an empty shard is one without a master
    return master.dtype == held.dtype and _address(held) <= _address(master) < end


def part_of(trained: TrainedParameter, tensor: torch.Tensor) -> torch.Tensor | None:
    """Of a tensor as large as `share.stepped`, such as its gradient: the owned elements, in the shape of the master.
    None where `tensor` has another size, or no plain values."""
    stepped, master = trained.share.stepped, trained.share.master
    if tensor.numel() != stepped.numel() or not has_plain_values(tensor):
        return None
    tensor = tensor.detach()
    if tensor.numel() == master.numel():
        return tensor if tensor.shape == master.shape else tensor.reshape(master.shape)
    begin = (_address(master) - _address(stepped)) // master.element_size()
    if begin < 0 or begin + master.numel() > stepped.numel():
        return None
    return tensor.reshape(-1)[begin : begin + master.numel()].reshape(master.shape)


def fingerprint(tensor: torch.Tensor, library: str) -> int | torch.Tensor | None:
    """Of its bits, at their places: another one almost certainly where any was changed. None where there are none. Of a
    device's tensor it is a number of int64 there: asking for its value would wait. `library` is the path of libttrace.
    """
    if not has_plain_values(tensor):
        return None
    tensor = as_real(local_part(tensor).detach()).resolve_neg().contiguous()
    if tensor.is_cpu:
        return libttrace.fingerprint(library, tensor.data_ptr(), _bytes(tensor))
    return device_sketches.fingerprint(tensor)


def differing(pairs: Iterable[tuple[Hashable, int | torch.Tensor | None, int | torch.Tensor | None]]) -> set[Hashable]:
    """Of fingerprints, before and after: the keys of those that differ. Waits for each device once."""
    found, by_device = set(), {}
    for key, before, after in pairs:
        if not isinstance(before, torch.Tensor) or not isinstance(after, torch.Tensor):  # one at least is on the host
            found |= {key} if _value(before) != _value(after) else set()
        else:
            by_device.setdefault(before.device, []).append((key, before, after.to(before.device)))
    for of_device in by_device.values():
        keys, before, after = zip(*of_device, strict=True)
        changed = (torch.stack(before) != torch.stack(after)).tolist()
        found |= {key for key, is_changed in zip(keys, changed, strict=True) if is_changed}
    return found


def _value(found: int | torch.Tensor | None) -> int | None:
    return found.item() if isinstance(found, torch.Tensor) else found


def _address(tensor: torch.Tensor) -> int:
    return local_part(tensor).data_ptr()


def _bytes(tensor: torch.Tensor) -> int:
    return local_part(tensor).numel() * local_part(tensor).element_size()
