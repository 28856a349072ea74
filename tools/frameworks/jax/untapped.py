"""Trains a small language model as users of flax and optax write it: no line of the model knows of ttrace.

python untapped.py --model nnx|linen|functions --how jit|shard_map [--devices 2] [--optimizer NAME] [--bug NAME]
"""

import argparse
import contextlib
import os

BUGS = {
    "no-average": "gradients are not averaged over the devices",
    "sum-for-mean": "gradients are added up over the devices, not averaged",
    "local-clip": "each device clips by the norm of its own gradients, before they are averaged",
    "eps": "the norms of the second block have another eps",
    "loss-psum": "the loss is added up over the devices before it is differentiated",
    "row": "the optimizer leaves out one row of one matrix (of linen)",
    "step": "the optimizer's step is 1.001 times as large as its options say",
    "decay-rate": "Adafactor's second moment decays by another exponent",
    "threshold": "Adafactor does not clip its update",
}


def parse_options(words=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="nnx", choices=["nnx", "linen", "functions"])
    parser.add_argument("--how", default="jit", choices=["jit", "shard_map", "shard_map-vma"])
    parser.add_argument("--devices", type=int, default=1)
    parser.add_argument("--optimizer", default="adamw")
    parser.add_argument("--bug", default="", help="; ".join(f"{name}: {what}" for name, what in BUGS.items()))
    parser.add_argument("--iterations", type=int, default=1)
    return parser.parse_args(words)


os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"

import flax.linen as nn  # noqa: E402 (after the number of devices is set)
import jax  # noqa: E402
import numpy  # noqa: E402
import optax  # noqa: E402
import plain  # noqa: E402
from flax import nnx  # noqa: E402
from jax.sharding import NamedSharding  # noqa: E402
from jax.sharding import PartitionSpec as P  # noqa: E402

import ttrace  # noqa: E402
from ttrace.jax import CallRecorder  # noqa: E402

VOCABULARY, WIDTH = 64, 32


class NnxBlock(nnx.Module):
    def __init__(self, width, rngs, epsilon):
        self.norm = nnx.LayerNorm(width, rngs=rngs, epsilon=epsilon)
        self.up, self.down = nnx.Linear(width, 4 * width, rngs=rngs), nnx.Linear(4 * width, width, rngs=rngs)

    def __call__(self, x):
        return x + self.down(jax.nn.gelu(self.up(self.norm(x))))


class NnxModel(nnx.Module):
    def __init__(self, rngs, epsilon):
        self.embed = nnx.Embed(VOCABULARY, WIDTH, rngs=rngs)
        self.blocks = nnx.List([NnxBlock(WIDTH, rngs, 1e-6), NnxBlock(WIDTH, rngs, epsilon)])
        self.head = nnx.Linear(WIDTH, VOCABULARY, use_bias=False, rngs=rngs)

    def __call__(self, tokens):
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


class LinenBlock(nn.Module):
    epsilon: float

    @nn.compact
    def __call__(self, x):
        up = nn.gelu(nn.Dense(4 * WIDTH, name="up")(nn.LayerNorm(epsilon=self.epsilon, name="norm")(x)))
        return x + nn.Dense(WIDTH, name="down")(up)


class LinenModel(nn.Module):
    epsilon: float  # of the last block

    @nn.compact
    def __call__(self, tokens):
        x = nn.Embed(VOCABULARY, WIDTH, name="embed")(tokens)
        x = LinenBlock(name="block0", epsilon=1e-6)(x)
        x = LinenBlock(name="block1", epsilon=self.epsilon)(x)
        return nn.Dense(VOCABULARY, use_bias=False, name="head")(x)


def model(options):
    """The parameters, and the logits as a function of them and the tokens."""
    epsilon = 1e-3 if options.bug == "eps" else 1e-6
    if options.model == "functions":
        return plain.initial_parameters(VOCABULARY, WIDTH, jax.random.key(0)), plain.forward
    if options.model == "linen":
        linen = LinenModel(epsilon)
        parameters = linen.init(jax.random.key(0), numpy.zeros((1, 16), "int32"))["params"]
        return parameters, lambda parameters, tokens: linen.apply({"params": parameters}, tokens)
    graph, state = nnx.split(NnxModel(nnx.Rngs(0), epsilon))
    return state, lambda state, tokens: nnx.merge(graph, state)(tokens)


