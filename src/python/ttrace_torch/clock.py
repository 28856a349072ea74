"""Where training is: iterations, micro-batches, and the model chunks that they are counted by.

An outermost call of a module with parameters, in grad mode, begins a micro-batch of that module, which is called a
model chunk: without virtual pipeline stages there is one. Chunks are numbered as they are first called. That is model
order on every rank, since a micro-batch reaches a chunk only after it has gone through the earlier ones. An iteration
ends when, after a step of each optimizer (turns.py), or one that was skipped because gradients overflowed, such a call
comes again. Until then micro-batches of a chunk are counted on. A program need not say any of this.

A module that is part of a chunk, and that the program calls itself after the chunk in the same iteration (a head that
computes the loss in pieces), belongs to the chunk's latest micro-batch."""

import functools
from collections import Counter
from collections.abc import Iterator

import torch

from . import adapters
from .adapters import Adapter
from .compiled import compiler_of
from .library import NO_MICROBATCH, Kind, Pass, TensorId
from .shares import Share
from .tensors import is_clone, named_parameters

ROOT = "(model)"  # the name of the chunk's own module, whose path is empty

# A wrapper only passes its calls on to the child of such a name. Its calls are not recorded, and the child's name
# goes without the component, so that names are those of the plain model. `_forward_module` is of Lightning's Fabric.
_OUTER_WRAPPED = ("module", "_orig_mod", "_fsdp_wrapped_module", "_forward_module")
_INNER_WRAPPED = ("_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module")


