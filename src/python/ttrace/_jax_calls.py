"""Takes hold of what a JAX program computes, without a tap in it: every call of flax's modules and of a Python module's
functions, the gradients there, and the steps of optax.

What is traced is no array yet. So each value passes an identity that hands its numbers out when the compiled program
runs (jax.debug.callback), also inside `jit`, `shard_map`, `grad`, `scan` and `checkpoint`; a custom_vjp hands out the
gradient. Such a place in the traced program is a site, numbered as it is traced: calls of a device arrive in any order,
and the numbers are the order of execution. A site is traced once and arrives once for each turn of a loop; gradients
arrive in the reverse order of their calls."""

import contextlib
import functools
import importlib
import inspect
import itertools
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import ModuleType
from typing import Any, NamedTuple

from . import _optax
from ._core import InputError

ROOT = "(model)"  # src/base/tensor_name.h
LOSS = "loss"
STATE_KINDS = ("exp_avg", "exp_avg_sq", "momentum_buffer")
_STEP_KINDS = ("param", "main_grad", *STATE_KINDS, "step", "param_delta", "param_after")


class Site(NamedTuple):
    number: int
    kind: str
    name: str  # without the number of the call
    module_class: str = ""
    of: int = -1  # of a gradient: the number of the site of its value
    comes_again: bool = False  # backward may compute it again (jax.checkpoint)
    step: Any = None  # of the facts of an optimizer's step: _optax.Step


class Arrival(NamedTuple):
    """One value of a site, as one device had it."""

    name: str
    site: Site
    microbatch: int | None
    value: Any


