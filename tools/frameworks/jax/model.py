"""A small transformer in JAX, as one writes it for one device, and by hand for a mesh of data x model.

Parameters are a dict by name. Both forms call `taps` with what they compute (ttrace.jax.Taps)."""

from collections import OrderedDict
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy
from jax.sharding import PartitionSpec as P


@dataclass(frozen=True)
class Sizes:
    layers: int = 2
    vocabulary: int = 64
    width: int = 32
    heads: int = 4
    hidden: int = 64
    batch: int = 8
    length: int = 16


def initial_parameters(sizes, dtype):
    """NumPy arrays, the same on any mesh, in order of use."""
    shapes = {"embedding.weight": (sizes.vocabulary, sizes.width)}
    for layer in range(sizes.layers):
        name, head = f"layers.{layer}", sizes.width // sizes.heads
        shapes |= {
            f"{name}.attention_norm.weight": (sizes.width,),
            f"{name}.attention.qkv": (sizes.width, 3, sizes.heads, head),
            f"{name}.attention.out": (sizes.heads, head, sizes.width),
            f"{name}.mlp_norm.weight": (sizes.width,),
            f"{name}.mlp.up": (sizes.width, sizes.hidden),
            f"{name}.mlp.down": (sizes.hidden, sizes.width),
        }
    shapes |= {"norm.weight": (sizes.width,), "head.weight": (sizes.width, sizes.vocabulary)}
    random = numpy.random.default_rng(0)
    noise = {name: random.normal(size=shape) for name, shape in shapes.items()}
    return OrderedDict(
        (name, (1 + 0.1 * values if "norm" in name else 0.15 * values).astype(dtype)) for name, values in noise.items()
    )


def partition_of(name):
    """How the mesh splits a parameter: Megatron's way, by heads and hidden units."""
    for suffix, spec in {
        "attention.qkv": P(None, None, "model", None),
        "attention.out": P("model", None, None),
        "mlp.up": P(None, "model"),
        "mlp.down": P("model", None),
    }.items():
        if name.endswith(suffix):
            return spec
    return P()


def partition_of_value(name):
    """The same of what is computed."""
    if name.endswith(("attention.heads",)):
        return P("data", None, "model", None)
    if name.endswith("mlp.hidden"):
        return P("data", None, "model")
    return P("data", None, None)


def norm(x, weight):
    wide = x.astype(jnp.float32)
    scaled = wide * jax.lax.rsqrt(jnp.mean(wide * wide, axis=-1, keepdims=True) + 1e-6)
    return scaled.astype(x.dtype) * weight


def attention(x, qkv, out):
    """The heads' results, and what they add to the residual stream: of all heads that the weights hold."""
    query, key, value = (jnp.einsum("bsd,dhk->bshk", x, qkv[:, part]) for part in range(3))
    scores = jnp.einsum("bqhk,bshk->bhqs", query, key).astype(jnp.float32) / query.shape[-1] ** 0.5
    future = jnp.triu(jnp.ones(scores.shape[-2:], dtype=bool), 1)
    weights = jax.nn.softmax(jnp.where(future, -1e9, scores)).astype(x.dtype)
    heads = jnp.einsum("bhqs,bshk->bqhk", weights, value)
    return heads, lambda heads: jnp.einsum("bshk,hkd->bsd", heads, out)


def forward(parameters, tokens, factors, taps, reduce=lambda name, x: x, enter=lambda x: x):
    """Logits. `factors` multiply the embedding. On a mesh, `reduce` adds up what the devices of the model axis hold of
    the sum of that name, and `enter` marks where what they all have goes into what each has a part of."""
    rows = parameters["embedding.weight"][tokens]
    x = taps("embedding", (rows.astype(jnp.float32) * factors).astype(rows.dtype))
    layers = 1 + max(int(name.split(".")[1]) for name in parameters if name.startswith("layers."))
    for layer in range(layers):
        name = f"layers.{layer}"
        of = {key.removeprefix(f"{name}."): value for key, value in parameters.items() if key.startswith(f"{name}.")}
        y = taps(f"{name}.attention_norm", norm(x, of["attention_norm.weight"]))
        heads, project = attention(enter(y), of["attention.qkv"], of["attention.out"])
        x = x + taps(f"{name}.attention", reduce(f"{name}.attention", project(taps(f"{name}.attention.heads", heads))))
        y = taps(f"{name}.mlp_norm", norm(x, of["mlp_norm.weight"]))
        hidden = taps(f"{name}.mlp.hidden", jax.nn.gelu(enter(y) @ of["mlp.up"]))
        x = x + taps(f"{name}.mlp", reduce(f"{name}.mlp", hidden @ of["mlp.down"]))
    x = taps("norm", norm(x, parameters["norm.weight"]))
    return taps("head", x @ parameters["head.weight"])


def cross_entropy(logits, labels):
    """The mean over all tokens given."""
    logits = logits.astype(jnp.float32)
    chosen = jnp.take_along_axis(logits, labels[..., None], axis=-1)[..., 0]
    return jnp.mean(jax.nn.logsumexp(logits, axis=-1) - chosen)
