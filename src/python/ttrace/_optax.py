"""Tells the rule of a step from an optax transformation itself: its parts are functions, whose closures hold what they
are made of (`optax.adamw(1e-3)` is scale_by_adam, add_decayed_weights and scale, in a chain). A chain that none of the
rules fits has its parts for a name."""

import functools
import importlib
import inspect
from typing import Any, NamedTuple


class Step(NamedTuple):
    optimizer: str  # a class whose rule is known (src/step/update_rule.cpp), or the parts of the chain
    options: dict[str, float]
    of_parameter: dict[str, dict[str, float]]  # options that are a parameter's own, by its name
    moments: dict[str, Any]  # by kind: a tree like that of the parameters, before the step
    numbers: dict[str, Any]  # known when the step is computed: lr, beta2, step, clip_factor
    names: tuple[str, ...]  # of the parameters

    def groups(self) -> list[tuple[dict[str, float], list[str]]]:
        """The options, and which of the parameters they are for."""
        groups: list[tuple[dict[str, float], list[str]]] = []
        for name in self.names:
            options = self.options | self.of_parameter.get(name, {})
            members = next((members for of, members in groups if of == options), None)
            if members is None:
                members = []
                groups.append((options, members))
            members.append(name)
        return groups


class _Part(NamedTuple):
    name: str
    made_of: dict[str, Any]
    state: Any
    mask: Any  # a tree of truth values; None: all


class _Rule(NamedTuple):
    optimizer: str
    options: dict[str, float]
    mask: Any  # of the weight decay
    moments: dict[str, Any]
    numbers: dict[str, Any]
    own: dict[str, dict[str, float]] = {}


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
    unknown = Step("optax." + "+".join(part.name for part in parts), {}, {}, {}, {}, names)
    numbers: dict[str, Any] = {}
    while parts and parts[0].name == "clip_by_global_norm" and parts[0].mask is None and not numbers:
        norm, most = jax.numpy.asarray(_global_norm(gradients)), parts.pop(0).made_of["max_norm"]
        numbers["clip_factor"] = jax.numpy.where(norm < most, 1.0, most / norm)
    is_adafactor = bool(parts) and parts[0].name == "scale_by_factored_rms"
    rule = _adafactor(parts, gradients) if is_adafactor else _rule(parts)
    if rule is None:
        return unknown
    own = dict(rule.own)
    if rule.mask is not None:
        leaves = jax.tree_util.tree_leaves_with_path(jax.tree.map(lambda keep, _: keep, rule.mask, gradients))
        for name in (name_of(path) for path, keep in leaves if not keep):
            own[name] = own.get(name, {}) | {"weight_decay": 0.0}
    return Step(rule.optimizer, rule.options, own, rule.moments, numbers | rule.numbers, names)


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


def _take(left: list[_Part], *names: str) -> _Part | None:
    return left.pop(0) if left and left[0].name in names else None


def _factor(part: _Part) -> Any:
    """What `scale` or `scale_by_schedule` multiplies by."""
    of = part.made_of
    return of["step_size"] if part.name == "scale" else of["step_size_fn"](part.state.count)


def _rule(parts: list[_Part]) -> _Rule | None:
    """None where no rule fits."""
    left = list(parts)
    before = _take(left, "add_decayed_weights")
    direction = _take(left, "scale_by_adam", "trace", "scale_by_lion")
    after = _take(left, "add_decayed_weights") if direction and direction.name != "trace" else None
    if (before and after) or any(part.mask is not None for part in (*left, *([direction] if direction else []))):
        return None
    lr: Any = -1.0
    for part in left:
        if part.name not in ("scale", "scale_by_schedule"):
            return None
        lr = lr * _factor(part)
    options: dict[str, float] = {}
    decay = before or after
    if decay:
        if callable(decay.made_of["weight_decay"]):
            return None
        options["weight_decay"] = decay.made_of["weight_decay"]
    numbers = {"lr": lr}
    mask = decay.mask if decay else None
    if direction is None:
        return _Rule("optax.sgd", options, mask, {}, numbers)
    of, state = direction.made_of, direction.state
    if direction.name == "trace":
        options |= {"momentum": of["decay"], "nesterov": float(of["nesterov"])}
        return _Rule("optax.sgd", options, mask, {"momentum_buffer": state.trace}, numbers)
    options["decoupled_weight_decay"] = float(after is not None)
    options |= {"beta1": of["b1"], "beta2": of["b2"]}
    numbers["step"] = state.count + 1
    if direction.name == "scale_by_lion":
        if of["mode"] != "hard":
            return None
        return _Rule("optax.lion", options, mask, {"exp_avg": state.mu}, numbers)
    if of["nesterov"] or of["eps_root"] != 0:
        return None
    options["eps"] = of["eps"]
    return _Rule("optax.adam", options, mask, {"exp_avg": state.mu, "exp_avg_sq": state.nu}, numbers)


