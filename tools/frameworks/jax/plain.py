"""A small language model as functions on a dict of arrays."""

import jax
import jax.numpy as jnp


def initial_parameters(vocabulary, width, key):
    keys = iter(jax.random.split(key, 6))
    shapes = {"embed": (vocabulary, width), "up0": (width, 4 * width), "down0": (4 * width, width)}
    shapes |= {"up1": (width, 4 * width), "down1": (4 * width, width), "head": (width, vocabulary)}
    return {name: 0.2 * jax.random.normal(next(keys), shape) for name, shape in shapes.items()}


def norm(x):
    return x * jax.lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + 1e-6)


def block(x, up, down):
    return x + jax.nn.gelu(norm(x) @ up) @ down


def forward(parameters, tokens):
    x = parameters["embed"][tokens]
    for layer in range(2):
        x = block(x, parameters[f"up{layer}"], parameters[f"down{layer}"])
    return norm(x) @ parameters["head"]
