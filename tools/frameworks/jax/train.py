"""Trains the model of model.py by one device or by a mesh of them, and records it below `ttrace collect`.

python train.py                                      one device
python train.py --mesh 2,2                           data 2, model 2: jit places the collectives (jax.sharding)
python train.py --mesh 2,2 --manual                  ... shard_map, with collectives written by hand
python train.py --mesh 2,2 --manual --bug NAME       ... with one of them wrong
"""

import argparse
import contextlib
import math
import os
from collections import OrderedDict

BUGS = {
    "forgotten-psum": "what the devices of the model axis hold of an MLP's result is not added up",
    "transposed-psum": "psum adds up again in backward, where every device has the whole gradient",
    "sum-for-mean": "gradients are added up over the data axis, not averaged",
}


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mesh", default="1,1", help="devices of the data axis and of the model axis")
    parser.add_argument("--manual", action="store_true", help="shard_map, with collectives written by hand")
    parser.add_argument("--bug", choices=BUGS, help="; ".join(f"{name}: {what}" for name, what in BUGS.items()))
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16"])
    parser.add_argument("--iterations", type=int, default=1)
    options = parser.parse_args()
    if options.bug and not options.manual:
        parser.error("--bug needs --manual")
    options.mesh = tuple(map(int, options.mesh.split(",")))
    return options


OPTIONS = parse_options()
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={math.prod(OPTIONS.mesh)}"

import jax  # noqa: E402 (after the number of its devices is set)
import numpy  # noqa: E402
from jax.sharding import NamedSharding  # noqa: E402
from jax.sharding import PartitionSpec as P  # noqa: E402
from model import Sizes, cross_entropy, forward, initial_parameters, partition_of, partition_of_value  # noqa: E402

import ttrace  # noqa: E402
from ttrace.jax import MeshRecorder, Taps  # noqa: E402

LEARNING_RATE = 0.1
BATCH = (P("data"), P("data"), P("data"))  # tokens, labels, factors


def outputs_and_gradients(parameters, probes, tokens, labels, factors, **collectives):
    """What was computed, the loss among it, and the gradients of parameters and probes."""

    def loss(parameters, probes):
        taps = Taps(probes)
        value = cross_entropy(forward(parameters, tokens, factors, taps, **collectives), labels)
        taps("loss", value)
        return value, taps.values

    (_, values), gradients = jax.value_and_grad(loss, (0, 1), has_aux=True)(parameters, probes)
    return values, *gradients


@jax.custom_vjp
def reduce(x):
    """Adds up over the model axis. All devices have the gradient of the sum, which is that of each term."""
    return jax.lax.psum(x, "model")


reduce.defvjp(lambda x: (reduce(x), None), lambda _, gradient: (gradient,))


@jax.custom_vjp
def enter(x):
    """What all devices have goes into what each has a part of; the parts' gradients add up."""
    return x


enter.defvjp(lambda x: (x, None), lambda _, gradient: (jax.lax.psum(gradient, "model"),))


def reductions(bug):
    if bug == "forgotten-psum":
        return lambda name, x: x if name == "layers.0.mlp" else reduce(x)
    if bug == "transposed-psum":
        return lambda name, x: jax.lax.psum(x, "model") if name == "layers.0.mlp" else reduce(x)
    return lambda name, x: reduce(x)


def by_hand(mesh, bug, probes):
    """`outputs_and_gradients` of a mesh, each device with its part of everything."""

    def run(*arguments):
        collectives = dict(reduce=reductions(bug), enter=enter)
        values, gradients, of_values = outputs_and_gradients(*arguments, **collectives)
        over_data = jax.lax.psum if bug == "sum-for-mean" else jax.lax.pmean
        values["loss"] = jax.lax.pmean(values["loss"], "data")
        data = jax.lax.axis_size("data")  # the loss is the mean of theirs
        of_values = OrderedDict((name, gradient / data) for name, gradient in of_values.items())
        gradients = OrderedDict((name, over_data(gradient, "data")) for name, gradient in gradients.items())
        return values, gradients, of_values

    of_parameters = OrderedDict((name, partition_of(name)) for name in initial_parameters(Sizes(), "float32"))
    of_probes = OrderedDict((name, partition_of_value(name)) for name in probes)
    return jax.shard_map(
        run,
        mesh=mesh,
        in_specs=(of_parameters, of_probes, *BATCH),
        out_specs=(of_probes | OrderedDict(loss=P()), of_parameters, of_probes),
        check_vma=False,  # it knows nothing of what `reduce` and `enter` do in backward
    )


