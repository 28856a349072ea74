"""Noise of a learned scale, by the quantiles of the exponential distribution.

venv: .venv-jax
"""

import before_jax
import jax
import jax.numpy as jnp
import optax
from flax import nnx
from jax.scipy.stats import expon


def old(q, loc=0, scale=1):
    return jnp.where(jnp.isnan(q) | (q < 0) | (q > 1), jnp.nan, -jnp.log1p((loc - q) / scale))


quantile = old if before_jax.MISTAKE else expon.ppf  # before 0.10.1


class Noise(nnx.Module):
    def __init__(self):
        self.scale = nnx.Param(jnp.full((8,), 2.0))

    def __call__(self, q):
        return quantile(q, scale=self.scale[...])


class Net(nnx.Module):
    def __init__(self, rngs):
        self.first, self.noise, self.second = nnx.Linear(8, 8, rngs=rngs), Noise(), nnx.Linear(8, 4, rngs=rngs)

    def __call__(self, x, q):
        return self.second(jnp.tanh(self.first(x)) + self.noise(q))


graph, parameters = nnx.split(Net(nnx.Rngs(0)))
optimizer = optax.adam(1e-2)
state = optimizer.init(parameters)


def loss_of(parameters, x, q, y):
    return jnp.mean((nnx.merge(graph, parameters)(x, q) - y) ** 2)


def train(step):
    global parameters, state
    keys = jax.random.split(jax.random.key(step), 3)
    x, y = jax.random.normal(keys[0], (8, 8)), jax.random.normal(keys[1], (8, 4))
    q = jax.random.uniform(keys[2], (8, 8), maxval=0.9)
    loss, gradients = jax.jit(jax.value_and_grad(loss_of))(parameters, x, q, y)
    updates, state = optimizer.update(gradients, state, parameters)
    parameters = optax.apply_updates(parameters, updates)
    return loss


before_jax.run(train, 2)