class Chunk:
    def __init__(self, number: int, root: torch.nn.Module):
        self.number = number
        self.root = root
        self.base = unwrapped(root)  # what the wrappers around it (DistributedDataParallel) hold
        self.names: dict[int, str | None] = {}  # id of a module -> its name; None for a wrapper
        self._data_parallel: set[str] = set()  # paths of wrappers around parts of the model
        # Classes of modules that are called in it and are no part of it, as of the registration that came last then. A
        # program may make such modules anew for each call.
        self._strangers: set[type] = set()
        self._registered = 0
        self._tied: dict[str, list[str]] = {}  # name of a parameter -> all its names, before an iteration's first call
        self.microbatches: list[Microbatch] = []  # of this iteration
        self.in_backward: Microbatch | None = None  # the one whose gradients come just now
        self.is_called_in_backward = False  # with gradients, and nowhere else
        self.trains = False  # a gradient came back to it, as of the last recorded iteration
        self.holds_first = number == 0  # it is the program's first, or has that for a part: a rehearsal (rehearsals.py)
        self.find_names()

    def is_now(self, root: torch.nn.Module) -> None:
        """Another wrapper, or clone, of the same model."""
        self.root = root
        self.base = unwrapped(root)
        self.find_names()

    def find_names(self) -> None:
        """Names every module anew: a program may add some later."""
        # Wrappers around the base come first and lose against what is found inside it.
        # A compiled one is called in the place of what it wraps, and has its name.
        self.names = {id(module): ROOT if compiler_of(module) else None for module in self.root.modules()}
        modules = list(self.base.named_modules())
        self._data_parallel = {path for path, module in modules if _is_data_parallel(module)}
        for path, module in modules:
            children = module._modules.keys()  # TorchScript's has no iterator but this
            wraps = any(child in _INNER_WRAPPED for child in children) and not compiler_of(module)
            wraps = wraps or path in self._data_parallel
            self.names[id(module)] = None if wraps else self._plain(path) or ROOT

    def _plain(self, path: str) -> str:
        """The path in the plain model, without the components of wrappers."""
        if self._data_parallel:
            parts = path.split(".")
            wrapped = {".".join(parts[:end]) for end in range(len(parts))} & self._data_parallel
            for wrapper in sorted(wrapped, key=len, reverse=True):
                del parts[len(wrapper.split(".")) if wrapper else 0]
            path = ".".join(parts)
        return _plain(path)

    def look_for(self, module: torch.nn.Module, registered: int) -> None:
        """Names all modules anew where `module`, which has no name, may have been added to them. `registered` counts
        the registrations of modules in the program so far."""
        if registered != self._registered:
            self._registered = registered
            self._strangers.clear()
        if type(module) in self._strangers:
            return
        self.find_names()
        if id(module) not in self.names:
            self._strangers.add(type(module))

    def begin_iteration(self) -> None:
        self.microbatches.clear()
        self.in_backward = None
        self._strangers.clear()  # a few ways to add a module are no registration

    def parameters(self) -> list[tuple[str, torch.nn.Parameter]]:
        """A shared parameter comes with each of its names: pipeline stages may split a model at any of them. Without
        those that are part of a flat one."""
        return [
            (self._plain(path), parameter)
            for path, parameter in named_parameters(self.base)
            if not adapters.any_says(Adapter.is_flattened, parameter)
        ]

    def has_for_part(self, other: "Chunk") -> bool:
        """By its modules; or by its parameters, as a Keras model has its layers' parameters, and not the layers."""
        if id(other.base) in self.names:
            return True
        own = {id(parameter) for _, parameter in self.parameters()}
        of_other = {id(parameter) for _, parameter in other.parameters()}
        return other is not self and of_other < own and bool(of_other)

    def buffers(self) -> Iterator[tuple[str, torch.nn.Module, torch.Tensor | None]]:
        """The name of each, the module that has it, and what it holds just now. A shared one comes with each name."""
        for path, module in self.base.named_modules(remove_duplicate=False):
            for name, buffer in module._buffers.items():
                yield self._plain(f"{path}.{name}" if path else name), module, buffer

    def names_by_parameter(self) -> Iterator[tuple[torch.nn.Parameter, list[str]]]:
        names: dict[int, list[str]] = {}
        parameters: dict[int, torch.nn.Parameter] = {}
        for name, parameter in self.parameters():
            names.setdefault(id(parameter), []).append(name)
            parameters[id(parameter)] = parameter
        for key, parameter in parameters.items():
            yield parameter, names[key]

    def remember_ties(self) -> None:
        """Before the first call of an iteration, when sharded parameters are as the program has tied them."""
        self._tied = {name: names for _, names in self.names_by_parameter() for name in names}

    def tied_names(self, names: list[str]) -> list[str]:
        """All names of the parameter that goes by `names` just now. They are fewer where the program has tied what
        `fully_shard` had sharded before: it gathers a tensor for each of them."""
        return self._tied.get(names[0], names)

    def flattened_parameters(self) -> list[tuple[str, Share]]:
        """Names and shares of the parameters that are part of a flat one."""
        found = [each for several in adapters.every(Adapter.flattened_parameters, self.root) for each in several]
        names = self.names_in([(owner, name) for owner, name, _ in found])
        return list(zip(names, (share for _, _, share in found), strict=True))

    def names_in(self, places: list[tuple[torch.nn.Module, str]]) -> list[str]:
        """Of the tensors that modules have under their own names. A place comes once for each name of its module."""
        counts: Counter[tuple[int, str]] = Counter()
        names = []
        for owner, name in places:
            again = counts[id(owner), name]
            counts[id(owner), name] += 1
            path = self._paths_of(owner)[again] if again else self.names.get(id(owner))
            names.append(name if path in (ROOT, None) else f"{path}.{name}")
        return names

    def _paths_of(self, module: torch.nn.Module) -> list[str]:
        every = self.base.named_modules(remove_duplicate=False)
        return [self._plain(path) or ROOT for path, each in every if each is module]


class CallCounts(Counter[str]):
    """Name -> how often it was called, or recorded, so far."""

    def next_suffix(self, name: str) -> str:
        """Counts one more. What the names of its tensors end with: "" for the first, "#1" for the second."""
        before = self[name]
        self[name] += 1
        return f"#{before}" if before else ""


