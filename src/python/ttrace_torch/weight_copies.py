"""Copies of a model's weights that are no module: the tensors of a moving average, in a list (torch_ema, diffusers'
EMAModel) or in a dict by the parameters' names, as many trainers keep them by hand.

Looked at are lists and dicts with a tensor of the same shape for each parameter of a model, or for each that is
trained, which together are nearer to the parameters than half the norm of these, as gradients and momenta are not. Left
out are those with a parameter itself, or its memory (a state_dict), and what optimizers step, or keep, and what modules
have. Of one that the iteration has changed, all is recorded after it, under the name of the attribute that holds it; no
copy is kept to see what changed, only numbers that tell."""

import gc
from collections import Counter
from collections.abc import Iterable, Iterator

import torch

from .clock import Chunk
from .collector import Collector
from .library import Kind
from .living import Holder, Living
from .looks import Look, Looks
from .names import numbered, plain_name
from .step_facts import differing, fingerprint
from .tensors import has_plain_values, in_transform, is_capturing, is_dtensor, local_part, named_parameters

Tensors = dict[str, torch.Tensor]  # by the name of the parameter
_WRAPPED = ("", "module.")  # what a wrapper's parameters may begin with


class Found:
    """A list or dict, which has the copies also where the program puts others in their place."""

    # Without a __dict__ it is no object that is found to hold the list as its attribute.
    __slots__ = ("_holder", "_names", "_prefix", "before", "title")

    def __init__(self, title: str, holder: Holder, names: list[str], prefix: str):
        self.title = title
        self._holder, self._names, self._prefix = holder, names, prefix
        self.before: dict[str, int | torch.Tensor | None] = {}

    def tensors(self) -> Tensors | None:
        """None where they are no more."""
        return _tensors(self._holder, self._names, self._prefix)


class WeightCopies:
    def __init__(self, collector: Collector, looks: Looks):
        self._collector = collector
        self._looks = looks
        self._found: list[Found] = []  # in this iteration
        self._waiting: list[Chunk] = []  # models that were called where nothing could be looked at

    def install(self) -> None:
        self._looks.on_iteration.append(self._begin_iteration)
        self._looks.on_look.append(self._find)
        self._collector.on_iteration_left.append(self._record_after)

    def _begin_iteration(self) -> None:
        self._found, self._waiting = [], []

    def _find(self, look: Look) -> None:
        self._waiting += look.models
        if is_capturing() or in_transform():
            return
        models = [model for each in self._waiting if (model := _Model.of(each)) is not None]
        self._waiting = []
        for found in list(_find(models, look)):
            found.before = self._fingerprints(found.tensors() or {})
            self._collector.kept.add(found.title)
            self._found.append(found)

    def _record_after(self) -> None:
        found_before, self._found = self._found, []
        titles: Counter[str] = Counter()
        for found in found_before:
            tensors = None if is_capturing() else found.tensors()
            if tensors is None:
                continue
            now = self._fingerprints(tensors)
            if not differing((name, found.before.get(name), value) for name, value in now.items()):
                continue
            title = numbered(found.title, titles)
            for name, tensor in tensors.items():
                tensor_id = self._collector.clock.parameter_id(0, Kind.BUFFER_AFTER, f"{title}.{name}")
                self._collector.record(tensor_id, tensor.detach())

    def _fingerprints(self, tensors: Tensors) -> dict[str, int | torch.Tensor | None]:
        return {name: fingerprint(tensor, self._collector.config.library) for name, tensor in tensors.items()}


