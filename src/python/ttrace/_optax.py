"""Tells the rule of a step from an optax transformation itself: its parts are functions, whose closures hold what they
are made of (`optax.adamw(1e-3)` is scale_by_adam, add_decayed_weights and scale, in a chain). A chain that none of the
rules fits has its parts for a name."""

import importlib
import inspect
from typing import Any, NamedTuple


class Step(NamedTuple):
    optimizer: str  # a class whose rule is known (src/step/update_rule.cpp), or the parts of the chain
    options: dict[str, float]
    without_decay: frozenset[str]  # the names of those that a mask leaves out of weight decay
    moments: dict[str, Any]  # by kind: a tree like that of the parameters, before the step
    numbers: dict[str, Any]  # known when the step is computed: lr, step, clip_factor
    names: tuple[str, ...]  # of the parameters

    def groups(self) -> list[tuple[dict[str, float], list[str]]]:
        """The options, and which of the parameters they are for."""
        decayed = [name for name in self.names if name not in self.without_decay]
        rest = [name for name in self.names if name in self.without_decay]
        groups = [(self.options, decayed), (self.options | {"weight_decay": 0.0}, rest)]
        return [group for group in groups if group[1]]


class _Part(NamedTuple):
    name: str
    made_of: dict[str, Any]
    state: Any
    mask: Any  # a tree of truth values; None: all


def keys_of(path: Any) -> list[str]:
    """What leads to a leaf of a tree."""
    return [str(getattr(key, "key", getattr(key, "name", getattr(key, "idx", key)))) for key in path]


def name_of(path: Any) -> str:
    """Of a parameter: what leads to it, without the collection of linen and the variable's value of nnx."""
    keys = keys_of(path)
    if len(keys) > 1 and keys[0] == "params":
        keys = keys[1:]
    return ".".join(keys[:-1] if len(keys) > 1 and keys[-1] == "value" else keys)


def describe(update: Any, gradients: Any, state: Any, params: Any) -> Step:
    """The step that `update` takes with traced `gradients`, `state` and `params`."""
    jax = importlib.import_module("jax")
    parts = list(_parts(update, state, None, gradients))
    names = tuple(name_of(path) for path, _ in jax.tree_util.tree_leaves_with_path(gradients))
    unknown = Step("optax." + "+".join(part.name for part in parts), {}, frozenset(), {}, {}, names)
    numbers: dict[str, Any] = {}
    while parts and parts[0].name == "clip_by_global_norm" and parts[0].mask is None and not numbers:
        norm, most = jax.numpy.asarray(_global_norm(gradients)), parts.pop(0).made_of["max_norm"]
        numbers["clip_factor"] = jax.numpy.where(norm < most, 1.0, most / norm)
    rule = _rule(parts)
    if rule is None:
        return unknown
    optimizer, options, mask, moments, of_rule = rule
    left_out: frozenset[str] = frozenset()
    if mask is not None:
        leaves = jax.tree_util.tree_leaves_with_path(jax.tree.map(lambda keep, _: keep, mask, gradients))
        left_out = frozenset(name_of(path) for path, keep in leaves if not keep)
    return Step(optimizer, options, left_out, moments, numbers | of_rule, names)


def _parts(update: Any, state: Any, mask: Any, gradients: Any) -> Any:
    """In the order in which they change the gradient."""
    name = update.__qualname__.split(".<locals>")[0]
    made_of = dict(inspect.getclosurevars(update).nonlocals)
    if name == "with_extra_args_support":
        yield from _parts(made_of["tx"][1], state, mask, gradients)
    elif name == "chain" and "update_fns" in made_of:
        for one, its in zip(made_of["update_fns"], state, strict=True):
            yield from _parts(one, its, mask, gradients)
    elif name == "masked" and mask is None:
        tree = made_of["mask"]
        tree = tree(gradients) if callable(tree) else tree
        yield from _parts(made_of["inner"][1], state.inner_state, tree, gradients)
    elif name not in ("init_empty_state", "identity"):
        yield _Part(name, made_of, state, mask)


def _rule(parts: list[_Part]) -> Any:
    """The class, its options, the mask of the decay, the moments and the numbers; None where no rule fits."""
    left = list(parts)

    def take(*names: str) -> _Part | None:
        return left.pop(0) if left and left[0].name in names else None

    before = take("add_decayed_weights")
    direction = take("scale_by_adam", "trace", "scale_by_lion")
    after = take("add_decayed_weights") if direction and direction.name != "trace" else None
    if (before and after) or any(part.mask is not None for part in (*left, *([direction] if direction else []))):
        return None
    lr: Any = -1.0
    for part in left:
        if part.name == "scale":
            lr = lr * part.made_of["step_size"]
        elif part.name == "scale_by_schedule":
            lr = lr * part.made_of["step_size_fn"](part.state.count)
        else:
            return None
    options: dict[str, float] = {}
    decay = before or after
    if decay:
        if callable(decay.made_of["weight_decay"]):
            return None
        options["weight_decay"] = decay.made_of["weight_decay"]
    numbers = {"lr": lr}
    mask = decay.mask if decay else None
    if direction is None:
        return "optax.sgd", options, mask, {}, numbers
    of, state = direction.made_of, direction.state
    if direction.name == "trace":
        options |= {"momentum": of["decay"], "nesterov": float(of["nesterov"])}
        return "optax.sgd", options, mask, {"momentum_buffer": state.trace}, numbers
    options["decoupled_weight_decay"] = float(after is not None)
    options |= {"beta1": of["b1"], "beta2": of["b2"]}
    numbers["step"] = state.count + 1
    if direction.name == "scale_by_lion":
        if of["mode"] != "hard":
            return None
        return "optax.lion", options, mask, {"exp_avg": state.mu}, numbers
    if of["nesterov"] or of["eps_root"] != 0:
        return None
    options["eps"] = of["eps"]
    return "optax.adam", options, mask, {"exp_avg": state.mu, "exp_avg_sq": state.nu}, numbers


def _global_norm(tree: Any) -> Any:
    return importlib.import_module("optax").global_norm(tree)