class Calls:
    """Observes while `installed()` lasts. `functions`: Python modules whose functions are observed, by their names."""

    def __init__(self, axis_names: Iterable[str], functions: Iterable[ModuleType], factors: Callable[..., Any] | None):
        self._jax: Any = importlib.import_module("jax")
        self._axis_names, self._functions = tuple(axis_names), tuple(functions)
        self._factors = factors  # of a run that is perturbed
        self._sites = itertools.count()
        self._names: dict[int, str] = {}  # of the modules inside the outermost one that is called, by id
        self._path: list[str] = []  # of the functions that are called
        self._depth = 0
        self._wants_perturbation = False
        self._is_inside_step = self._is_inside_checkpoint = False
        self._gradients: dict[int, Any] = {}  # that were traced since the iteration began, by id
        # What is reduced, by what reduces it, and the axis: of those gradients, and the shapes of all.
        self._reduced: dict[tuple[str, str], set[int]] = defaultdict(set)
        self._reduced_shapes: dict[tuple[str, str], Counter[tuple[int, ...]]] = defaultdict(Counter)
        self.averaged: set[str] = set()
        """The axes over which the program averages all gradients: along these it is data-parallel."""
        self.summed: set[str] = set()
        """The same of sums."""
        self._arrived: list[tuple[Site, tuple[int, ...] | None, Any]] | None = None  # None: between iterations

    @contextlib.contextmanager
    def installed(self) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            jax = self._jax
            _replace(stack, jax, "value_and_grad", functools.partial(self._differentiating, jax.value_and_grad, 1))
            _replace(stack, jax, "grad", functools.partial(self._differentiating, jax.grad, 0))
            for name in ("checkpoint", "remat"):
                _replace(stack, jax, name, functools.partial(self._checkpointing, getattr(jax, name)))
            for name in ("pmean", "psum"):
                _replace(stack, jax.lax, name, functools.partial(self._reducing, name, getattr(jax.lax, name)))
            for module in self._functions:
                own = [(name, f) for name, f in vars(module).items() if inspect.isfunction(f)]
                for name, function in own:
                    if function.__module__ == module.__name__:
                        _replace(stack, module, name, self._observed_function(function))
            if "flax.linen" in sys.modules:
                stack.enter_context(sys.modules["flax.linen"].intercept_methods(self._linen_call))
            if "flax.nnx" in sys.modules:
                self._install_nnx(stack, sys.modules["flax.nnx"])
            if "optax" in sys.modules:
                self._install_optax(stack, sys.modules["optax"])
            yield

    @contextlib.contextmanager
    def collecting(self) -> Iterator[list[tuple[Site, tuple[int, ...] | None, Any]]]:
        """Yields what arrives: the site, the place of the device in the mesh (None: the whole, of all devices) and its
        numbers."""
        arrived: list[tuple[Site, tuple[int, ...] | None, Any]] = []
        self._jax.effects_barrier()
        self._arrived = arrived
        try:
            yield arrived
            self._jax.effects_barrier()
        finally:
            self._arrived = None
            shapes = Counter(leaf.shape for leaf in self._gradients.values())
            for (name, axis), of_all in self._reduced_shapes.items() if shapes else ():
                reduced = self._reduced[name, axis]
                # What is made of gradients before (clipped by sample, averaged over these) has their shapes.
                are_all = reduced == self._gradients.keys() if reduced else shapes <= of_all
                if are_all:
                    (self.averaged if name == "pmean" else self.summed).add(axis)
            self._gradients.clear()
            self._reduced.clear()
            self._reduced_shapes.clear()

    # Values.

    def observe(self, value: Any, kind: str, name: str, module_class: str = "") -> Any:
        """`value`, an array or what holds some; each hands itself out."""
        jax = self._jax
        leaves, tree = jax.tree_util.tree_flatten_with_path(value)
        arrays = [path for path, leaf in leaves if hasattr(leaf, "dtype")]
        observed = []
        for path, leaf in leaves:
            member = "" if len(arrays) == 1 else ":" + ".".join(_optax.keys_of(path))
            observed.append(self._observe_array(leaf, kind, name + member, module_class) if path in arrays else leaf)
        return jax.tree_util.tree_unflatten(tree, observed)

    def _observe_array(self, value: Any, kind: str, name: str, module_class: str) -> Any:
        jax = self._jax
        if jax.dtypes.issubdtype(value.dtype, jax.dtypes.extended):  # keys of random numbers
            return value
        site = Site(next(self._sites), kind, name, module_class, comes_again=self._is_inside_checkpoint)
        if not jax.numpy.issubdtype(value.dtype, jax.numpy.inexact):
            return self.hand_out(site, value)
        if kind == "output" and self._wants_perturbation:
            value = self._perturbed(value, name)
        if kind not in ("output", "scalar"):
            return self.hand_out(site, value)

        observed = jax.custom_vjp(lambda value: self.hand_out(site, value))

        def backward(_: None, gradient: Any) -> tuple[Any]:
            if kind == "scalar":
                return (gradient,)
            of_gradient = Site(next(self._sites), "grad_output", name, module_class, of=site.number)
            return (self.hand_out(of_gradient, gradient),)

        observed.defvjp(lambda value: (self.hand_out(site, value), None), backward)
        return observed(value)

    def hand_out(self, site: Site, value: Any) -> Any:
        """`value`, an array or a dict of numbers, which arrives as the site's when it is computed."""
        import numpy

        jax = self._jax
        manual = getattr(jax.sharding.get_abstract_mesh(), "manual_axes", ())
        indices = [jax.lax.axis_index(axis) for axis in self._axis_names if axis in manual]

        def copied(one: Any) -> Any:  # the memory is the program's
            numbers = numpy.array(one)
            is_complex = numpy.iscomplexobj(numbers)  # a trace holds pairs
            return numpy.stack([numbers.real, numbers.imag], axis=-1) if is_complex else numbers

        def arrive(value: Any, *indices: Any) -> None:
            if self._arrived is not None:
                place = tuple(int(index) for index in indices) if indices else None
                self._arrived.append((site, place, jax.tree.map(copied, value)))

        def emit_one(value: Any, *indices: Any) -> tuple[()]:
            jax.debug.callback(arrive, value, *indices)
            return ()

        def emit_batch(size: int, are_batched: Any, value: Any, *indices: Any) -> tuple[tuple[()], tuple[()]]:
            """All samples at once: callbacks of the samples would come in any order."""

            def arrive_in_order(value: Any, *indices: Any) -> None:
                def of_sample(i: int, one: Any, is_batched: bool) -> Any:
                    return one[i] if is_batched else one

                for i in range(size):
                    arrive(jax.tree.map(functools.partial(of_sample, i), value, are_batched[0]), *indices)

            jax.debug.callback(arrive_in_order, value, *indices)
            return (), ()

        emit = jax.custom_batching.custom_vmap(emit_one)
        emit.def_vmap(emit_batch)
        value = jax.lax.optimization_barrier(value)
        emit(jax.lax.stop_gradient(value), *indices)
        return value

    def _perturbed(self, value: Any, name: str) -> Any:
        """The first floating-point activation, of a micro-batch."""
        self._wants_perturbation = False
        assert self._factors is not None
        if getattr(self._jax.sharding.get_abstract_mesh(), "manual_axes", ()) and self._jax.device_count() > 1:
            raise InputError(
                f"--perturb: {name} is a device's part of it, in shard_map; expected a reference on one device"
            )
        numpy = self._jax.numpy
        return (value.astype(numpy.float32) * self._factors(name, value.shape)).astype(value.dtype)

    # Calls.

    def _call(self, call: Callable[..., Any], name: str, arguments: Any, options: Any, module_class: str) -> Any:
        """What the call returns, observed; of the outermost one the arrays that it is given as well."""
        if self._depth == 0:
            self._wants_perturbation = self._factors is not None
            arrays = [i for i, one in enumerate(arguments) if hasattr(one, "dtype")]
            for i in arrays:
                self.observe(arguments[i], "input", f"{name}:{i}" if len(arrays) > 1 else name, module_class)
        self._depth += 1
        try:
            result = call(*arguments, **options)
        finally:
            self._depth -= 1
        return self.observe(result, "output", name, module_class)

    def _observed_function(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*arguments: Any, **options: Any) -> Any:
            self._path.append(function.__name__)
            of = f"{function.__module__}.{function.__qualname__}"
            try:
                return self._call(function, ".".join(self._path), arguments, options, of)
            finally:
                self._path.pop()

        return call

    def _linen_call(self, call: Callable[..., Any], arguments: Any, options: Any, context: Any) -> Any:
        if context.method_name != "__call__" or context.module.is_initializing():
            return call(*arguments, **options)
        name = ".".join(context.module.path) or ROOT
        return self._call(call, name, arguments, options, _class_of(context.module))

    def _install_nnx(self, stack: contextlib.ExitStack, nnx: ModuleType) -> None:
        calls = self

        def observed(call: Callable[..., Any]) -> Callable[..., Any]:
            @functools.wraps(call)
            def observe(module: Any, *arguments: Any, **options: Any) -> Any:
                if calls._depth == 0:
                    paths = nnx.iter_modules(module)
                    calls._names = {id(one): ".".join(map(str, path)) or ROOT for path, one in paths}
                name = calls._names.get(id(module))
                if name is None:  # made on the way
                    return call(module, *arguments, **options)
                return calls._call(functools.partial(call, module), name, arguments, options, _class_of(module))

            return observe

        for module_class in _with_subclasses(nnx.Module):
            if "__call__" in vars(module_class):
                _replace(stack, module_class, "__call__", observed(module_class.__call__))

    # Losses, gradients and steps.

    def _differentiating(
        self, differentiate: Callable[..., Any], place: int, function: Callable[..., Any], *given: Any, **options: Any
    ) -> Any:
        """What `differentiate` makes of a function whose value is observed. `place`: where its gradients are in what it
        returns, if that is more than these."""
        has_aux = options.get("has_aux", False)

        @functools.wraps(function)
        def observed(*inner: Any, **named: Any) -> Any:
            result = function(*inner, **named)
            value, rest = (result[0], result[1:]) if has_aux else (result, ())
            if getattr(value, "shape", None) == ():
                value = self.observe(value, "scalar", LOSS)
            return (value, *rest) if has_aux else value

        differentiated = differentiate(observed, *given, **options)

        @functools.wraps(differentiated)
        def call(*inner: Any, **named: Any) -> Any:
            result = differentiated(*inner, **named)
            gradients = result[place] if place or has_aux else result
            self._gradients |= self._by_id(gradients)
            return result

        return call

    def _checkpointing(self, checkpoint: Callable[..., Any], function: Callable[..., Any], **options: Any) -> Any:
        @functools.wraps(function)
        def observed(*arguments: Any, **named: Any) -> Any:
            before, self._is_inside_checkpoint = self._is_inside_checkpoint, True
            try:
                return function(*arguments, **named)
            finally:
                self._is_inside_checkpoint = before

        checkpointed: Callable[..., Any] = checkpoint(observed, **options)
        return checkpointed

    def _reducing(self, name: str, reduce: Callable[..., Any], value: Any, axis_name: Any, **options: Any) -> Any:
        leaves = self._by_id(value)
        for axis in (axis_name,) if isinstance(axis_name, str) else axis_name:
            self._reduced[name, axis] |= leaves.keys() & self._gradients.keys()
            self._reduced_shapes[name, axis].update(getattr(leaf, "shape", ()) for leaf in leaves.values())
        return reduce(value, axis_name, **options)

    def _by_id(self, tree: Any) -> dict[int, Any]:
        return {id(leaf): leaf for leaf in self._jax.tree.leaves(tree)}

    def _install_optax(self, stack: contextlib.ExitStack, optax: ModuleType) -> None:
        calls = self

        def update(transformation: Any) -> Callable[..., Any]:
            plain: Callable[..., Any] = transformation[1]
            if calls._is_inside_step:
                return plain

            @functools.wraps(plain)
            def observe(gradients: Any, state: Any, params: Any = None, **options: Any) -> Any:
                given = calls._by_id(gradients).keys() & calls._gradients.keys()
                gradients = calls._observe_leaves(gradients, "main_grad")
                step = _optax.describe(plain, gradients, state, params)
                if params is not None:
                    params = calls._observe_leaves(params, "param")
                for kind, moments in step.moments.items():
                    calls._observe_leaves(moments, kind)
                calls.hand_out(Site(next(calls._sites), "step", "", step=step), step.numbers)
                calls._is_inside_step = True
                try:
                    updates, state = plain(gradients, state, params, **options)
                finally:
                    calls._is_inside_step = False
                updates = calls._observe_leaves(updates, "param_delta")
                if given and given == calls._gradients.keys():  # what is made of gradients that are not reduced yet
                    calls._gradients = calls._by_id(updates)
                return updates, state

            return observe

        _replace(stack, optax.GradientTransformation, "update", property(update))
        apply = optax.apply_updates
        _replace(stack, optax, "apply_updates", lambda *given: calls._observe_leaves(apply(*given), "param_after"))

    def _observe_leaves(self, tree: Any, kind: str) -> Any:
        observe = self._jax.tree_util.tree_map_with_path
        return observe(lambda path, leaf: self._observe_array(leaf, kind, _optax.name_of(path), ""), tree)