def sgd(parameters, gradients):
    """The parameters after the step, and what it added."""
    updated = jax.tree.map(lambda parameter, gradient: parameter - LEARNING_RATE * gradient, parameters, gradients)
    return updated, jax.tree.map(lambda after, before: after - before, updated, parameters)


def train(mesh, recorder):
    sizes, dtype = Sizes(), jax.numpy.dtype(OPTIONS.dtype)

    def place(value, spec):
        return jax.device_put(value, NamedSharding(mesh, spec))

    parameters = initial_parameters(sizes, dtype)
    parameters = OrderedDict((name, place(value, partition_of(name))) for name, value in parameters.items())
    random = numpy.random.default_rng(1)
    for iteration in range(OPTIONS.iterations):
        words = random.integers(sizes.vocabulary, size=(sizes.batch, sizes.length + 1), dtype="int32")
        batch = [place(words[:, :-1], BATCH[0]), place(words[:, 1:], BATCH[1])]
        shape = (sizes.batch, sizes.length, sizes.width)
        factors = (
            recorder.factors("embedding", shape, iteration=iteration) if recorder else numpy.ones(shape, "float32")
        )
        batch.append(place(factors, BATCH[2]))

        shapes = jax.eval_shape(outputs_and_gradients, parameters, {}, *batch)[0]
        probes = OrderedDict(
            (name, place(numpy.zeros(value.shape, value.dtype), partition_of_value(name)))
            for name, value in shapes.items()
            if name != "loss"
        )
        step = by_hand(mesh, OPTIONS.bug, probes) if OPTIONS.manual else outputs_and_gradients
        values, gradients, of_values = jax.jit(step)(parameters, probes, *batch)
        updated, deltas = jax.jit(sgd)(parameters, gradients)
        if recorder and recorder.records(iteration):
            record(recorder, iteration, parameters, batch[0], values, of_values, gradients, deltas, updated)
        parameters = updated
        print(f"step {iteration} loss {float(values['loss'])}")


def record(recorder, iteration, parameters, tokens, values, of_values, gradients, deltas, updated):
    """In order of execution."""
    for name, value in parameters.items():
        recorder.record(name, value, kind="param", iteration=iteration)
    recorder.record("embedding", tokens, kind="input", iteration=iteration)
    for name in of_values:
        recorder.record(name, values[name], iteration=iteration)
    recorder.record("loss", values["loss"], kind="scalar", iteration=iteration, microbatch=0)
    for name in reversed(of_values):
        recorder.record(name, of_values[name], kind="grad_output", iteration=iteration)
    for name in parameters:
        recorder.record(name, gradients[name], kind="main_grad", iteration=iteration)
        recorder.record(name, deltas[name], kind="param_delta", iteration=iteration)
        recorder.record(name, updated[name], kind="param_after", iteration=iteration)
    sgd = "torch.optim.sgd.SGD"  # whose rule it is
    recorder.optimizer_step(sgd, list(parameters), {"lr": LEARNING_RATE}, iteration=iteration, step=iteration + 1)


if __name__ == "__main__":
    mesh = jax.make_mesh(OPTIONS.mesh, ("data", "model"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
    is_recorded = ttrace.is_collected()
    with MeshRecorder(mesh, compute_dtype=OPTIONS.dtype) if is_recorded else contextlib.nullcontext() as recorder:
        train(mesh, recorder)
