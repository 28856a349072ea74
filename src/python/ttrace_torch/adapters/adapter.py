"""The class that adapters to frameworks derive from, and the values that they are made of."""

import bisect
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Literal

import torch

from .. import patches
from ..factoring import Group
from ..members import Member
from ..mesh_position import MeshPosition
from ..shares import Share

if TYPE_CHECKING:  # at run time its presence means that the program uses it: device_mesh.py
    from torch.distributed.device_mesh import DeviceMesh

# record(member, function) records the tensor that the function returns, unless it is None, as if the module in progress
# took or returned it. Where the function fails, the program goes on all the same.
Record = Callable[[str, Callable[[], torch.Tensor | None]], None]

# observe(call, module, args, kwargs) returns call(*args, **kwargs), which is recorded as a call of the module.
Observe = Callable[[Callable, torch.nn.Module, tuple, dict[str, Any]], Any]


@dataclass(frozen=True)
class Function:
    """A function of a framework, which the collector wraps where the program has imported it."""

    module: str
    name: str  # "Class.method" of a method, whose first argument is the object

    def wrap(self, wrapped: Callable[[Callable], Callable]) -> None:
        """Puts wrapped(function) in the function's place; does nothing where it is not there."""
        owner: Any = sys.modules.get(self.module)
        *classes, name = self.name.split(".")
        for part in classes:
            owner = getattr(owner, part, None)
        if hasattr(owner, name):
            patches.replace(owner, name, wrapped(getattr(owner, name)))


@dataclass(frozen=True)
class Clipping(Function):
    """A function that clips gradients. Its first argument are the parameters or masters that have them, or a module or
    an optimizer with such parameters."""

    # Where the norm is that the function clips by: its third argument, whatever that is called, or what it returns;
    # None where it clips by something else.
    norm: Literal["argument", "result"] | None


class Level(IntEnum):
    """What a framework decides about a program. Adapters are asked in this order: what says more of the program is more
    specific than what says less."""

    PROGRAM = 0  # how all ranks are arranged, in groups of its own
    MESH = 1  # how the program has arranged them
    ENGINE = 2  # what is done with a model and its optimizer, which it was given
    WRAPPER = 3  # what is done with the model that is wrapped
    PART = 4  # some part of a model or of a run