def chain(name, bug):
    matrices = lambda parameters: jax.tree.map(lambda one: one.ndim > 1, parameters)  # noqa: E731
    warmup = optax.linear_schedule(1e-3, 3e-3, 4)
    return {
        "sgd": lambda: optax.sgd(0.1),
        "momentum": lambda: optax.sgd(0.1, momentum=0.9, nesterov=True),
        "adam": lambda: optax.adam(1e-3),
        "adamw": lambda: optax.adamw(1e-3),
        "lion": lambda: optax.lion(1e-3, weight_decay=0.1),
        "adafactor": lambda: optax.adafactor(
            0.01,
            min_dim_size_to_factor=16,
            decay_rate=0.79 if bug == "decay-rate" else 0.8,
            clipping_threshold=None if bug == "threshold" else 0.5,
            momentum=0.9,
            weight_decay_rate=1e-4,
            weight_decay_mask=matrices,
        ),
        "clipped": lambda: optax.chain(optax.clip_by_global_norm(0.5), optax.adamw(warmup, mask=matrices)),
    }[name]()


def mesh_of(options):
    return jax.sharding.Mesh(jax.devices()[: options.devices], ("data",))


def train(options, recorder=None):
    parameters, logits = model(options)
    optimizer, is_manual, mesh = chain(options.optimizer, options.bug), options.how != "jit", mesh_of(options)

    def loss_of(parameters, tokens, labels):
        losses = optax.softmax_cross_entropy_with_integer_labels(logits(parameters, tokens), labels)
        if options.bug == "loss-psum":
            return jax.lax.psum(losses.mean(), "data")
        return jax.lax.pmean(losses.mean(), "data") if options.how == "shard_map-vma" else losses.mean()

    def step(parameters, state, tokens, labels):
        loss, gradients = jax.value_and_grad(loss_of)(parameters, tokens, labels)
        if options.bug == "local-clip":
            gradients, _ = optax.clip_by_global_norm(0.5).update(gradients, optax.EmptyState())
        if options.bug == "sum-for-mean":
            gradients = jax.tree.map(lambda gradient: jax.lax.psum(gradient, "data"), gradients)
        elif options.how == "shard_map" and options.bug != "no-average":
            gradients = jax.lax.pmean(gradients, "data")
        updates, state = optimizer.update(gradients, state, parameters)
        if options.bug == "step":
            updates = jax.tree.map(lambda update: update * 1.001, updates)
        if options.bug == "row":
            updates["block1"]["up"]["kernel"] = updates["block1"]["up"]["kernel"].at[5].set(0)
        return optax.apply_updates(parameters, updates), state, jax.lax.pmean(loss, "data") if is_manual else loss

    if is_manual:
        specs = (P(), P(), P("data"), P("data"))
        is_checked = options.how == "shard_map-vma"
        step = jax.shard_map(step, mesh=mesh, in_specs=specs, out_specs=(P(), P(), P()), check_vma=is_checked)
    step, state = jax.jit(step), optimizer.init(parameters)
    random = numpy.random.default_rng(1)
    for iteration in range(options.iterations):
        words = random.integers(VOCABULARY, size=(8, 17), dtype="int32")
        batch = [jax.device_put(part, NamedSharding(mesh, P("data"))) for part in (words[:, :-1], words[:, 1:])]
        with recorder.iteration(iteration) if recorder else contextlib.nullcontext():
            parameters, state, loss = step(parameters, state, *batch)
            print(f"step {iteration} loss {float(loss)}")


if __name__ == "__main__":
    options = parse_options()
    if ttrace.is_collected():
        with CallRecorder(mesh_of(options), functions=[plain], compute_dtype="float32") as recorder:
            train(options, recorder)
    else:
        train(options)