def arranged(arrived: list[tuple[Site, Any]]) -> list[Arrival]:
    """What arrived of one device in one iteration, in order of execution, with the micro-batches and the numbers of the
    calls. Each value of a loss ends the forward of a micro-batch."""
    sites: dict[int, Site] = {}
    values: dict[int, list[Any]] = defaultdict(list)
    first: dict[int, list[bytes]] = defaultdict(list)  # of sites that come again: what has come once
    for site, value in arrived:
        sites[site.number] = site
        if site.comes_again:
            numbers = value.tobytes()
            if numbers in first[site.number]:
                first[site.number].remove(numbers)
                continue
            first[site.number].append(numbers)
        values[site.number].append(value)
    for number in _replaced(sites):
        del sites[number]
    losses = [number for number in sorted(sites) if sites[number].kind == "scalar"]
    for number, site in sites.items():
        mine = next((loss for loss in losses if loss >= (number if site.of < 0 else site.of)), None)
        turns = len(values[mine]) if mine is not None and site.kind not in _STEP_KINDS else 1
        if turns % len(values[number]) == 0:  # of all samples that a function is mapped over there is one weight
            values[number] = [value for value in values[number] for _ in range(turns // len(values[number]))]
    found: list[tuple[Site, tuple[int, ...], int | None, int, Any]] = []
    for order, number, i, count in _in_order(sorted(sites), values):
        site = sites[number]
        if site.kind in _STEP_KINDS:
            is_first = site.kind == "param"  # what the iteration begins with
            found.append((site, (-1 if is_first else sys.maxsize, *order), None, 0, values[number][i]))
            continue
        base = number if site.of < 0 else site.of
        mine = next((loss for loss in losses if loss >= base), None)
        start = sum(len(values[loss]) for loss in losses if mine is None or loss < mine)
        turns = len(values[mine]) if mine is not None else 1
        if count % turns != 0:
            raise InputError(
                f"{site.name} {site.kind}: {count} calls and {turns} losses in one iteration; expected as many for each"
            )
        calls = count // turns
        microbatch, call = start + i // calls, i % calls
        if site.of >= 0:
            call = calls - 1 - call
        found.append((site, (microbatch, *order), microbatch, call, values[number][i]))
    found.sort(key=lambda one: one[1])
    return _with_changes(list(_numbered(found)))


def _replaced(sites: Mapping[int, Site]) -> list[int]:
    """The sites of steps that a later one takes the place of: the last transformation that gradients go through is the
    optimizer's."""
    last: dict[tuple[str, str], int] = {}
    replaced = set()
    for number in sorted(sites):
        site = sites[number]
        if site.kind in _STEP_KINDS:
            for name in site.step.names if site.step else (site.name,):
                replaced.add(last.get((site.kind, name), -1))
                last[site.kind, name] = number
    return [number for number in replaced if number >= 0]


def _with_changes(arrivals: list[Arrival]) -> list[Arrival]:
    """What parameters have changed by takes the place of the updates, where it is known: what a compiler fuses with an
    update may be added to the parameter before it is rounded."""
    import numpy

    ends = {(one.name, one.site.kind): one.value for one in arrivals if one.site.kind in ("param", "param_after")}

    def changed(one: Arrival) -> Arrival:
        before, after = (ends.get((one.name, kind)) for kind in ("param", "param_after"))
        if one.site.kind != "param_delta" or before is None or after is None:
            return one
        dtype = numpy.promote_types(before.dtype, numpy.float32)
        return one._replace(value=after.astype(dtype) - before.astype(dtype))

    return [changed(one) for one in arrivals]


def _in_order(numbers: list[int], values: Mapping[int, list[Any]]) -> Iterator[tuple[tuple[int, ...], int, int, int]]:
    """The order, the site and the place of each value. Neighbours that arrived equally often, and more than once, are
    in one loop."""
    for count, group in itertools.groupby(numbers, key=lambda number: len(values[number])):
        members = list(group)
        for number in members:
            for i in range(count):
                yield (members[0], i, number), number, i, count


def _numbered(found: list[tuple[Site, tuple[int, ...], int | None, int, Any]]) -> Iterator[Arrival]:
    """Adds the number of the call to names: of one site in its loop, and of the sites of one name."""
    before: dict[tuple[str, int | None], int] = defaultdict(int)  # calls of a name at earlier sites
    start: dict[tuple[int, int | None], int] = {}  # by site and micro-batch: the number of its first call
    calls: dict[tuple[int, int | None], int] = defaultdict(int)
    for site, _, microbatch, _, _ in found:
        calls[site.number, microbatch] += 1
    for site, _, microbatch, _, _ in sorted(found, key=lambda one: one[0].number):
        key = site.number, microbatch
        if site.kind in ("output", "scalar") and key not in start:
            start[key] = before[site.name, microbatch]
            before[site.name, microbatch] += calls[key]
    for site, _, microbatch, call, value in found:
        number = call + start.get((site.number if site.of < 0 else site.of, microbatch), 0)
        yield Arrival(site.name + (f"#{number}" if number else ""), site, microbatch, value)


def _replace(stack: contextlib.ExitStack, owner: Any, name: str, value: Any) -> None:
    stack.callback(setattr, owner, name, vars(owner)[name])
    setattr(owner, name, value)


def _with_subclasses(of: type[Any]) -> Iterator[type[Any]]:
    for one in of.__subclasses__():
        yield one
        yield from _with_subclasses(one)


def _class_of(module: Any) -> str:
    return f"{type(module).__module__}.{type(module).__qualname__}"