class Adapter:
    """What the collector knows about a framework.

    A class that derives from this one is an adapter, as soon as it is defined: in a file of this folder (all are
    imported), or in the program, before its first model runs. `class Name(Adapter, module=..., level=...)`
    says two things: `module` is the one whose presence in sys.modules means that the program may use the framework; of
    several adapters that answer, the one of the lower `level` is asked first, and of one level the one that was defined
    first. The class overrides what its framework can answer; the collector makes one object of it.

    An adapter imports its framework only where the program has done so: it takes the framework's modules from
    sys.modules. It says what it was told, never what would make a check pass. The trace is of no use where an adapter
    raises: the recording ends, with a line on stderr, and the program goes on.

    The lists are of functions that the collector wraps when the program's first model runs, by when the program has
    imported what it uses; those of `clipping`, in the adapters of this folder, as soon as it has. The methods are asked
    only where `module` is loaded; a comment above each group of them says which answer counts."""

    # Functions to wrap.

    clipping: Sequence[Clipping] = ()  # clip gradients, outside torch.nn.utils
    backward: Sequence[Function] = ()  # start backward from their first argument, without torch.autograd.backward
    checkpoints: Sequence[Function] = ()  # run their first argument, a function, again in backward
    # Methods of what has a module as `submod`: they compute the gradients of its parameters alone, for the micro-batch
    # whose number is their first argument.
    weight_backward: Sequence[Function] = ()
    # Steps of optimizers around PyTorch's own; their first argument is the optimizer. Where gradients overflowed, they
    # may return without a step of PyTorch's.
    steps: Sequence[Function] = ()
    gathering: Sequence[Function] = ()  # put gathered parameters into modules; their first argument is the handle

    # What the adapter is asked about a call of a function in its own lists.

    def loss_scale(self, optimizer: Any) -> float:
        """What the gradients are still multiplied by, before one of `steps` of `optimizer`."""
        return 1.0

    def gradient_norm(self, optimizer: Any, loss_scale: float) -> torch.Tensor | float | None:
        """The norm by which one of `steps` of `optimizer` has clipped, before which the loss scale was `loss_scale`;
        None where it does not clip."""
        return None

    def gathered_parameters(self, handle: Any) -> Iterable[tuple[Sequence[tuple[torch.nn.Module, str]], torch.Tensor]]:
        """After one of `gathering`: the tensors that the forward is about to use, each with the modules that have it
        and its names there."""
        return ()

    # The first answer counts that is not None.

    def find(self, world_size: int) -> tuple[str, str] | None:
        """The axes of the mesh of `world_size` ranks, and this rank's coordinates: "tp=2,dp=2", "tp=1,dp=0". None where
        the framework does not know: then `groups` are asked."""
        return None

    def parameter_dtype(self, model: torch.nn.Module) -> torch.dtype | None:
        """The dtype that the framework casts the model's parameters to, for what the model computes."""
        return None

    def share(self, parameter: torch.nn.Parameter) -> Share | None:
        """What this rank has of `parameter`, and what its optimizer does with that: shares.py."""
        return None

    def original_of(self, tensor: torch.Tensor) -> tuple[torch.autograd.graph.Node, int] | None:
        """Where `tensor`, an output of a module, is the framework's copy of what the module computed: the node of
        autograd that made the original, and which of the node's outputs that is."""
        return None

    def summed_later_over(self, parameter: torch.nn.Parameter, name: str) -> "DeviceMesh | tuple[str, ...] | None":
        """The device mesh, or the axes of the trace, over which the framework sums the gradient of `parameter`, which
        goes by `name`, after a backward."""
        return None

    # One adapter that says yes is enough.

    def is_rehearsal(self) -> bool:
        """Whether the framework runs the model just now, in grad mode, to learn its shapes and no more."""
        return False

    def is_by_product(self, value: Any) -> bool:
        """Whether `value`, which a module takes or returns, holds nothing but what is recorded elsewhere."""
        return False

    def are_experts(self, module_class: type) -> bool:
        """Whether what modules of that class compute inside has rows in an order that correct programs differ in."""
        return False

    def exchanges_tokens(self, module: torch.nn.Module) -> bool:
        """Whether the parameters of `module` get gradients of tokens that other ranks have sent there."""
        return False

    def is_flattened(self, parameter: torch.nn.Parameter) -> bool:
        """Whether `parameter` is a flat one that holds several, or one of those in it: `flattened_parameters`."""
        return False

    # All answers count, one after the other.

    def groups(self, model: torch.nn.Module | None) -> Iterable[Group]:
        """Groups of ranks, this one among them, from which factoring.py works out the axes. The name that comes first
        for the same ranks is that of the axis. `model` is None where none has run yet."""
        return ()

    def words(self, model: torch.nn.Module, position: MeshPosition) -> dict[str, Any]:
        """What the framework says of how the program is parallel: an object of the section `parallelism` of
        annotations/README.md, and as `preset` the name of annotations that come with ttrace and fit the model, with
        values of their parameters. Where several adapters say a word, the last one's counts, but of `loss_scale` the
        product."""
        return {}

    def router_choice(self, module: torch.nn.Module, args: tuple, kwargs: dict[str, Any], result: Any) -> list[Member]:
        """What `module` ranks experts by, where it is a router, as members beside those of `result`, which it has
        returned to a call with `args` and `kwargs`."""
        return []

    def flattened_parameters(self, root: torch.nn.Module) -> Iterable[tuple[torch.nn.Module, str, Share]]:
        """The parameters inside `root` that are part of a flat one: the module that has it, its name there, and this
        rank's share of it."""
        return ()

    def record_inside(self, record_input: Record, record_output: Record) -> None:
        """Called once, when the first model runs. Has the framework's functions record what a module neither takes nor
        returns: `record_input(member, function)` names what the function returns as an input of the module in
        progress."""

    def observe_calls(self, observe: Observe) -> None:
        """Called once, as soon as `module` has been imported, of adapters in this folder. Has those functions of the
        framework observed that call what a module does other than by calling the module."""

    module: str
    level: Level

    def __init_subclass__(cls, *, module: str, level: Level = Level.PART) -> None:
        super().__init_subclass__()
        cls.module, cls.level = module, level
        adapter = cls()
        for name in HOOKS:
            if getattr(cls, name) is not getattr(Adapter, name):
                bisect.insort(OVERRIDING[name], adapter, key=lambda other: other.level)


HOOKS = [name for name in vars(Adapter) if not name.startswith("_")]  # all that an adapter may override
OVERRIDING: dict[str, list[Adapter]] = {name: [] for name in HOOKS}  # in the order in which they are asked
