"""Where training is: iterations, micro-batches, and the model chunks that they are counted by.

An outermost call of a module with parameters, in grad mode, begins a micro-batch of that module, which is called a
model chunk: without virtual pipeline stages there is one. Chunks are numbered as they are first called. That is model
order on every rank, since a micro-batch reaches a chunk only after it has gone through the earlier ones. An iteration
ends when, after at least one optimizer step, or one that was skipped because gradients overflowed, such a call comes
again. A program need not say any of this."""

import torch

from .compiled import hides_inside

ROOT = "(model)"  # the name of the chunk's own module, whose path is empty

# Modules that only pass a call on to the one child of that name. Their calls are not recorded, and the child's
# name goes without the component, so that names are those of the plain model.
_OUTER_WRAPPED = ("module", "_orig_mod", "_fsdp_wrapped_module")
_INNER_WRAPPED = ("_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module")


class Chunk:
    def __init__(self, number: int, root: torch.nn.Module):
        self.number = number
        self.root = root
        self.base = _unwrapped(root)
        self.names: dict[int, str | None] = {}  # id of a module -> its name; None for a wrapper
        self.microbatches: list[Microbatch] = []  # of this iteration
        self.in_backward: Microbatch | None = None
        self.find_names()

    def find_names(self) -> None:
        # Wrappers around the base come first and lose against what is found inside it.
        # A compiled one is called in the place of what it wraps, and has its name.
        self.names = {id(module): ROOT if hides_inside(module) else None for module in self.root.modules()}
        for path, module in self.base.named_modules():
            wraps = any(child in _INNER_WRAPPED for child in module._modules.keys()) and not hides_inside(module)
            self.names[id(module)] = None if wraps else _plain(path) or ROOT

    def parameters(self) -> list[tuple[str, torch.nn.Parameter]]:
        """With every name that a shared one has, as pipeline stages split a model at any of them."""
        return [(_plain(path), parameter) for path, parameter in self.base.named_parameters(remove_duplicate=False)]


class Microbatch:
    def __init__(self, chunk: int, owner: Chunk | None, iteration: int, number: int, recorded: bool):
        self.chunk, self.owner, self.iteration, self.number, self.recorded = chunk, owner, iteration, number, recorded
        self.calls: dict[str, int] = {}  # name -> calls so far, in forward
        self.recomputed: dict[str, int] = {}  # the same in recomputation
        self.hooked: set[tuple[int, str]] = set()  # gradients (kind, name) that a hook waits for
        self.fired: set[tuple[int, str]] = set()
        self.perturbed: tuple[int, str] | None = None  # (kind, name)
        self.losses = 0
        self.reentrant = False  # part of the forward ran without grad: reentrant activation checkpointing


class Clock:
    def __init__(self) -> None:
        self.iteration = 0
        self.chunks: dict[int, Chunk] = {}  # by id of the root, which the chunk keeps alive
        self.stepped = False  # since the iteration's first call
        self.ever_stepped = False
        self.params_read = False  # since the step
        self.running = False  # a root was called in this iteration
        self.latest: Microbatch | None = None
        self._before_first: Microbatch | None = None

    def begin_microbatch(self, root: torch.nn.Module, recorded: bool) -> Microbatch:
        chunk = self.chunks.get(id(root))
        if chunk is None:
            chunk = self.chunks[id(root)] = Chunk(len(self.chunks), root)
        microbatch = Microbatch(chunk.number, chunk, self.iteration, len(chunk.microbatches), recorded)
        if self._before_first is not None and microbatch.number == 0 and chunk.number == 0:
            microbatch.calls.update(self._before_first.calls)
        chunk.microbatches.append(microbatch)
        self.running = True
        self.latest = microbatch
        return microbatch

    def for_parameterless(self, recorded: bool) -> Microbatch:
        """The micro-batch that a loss module's call belongs to: the latest; before there is one, the first."""
        if self.latest is not None:
            return self.latest
        if self._before_first is None:
            self._before_first = Microbatch(0, None, self.iteration, 0, recorded)
        return self._before_first

    def step(self) -> None:
        """An optimizer stepped, or gradients were looked through for overflow, which forbids it to."""
        # A step before any forward initialises the optimizer's state; it trains nothing.
        self.stepped = self.stepped or self.running
        self.ever_stepped = self.ever_stepped or self.running

    def next_iteration(self) -> None:
        self.iteration += 1
        self.stepped = self.running = self.params_read = False
        self.latest = self._before_first = None
        for chunk in self.chunks.values():
            chunk.microbatches.clear()
            chunk.in_backward = None

    def chunk_of(self, module: torch.nn.Module) -> Chunk | None:
        return next((chunk for chunk in self.chunks.values() if id(module) in chunk.names), None)


def _unwrapped(root: torch.nn.Module) -> torch.nn.Module:
    while len(root._modules) == 1 and not any(p is not None for p in root._parameters.values()):
        ((name, child),) = root._modules.items()
        if name not in _OUTER_WRAPPED or child is None:
            break
        root = child
    return root


def _plain(path: str) -> str:
    return ".".join(part for part in path.split(".") if part not in _INNER_WRAPPED)
