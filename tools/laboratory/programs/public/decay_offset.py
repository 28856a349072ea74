"""Adafactor with an offset of its decay, as for a finetuning, from new states.

venv: .venv-jax
"""

import before_jax
import jax
import jax.numpy as jnp
import optax
from flax import nnx
from optax._src import factorized

decay_rate = factorized._decay_rate_pow


def clamped(i, exponent=0.8):
    return decay_rate(jnp.maximum(i, 0), exponent)


if not before_jax.MISTAKE:  # the change: steps before the offset are as the first behind it
    rms = factorized.scale_by_factored_rms
    rms.__defaults__ = tuple(clamped if one is decay_rate else one for one in rms.__defaults__)


class Net(nnx.Module):
    def __init__(self, rngs):
        self.first, self.second = nnx.Linear(8, 16, rngs=rngs), nnx.Linear(16, 4, rngs=rngs)

    def __call__(self, x):
        return self.second(jnp.tanh(self.first(x)))


graph, parameters = nnx.split(Net(nnx.Rngs(0)))
optimizer = optax.adafactor(1e-2, decay_offset=1)
state = optimizer.init(parameters)


def loss_of(parameters, x, y):
    return jnp.mean((nnx.merge(graph, parameters)(x) - y) ** 2)


def train(step):
    global parameters, state
    keys = jax.random.split(jax.random.key(step), 2)
    x, y = jax.random.normal(keys[0], (8, 8)), jax.random.normal(keys[1], (8, 4))
    loss, gradients = jax.jit(jax.value_and_grad(loss_of))(parameters, x, y)
    updates, state = optimizer.update(gradients, state, parameters)
    parameters = optax.apply_updates(parameters, updates)
    return loss


before_jax.run(train, 2)