class Microbatch:
    def __init__(self, chunk: Chunk | None, iteration: int, number: int, recorded: bool):
        self.chunk = chunk  # None for the one of modules without parameters that are called before any chunk
        self.iteration, self.number, self.recorded = iteration, number, recorded
        self.forward_calls = CallCounts()
        self.recomputed_calls = CallCounts()
        self.losses = CallCounts()
        self.hooked: set[TensorId] = set()  # gradients that a hook waits for
        self.arrived: set[TensorId] = set()  # gradients that have come
        self.perturbed: TensorId | None = None  # the first call that was, without member
        self.reentrant = False  # part of the forward ran without grad: reentrant activation checkpointing
        self.called_alone: set[str] = set()  # parts of the chunk that the program itself called
        self.in_transform = False  # begun by a call inside a transform of torch.func
        self.before_parameters = False  # calls of a model that had no parameters yet: a rehearsal (rehearsals.py)

    @property
    def is_first(self) -> bool:
        """Of its chunk in the iteration, but for what came before the chunk had parameters."""
        return self.number == sum(each.before_parameters for each in self.chunk.microbatches)

    def gets_portions(self, parameter: str) -> bool:
        """Whether more than one backward may make the gradient of `parameter`."""
        return self.reentrant or any(parameter.startswith(f"{part}.") for part in self.called_alone)

    def tensor_id(self, kind: Kind, name: str, pass_: Pass = Pass.FORWARD) -> TensorId:
        chunk = 0 if self.chunk is None else self.chunk.number
        return TensorId(self.iteration, self.number, chunk, pass_, kind, name)


class Clock:
    """The iteration at hand, and its chunks and micro-batches so far."""

    def __init__(self) -> None:
        self.iteration = 0
        self.chunks: dict[int, Chunk] = {}  # by id of the root, which the chunk keeps alive
        self.stepped = False  # since the iteration's first call
        self.ever_stepped = False
        self.params_read = False  # the parameters after the step have been recorded
        self.running = False  # a chunk was called in this iteration
        self.registered = 0  # modules, anywhere in the program
        self.latest: Microbatch | None = None
        # Of modules without parameters that are called before their micro-batch.
        self._to_come: Microbatch | None = None
        self._preceding: dict[torch.nn.Module, str] = {}  # those that were called before the iteration's first; names

    def begin_microbatch(self, root: torch.nn.Module, recorded: bool) -> Microbatch:
        chunk = self._chunk_that_is(root)
        if chunk is None:
            chunk = Chunk(len(self.chunks), root)
            chunk.holds_first |= any(other.holds_first and chunk.has_for_part(other) for other in self.chunks.values())
            self.chunks[id(root)] = chunk
        to_come = self._to_come
        belongs = to_come is not None and (to_come.number, 0) == (len(chunk.microbatches), chunk.number)
        if belongs and self._preceded(chunk):
            to_come.chunk, to_come.before_parameters = chunk, True
            chunk.microbatches.append(to_come)
            self._preceding.clear()
        microbatch = Microbatch(chunk, self.iteration, len(chunk.microbatches), recorded)
        if belongs:
            if not to_come.before_parameters:
                microbatch.forward_calls.update(to_come.forward_calls)
            self._to_come = None
        chunk.microbatches.append(microbatch)
        self.running = True
        self.latest = microbatch
        return microbatch

    def _preceded(self, chunk: Chunk) -> bool:
        """Whether the chunk was called before the iteration's first micro-batch, as a module without parameters: one
        that makes them when it is first called."""
        return any(part is chunk.base for module in self._preceding for part in module.modules())

    def _chunk_that_is(self, root: torch.nn.Module) -> Chunk | None:
        """The one whose model `root` is: a program may call a model through its wrapper, where its gradients are to be
        reduced, and without it elsewhere, as a GAN calls its discriminator; or make a wrapper anew, where it trains
        other parameters from then on, or a clone for each task."""
        known = self.chunks.get(id(root))
        if known is not None:
            if unwrapped(root) is not known.base and is_clone(known.base):
                known.is_now(root)  # a step within a task may make another clone
            return known
        inside = next((chunk for chunk in self.chunks.values() if chunk.base is root), None)
        if inside is not None:
            return inside
        base = unwrapped(root)
        for key, chunk in self.chunks.items():
            if chunk.base is not base and _is_clone_of(chunk.base, base):
                chunk.is_now(root)
                # What comes after it may have the id of the one before.
                self.chunks = {id(root) if old == key else old: each for old, each in self.chunks.items()}
                return chunk
            # What did not train was a rehearsal, and the wrapper may have changed its parameters since.
            trains = chunk.trains or any(microbatch.arrived for microbatch in chunk.microbatches)
            if chunk.base is base and trains and _is_data_parallel(root):
                chunk.is_now(root)
                return chunk
        return None

    def microbatch_of_parameterless(
        self, recorded: bool, name: str = "", module: torch.nn.Module | None = None
    ) -> Microbatch:
        """What a call of a module without parameters belongs to: the latest micro-batch, such as a loss; before there
        is one, the first to come. A module that was called before the first, such as one that augments samples, is
        called before each further one, too: behind the backward of the one before."""
        latest = self.latest
        if latest is None:
            if module is not None:
                self._preceding[module] = name
        elif not (name in self._preceding.values() and latest.chunk and latest.chunk.number == 0 and latest.arrived):
            return latest
        number = latest.number + 1 if latest else 0
        if self._to_come is None or self._to_come.number != number:
            self._to_come = Microbatch(None, self.iteration, number, recorded)
        return self._to_come

    def microbatch_of_part(self, module: torch.nn.Module) -> Microbatch | None:
        """The latest one of the chunk that `module` is a part of; None where it is none, or a chunk of its own."""
        chunk = None if id(module) in self.chunks else self.chunk_of(module)
        if chunk is None or not chunk.microbatches or chunk.names[id(module)] in (None, ROOT):
            return None
        return chunk.microbatches[-1]

    def step(self) -> None:
        """An optimizer stepped, or gradients were looked through for overflow, which forbids it to."""
        # A step before any forward initialises the optimizer's state; it trains nothing.
        self.stepped = self.stepped or self.running
        self.ever_stepped = self.ever_stepped or self.running

    def next_iteration(self) -> None:
        self.iteration += 1
        self.stepped = self.running = self.params_read = False
        self.latest = self._to_come = None
        self._preceding.clear()
        for chunk in self.chunks.values():
            chunk.begin_iteration()

    def parameter_id(self, chunk: int, kind: Kind, name: str) -> TensorId:
        """Of a kind that has no micro-batch; `name` may be a scalar's."""
        return TensorId(self.iteration, NO_MICROBATCH, chunk, Pass.FORWARD, kind, name)

    def got_gradients(self) -> set[tuple[int, str]]:
        """The parameters, by chunk and name, for which a gradient arrived in this iteration."""
        return {
            (chunk.number, tensor.name)
            for chunk in self.chunks.values()
            for microbatch in chunk.microbatches
            for tensor in microbatch.arrived
            if tensor.kind == Kind.PARAM_GRAD
        }

    def chunk_of(self, module: torch.nn.Module) -> Chunk | None:
        return next((chunk for chunk in self.chunks.values() if id(module) in chunk.names), None)


