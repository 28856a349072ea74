"""What a training program computes its next step from, kept and put back: what models and optimizers hold, learning
rate schedules, loss scales, and the random streams. Data loaders: loaded_data.py.

Everything of these classes that Python knows of counts, whoever made it. What a program keeps elsewhere (weights in a
list, a counter in a closure) is not: whether an iteration that begins anew is the same, its recording tells."""

import copy
import random
import sys
from typing import Any

import torch

from .living import Living, instances_of
from .tensors import is_capturing

_PLAIN = (bool, int, float, str, type(None))  # attributes that count something, as modules and optimizers have them


class NotRestorable(Exception):
    """Some of the program's state cannot be kept, or put back."""


class ProgramState:
    """As it is now. Copies of what lies on a device are on the host. Raises NotRestorable."""

    def __init__(self) -> None:
        if is_capturing():
            raise NotRestorable("a CUDA graph is being captured")
        self._tensors: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}  # by id: the program's, and the copy
        self._gradients: list[tuple[torch.Tensor, torch.Tensor | None]] = []
        self._slots: list[tuple[dict[str, Any], str, torch.Tensor | None]] = []  # of modules
        self._attributes: list[tuple[dict[str, Any], dict[str, Any]]] = []
        self._optimizers: list[tuple[torch.optim.Optimizer, list[dict[str, Any]], dict[Any, Any]]] = []
        self._documents: list[tuple[Any, dict[str, Any]]] = []  # of objects with a state_dict
        with torch.no_grad():
            self._look_at_objects()
        self._random = RandomState()

    def _look_at_objects(self) -> None:
        living = Living()
        for module in living.modules:
            self._keep_module(module)
        for optimizer in living.optimizers:
            self._keep_optimizer(optimizer)
        scaler = getattr(torch.amp, "GradScaler", torch.cuda.amp.GradScaler)
        for each in instances_of(torch.optim.lr_scheduler.LRScheduler, scaler):
            self._documents.append((each, copy.deepcopy(each.state_dict())))

    def _keep_module(self, module: torch.nn.Module) -> None:
        attributes = vars(module)
        self._keep_attributes(attributes)
        for slot in ("_parameters", "_buffers"):
            holder = attributes.get(slot) or {}
            for name, tensor in holder.items():
                self._slots.append((holder, name, tensor))
                if tensor is not None:
                    self._keep(tensor)

    def _keep_optimizer(self, optimizer: torch.optim.Optimizer) -> None:
        groups = getattr(optimizer, "param_groups", None)
        if groups is None:  # it is being made
            return
        self._keep_attributes(vars(optimizer))
        for parameter in (each for group in groups for each in group["params"]):
            self._keep(parameter)
        options = [{key: copy.deepcopy(value) for key, value in group.items() if key != "params"} for group in groups]
        state = {key: copy.deepcopy(value) for key, value in optimizer.state.items()}
        self._optimizers.append((optimizer, options, state))

    def _keep_attributes(self, attributes: dict[str, Any]) -> None:
        plain = {name: value for name, value in attributes.items() if type(value) in _PLAIN}
        self._attributes.append((attributes, plain))

    def _keep(self, tensor: torch.Tensor) -> None:
        if id(tensor) in self._tensors:
            return
        if torch.nn.parameter.is_lazy(tensor):
            raise NotRestorable("a parameter has not been made yet")
        if not tensor.is_meta:
            self._tensors[id(tensor)] = tensor, _copy_of(tensor)
        if tensor.is_leaf and tensor.requires_grad:
            self._gradients.append((tensor, None if tensor.grad is None else _copy_of(tensor.grad)))

    def put_back(self) -> None:
        """Raises NotRestorable, or what PyTorch raises, with some of it put back."""
        with torch.no_grad():
            for tensor, kept in self._tensors.values():
                if tensor.shape != kept.shape:
                    raise NotRestorable("a tensor of the program has another shape now")
                tensor.copy_(kept)
            for tensor, gradient in self._gradients:
                tensor.grad = None if gradient is None else gradient.to(tensor.device, copy=True)
        for holder, name, tensor in self._slots:
            holder[name] = tensor
        for attributes, plain in self._attributes:
            attributes.update(plain)
        for optimizer, options, state in self._optimizers:
            if len(options) != len(optimizer.param_groups):
                raise NotRestorable("an optimizer has other groups of parameters now")
            for group, kept_options in zip(optimizer.param_groups, options, strict=True):
                group.update(copy.deepcopy(kept_options))
            optimizer.state.clear()
            optimizer.state.update({key: copy.deepcopy(value) for key, value in state.items()})
        for each, document in self._documents:
            each.load_state_dict(copy.deepcopy(document))
        self._random.put_back()


def _copy_of(tensor: torch.Tensor) -> torch.Tensor:
    detached = tensor.detach()
    return detached.clone() if detached.device.type == "cpu" else detached.to("cpu")


class RandomState:
    """Of the random streams that a process has from its start."""

    def __init__(self) -> None:
        self._python, self._host = random.getstate(), torch.get_rng_state()
        self._devices = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else None
        numpy = sys.modules.get("numpy")
        self._numpy = None if numpy is None else numpy.random.get_state()

    def put_back(self) -> None:
        random.setstate(self._python)
        torch.set_rng_state(self._host)
        if self._devices is not None:
            torch.cuda.set_rng_state_all(self._devices)
        if self._numpy is not None:
            sys.modules["numpy"].random.set_state(self._numpy)
