"""What a program keeps beside the parameters that its optimizers update, before an iteration and as the next one sees
it: buffers of the models, and models that no optimizer updates.

Buffers, persistent or not, are recorded where parameters are: before the first call of a chunk, and when the program
goes on after its steps. What has not changed shares its bytes in the file.

Teachers and moving averages of the weights are modules of their own, and so are criteria that keep a centre or a
queue. Looked at are those that the program calls without gradients, those whose parameters have the names and shapes
of a model's, and those with buffers and no parameters, called or not. Of one of which the iteration has changed
anything, all is recorded after it, under the name of its class: no copy is kept to see what changed, only numbers
that tell."""

import functools
import weakref
from collections import Counter
from collections.abc import Iterator

import torch

from .clock import Chunk, unwrapped
from .collector import Collector
from .library import Kind
from .looks import Look, Looks, shapes_of
from .names import name_of_class, numbered, plain_class, plain_name
from .step_facts import differing, fingerprint
from .tensors import has_parameters, is_capturing, is_dtensor, local_part, named_parameters

Fingerprints = dict[str, "int | torch.Tensor | None"]  # by name


class Buffers:
    def __init__(self, collector: Collector, looks: Looks):
        self._collector = collector
        self._others: list[weakref.ref[torch.nn.Module]] = []  # modules that are no chunks, in the order of their names
        self._looks = looks
        self._before: dict[int, Fingerprints] = {}  # by id of the module, in this iteration
        # Keeps alive until the iteration is left what it began with: the last one is left when the program ends, behind
        # the function that made them.
        self._held: list[torch.nn.Module] = []

    def install(self) -> None:
        self._looks.on_iteration.append(self._begin_iteration)
        self._looks.on_look.append(self._find_others)
        self._collector.on_first_call.append(functools.partial(self._record, Kind.BUFFER))
        self._collector.on_call_without_grad.append(self._know)
        self._collector.on_iteration_left.append(self._record_after)

    def _begin_iteration(self) -> None:
        self._held = self._living()
        self._before = {id(other): self._fingerprints(other) for other in self._held}

    def _record_after(self) -> None:
        for chunk in self._collector.clock.chunks.values():
            if chunk.microbatches:
                self._record(Kind.BUFFER_AFTER, chunk)
        self._record_others()
        self._held = []

    def _record(self, kind: Kind, chunk: Chunk) -> None:
        for name, owner, buffer in chunk.buffers():
            self._record_one(kind, chunk.number, name, owner, buffer)

    def _record_one(
        self, kind: Kind, chunk: int, name: str, owner: torch.nn.Module, tensor: torch.Tensor | None
    ) -> None:
        value = _readable(tensor)
        if value is not None:
            tensor_id = self._collector.clock.parameter_id(chunk, kind, name)
            self._collector.record(tensor_id, value, module_class=name_of_class(plain_class(type(owner))))

    # Models that no optimizer updates.

    def _know(self, module: torch.nn.Module) -> None:
        """Of one that the program calls without gradients."""
        if not self._collector.is_recorded():
            return
        model = unwrapped(module)
        if all(other is not model for other in self._living()):
            self._others.append(weakref.ref(model))
            self._collector.sources.saw_model(model)
        if self._looks.has_begun() and id(model) not in self._before:
            self._before[id(model)] = self._fingerprints(model)

    def _find_others(self, look: Look) -> None:
        if not look.models:
            return
        wanted = [shapes for chunk in look.models if (shapes := shapes_of(chunk.base)) is not None]
        of_chunks = {key for chunk in self._collector.clock.chunks.values() for key in chunk.names}
        made = [each for each in look.living.modules if "_parameters" in each.__dict__]  # others are being made
        without = [each for each in made if not has_parameters(each)]
        parts = {id(part) for each in without for part in each._modules.values()}
        keeping = {id(each) for each in without if id(each) not in parts and next(each.buffers(), None) is not None}
        for module in made:
            model = unwrapped(module)
            if id(model) not in of_chunks and (id(module) in keeping or shapes_of(model) in wanted):
                self._know(model)

    def _living(self) -> list[torch.nn.Module]:
        self._others = [other for other in self._others if other() is not None]
        return [other() for other in self._others]

    def _fingerprints(self, model: torch.nn.Module) -> Fingerprints:
        if is_capturing():
            return {}
        library = self._collector.config.library
        return {
            name: fingerprint(tensor, library) for name, _, tensor in _state(model) if _readable(tensor) is not None
        }

    def _record_others(self) -> None:
        chunks = self._collector.clock.chunks.values()
        of_chunks = {id(buffer) for chunk in chunks for _, _, buffer in chunk.buffers()}
        of_chunks |= {id(parameter) for chunk in chunks for _, parameter in named_parameters(chunk.base)}
        titles: Counter[str] = Counter()
        self._collector.kept |= {plain_name(type(model)) for model in self._living()}
        for model in self._living():
            before, now = self._before.get(id(model)), self._fingerprints(model)
            if before is None or not differing((name, before.get(name), value) for name, value in now.items()):
                continue
            own = [each for each in _state(model) if id(each[2]) not in of_chunks]
            if not own:
                continue
            title = numbered(plain_name(type(model)), titles)
            self._collector.sources.saw_model(model, title)
            for name, owner, tensor in own:
                self._record_one(Kind.BUFFER_AFTER, 0, f"{title}.{name}", owner, tensor)


def _state(model: torch.nn.Module) -> Iterator[tuple[str, torch.nn.Module, torch.Tensor]]:
    """Names of its parameters and buffers, the modules that have them, and the tensors."""
    for path, module in model.named_modules():
        for name, tensor in (*module._parameters.items(), *module._buffers.items()):
            if tensor is not None:
                yield f"{path}.{name}" if path else name, module, tensor


def _readable(tensor: torch.Tensor | None) -> torch.Tensor | None:
    """The tensor as `traceable` takes it; None where it has no values to read."""
    if tensor is None or torch.nn.parameter.is_lazy(tensor) or is_capturing():
        return None
    plain = local_part(tensor)
    if plain.layout is not torch.strided or plain.is_meta or tensor.numel() == 0:  # a rank's part may be empty
        return None
    if plain.is_complex() and is_dtensor(tensor):
        return None
    return tensor.detach()