class _Model:
    """What copies of a model are told by."""

    def __init__(self, parameters: dict[str, torch.nn.Parameter]):
        self.parameters = parameters
        trained = [name for name, parameter in parameters.items() if parameter.requires_grad]
        self.choices = [list(parameters)] + ([trained] if trained and len(trained) < len(parameters) else [])
        self._memory = {local_part(parameter).data_ptr() for parameter in parameters.values()} - {0}

    @classmethod
    def of(cls, chunk: Chunk) -> "_Model | None":
        """None where it has no parameters, or those of a rank are elsewhere."""
        # Shared ones once, with their first name: so are they in what is made of `parameters()`.
        first_names = {id(each): name for name, each in reversed(list(named_parameters(chunk.base)))}
        parameters = {name: each for name, each in named_parameters(chunk.base) if first_names[id(each)] == name}
        return None if not parameters or any(map(_is_elsewhere, parameters.values())) else cls(parameters)

    def copies_in(self, holder: Holder, taken: set[int]) -> Iterator[tuple[list[str], str]]:
        """The names of the parameters that it has a copy of, and what its keys begin with."""
        for names in self.choices:
            for prefix in _WRAPPED:
                tensors = _tensors(holder, names, prefix)
                if tensors is None or any(
                    id(each) in taken or local_part(each).data_ptr() in self._memory for each in tensors.values()
                ):
                    continue
                own = {name: self.parameters[name].detach() for name in names}
                if all(_are_alike(tensors[name], own[name]) for name in names) and _are_near(tensors, own):
                    yield names, prefix


def _find(models: list[_Model], look: Look) -> Iterator[Found]:
    if not models:
        return
    taken = _taken(look.living)
    for holder in look.living.holders(min(len(names) for model in models for names in model.choices)):
        for names, prefix in (found for model in models for found in model.copies_in(holder, taken)):
            yield Found(_title(holder), holder, names, prefix)


def _taken(living: Living) -> set[int]:
    """The ids of the tensors that modules and optimizers have."""
    taken = set()
    for module in living.modules:
        for name in ("_parameters", "_buffers"):
            taken |= set(map(id, (module.__dict__.get(name) or {}).values()))
    for optimizer in living.optimizers:
        taken |= set(map(id, _tensors_of(optimizer)))
    return taken


def _tensors(holder: Holder, names: list[str], prefix: str) -> Tensors | None:
    """What the list or dict has for these parameters; None where it is none of just these."""
    if isinstance(holder, list):
        values = holder if not prefix and len(holder) == len(names) else []
    else:
        values = [holder.get(prefix + name) for name in names] if prefix + names[0] in holder else []
    if not values or any(map(_is_elsewhere, values)):
        return None
    return dict(zip(names, values, strict=True))


def _is_elsewhere(value: object) -> bool:
    """Whether this process does not have the values of a plain tensor there, or its part of a DTensor's."""
    if not isinstance(value, torch.Tensor) or torch._C._functorch.is_functorch_wrapped_tensor(value):
        return True
    is_plain = type(value) in (torch.Tensor, torch.nn.Parameter) or is_dtensor(value)
    return not is_plain or not has_plain_values(value)


def _are_alike(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether the ranks have the same parts of both."""
    return one.shape == other.shape and local_part(one).shape == local_part(other).shape


def _tensors_of(optimizer: torch.optim.Optimizer) -> Iterator[torch.Tensor]:
    for group in optimizer.__dict__.get("param_groups", ()):
        yield from group["params"]
    for state in optimizer.__dict__.get("state", {}).values():
        yield from state.values() if isinstance(state, dict) else ()


def _are_near(tensors: Tensors, wanted: Tensors) -> bool:
    def square(parts: Iterable[torch.Tensor]) -> float:
        return float(sum(part.float().square().sum() for part in parts))

    with torch.no_grad():
        parts = {name: local_part(own).detach() for name, own in wanted.items()}
        apart = square(local_part(tensors[name]).detach().to(own.device) - own for name, own in parts.items())
        return apart <= 0.25 * square(parts.values())


def _title(holder: Holder) -> str:
    """The class and the attribute of the object that holds it, or that holds the list which it is in, with its number
    there; `weight_copies` where no object does."""
    for owner in gc.get_referrers(holder):
        if isinstance(owner, list) and (places := [str(i) for i, each in enumerate(owner) if each is holder]):
            outer = _attribute(owner)
            if outer is not None:
                return f"{outer}.{places[0]}"
    return _attribute(holder) or "weight_copies"


def _attribute(value: object) -> str | None:
    for owner in gc.get_referrers(value):
        for each in [owner, *gc.get_referrers(owner)] if isinstance(owner, dict) else [owner]:
            attributes = getattr(each, "__dict__", None)
            if isinstance(attributes, dict) and not isinstance(each, type):
                for name, own in attributes.items():
                    if own is value:
                        return name if hasattr(each, "__file__") else f"{plain_name(type(each))}.{name}"
    return None