def _adafactor(parts: list[_Part], gradients: Any) -> _Rule | None:
    """Of a chain as `optax.adafactor` makes it, with any of its parts left out."""
    jax = importlib.import_module("jax")
    left = list(parts)
    second, clip = left.pop(0), _take(left, "clip_by_block_rms")
    last = left.pop().made_of.get("step_size") if left else None
    if not isinstance(last, (int, float)) or last != -1:  # what is traced has no value to compare
        return None
    of = second.made_of
    options: dict[str, float] = {"eps": of["epsilon"]}
    if clip:
        options["clipping_threshold"] = clip.made_of["threshold"]
    lr: Any = 1.0
    while part := _take(left, "scale", "scale_by_schedule", "scale_by_param_block_rms"):
        if part.name != "scale_by_param_block_rms":
            lr = lr * _factor(part)
        elif "min_scale" in options:
            return None
        else:
            options["min_scale"] = part.made_of["min_scale"]
    momentum, decay = _take(left, "ema"), _take(left, "add_decayed_weights")
    if left or any(part.mask is not None for part in (second, *parts) if part is not decay):
        return None
    moments: dict[str, Any] = {}
    if momentum:
        dtype = momentum.made_of["accumulator_dtype"]
        if momentum.made_of["debias"] or (dtype is not None and jax.numpy.finfo(dtype).bits < 32):
            return None
        options["beta1"] = momentum.made_of["decay"]
        moments["exp_avg"] = momentum.state.ema
    if decay:
        if callable(decay.made_of["weight_decay"]):
            return None
        options["weight_decay"] = decay.made_of["weight_decay"]
    state = second.state
    own = {}
    for path, gradient in jax.tree_util.tree_leaves_with_path(gradients):
        dims = _averaged_dims(gradient.shape, of)
        if dims:
            own[name_of(path)] = {"row_mean_dim": float(dims[0]), "column_mean_dim": float(dims[1])}
    estimate = functools.partial(_second_moment, of)
    moments["exp_avg_sq"] = jax.tree.map(estimate, gradients, state.v_row, state.v_col, state.v)
    beta2 = of["decay_rate_fn"](state.count - of["step_offset"], of["decay_rate"])
    numbers = {"lr": lr, "beta2": beta2, "step": state.count + 1}
    return _Rule("optax.adafactor", options, decay.mask if decay else None, moments, numbers, own)


def _second_moment(of: dict[str, Any], gradient: Any, row: Any, column: Any, whole: Any) -> Any:
    """As it is estimated of its factors (src/step/whole_tensor.h)."""
    numpy = importlib.import_module("jax").numpy
    dims = _averaged_dims(gradient.shape, of)
    if dims is None:
        return whole
    by_row, by_column = dims
    mean = numpy.mean(row, axis=by_column - (by_column > by_row), keepdims=True)
    share = row / numpy.maximum(mean, numpy.finfo(row.dtype).tiny)
    return numpy.expand_dims(share, by_row) * numpy.expand_dims(column, by_column)


def _averaged_dims(shape: tuple[int, ...], of: dict[str, Any]) -> tuple[int, int] | None:
    """The dimensions over which rows and columns are means: the largest, and the one after it."""
    numpy = importlib.import_module("numpy")
    if not of["factored"] or len(shape) < 2:
        return None
    order = numpy.argsort(shape)
    if shape[order[-2]] < of["min_dim_size_to_factor"]:
        return None
    return int(order[-1]), int(order[-2])


def _global_norm(tree: Any) -> Any:
    return importlib.import_module("optax").global_norm(tree)