def unwrapped(root: torch.nn.Module) -> torch.nn.Module:
    """What the wrappers around a model hold."""
    while (child := _wrapped_child(root)) is not None:
        root = child
    return root


def _is_clone_of(one: torch.nn.Module, other: torch.nn.Module) -> bool:
    """Whether the two are the same model: clones of the same parameters, or a clone and what it was made of."""
    if not _are_of_one_class(one, other) or not (is_clone(one) or is_clone(other)):
        return False
    ids = [{name: id(parameter) for name, parameter in named_parameters(each)} for each in (one, other)]
    return ids[0] == ids[1]


def _are_of_one_class(one: torch.nn.Module, other: torch.nn.Module) -> bool:
    """Or of two that a function made alike, as `higher` does for each task."""
    classes = [(type(each).__qualname__, type(each).__module__, type(each).__mro__[1:]) for each in (one, other)]
    return classes[0] == classes[1]


def _wrapped_child(module: torch.nn.Module) -> torch.nn.Module | None:
    """What it holds beside is part of that. None where it is no wrapper."""
    children = dict(module._modules.items())  # TorchScript's has no method but this
    wrapped = next((children[name] for name in _OUTER_WRAPPED if children.get(name) is not None), None)
    if wrapped is None or any(parameter is not None for parameter in module._parameters.values()):
        return None
    if len(children) > 1:
        parts = {id(part) for part in wrapped.modules()}
        if any(id(child) not in parts for child in children.values()):
            return None
    return wrapped


def _is_data_parallel(module: torch.nn.Module) -> bool:
    """DistributedDataParallel, DataParallel and other frameworks' of that name, around a part of the model."""
    children = module._modules.keys()  # TorchScript's has no iterator but this
    return list(children) == ["module"] and any("DataParallel" in base.__name__ for base in type(module).__mro__)


@functools.lru_cache(maxsize=1 << 14)  # asked of each parameter, for each event of an iteration
def _plain(path: str) -> str:
    return ".".join(part for part in path.split(".") if part not in _INNER_WRAPPED)
