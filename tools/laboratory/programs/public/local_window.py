"""Attention in a window, without a mask of its own.

venv: .venv-jax
"""

import inspect

import before_jax
import jax
import jax.numpy as jnp
import optax
from flax import nnx
from jax._src.nn import functions

if before_jax.MISTAKE:  # as before 0.8.2
    released = " and local_window_size is None:\n    return logits"
    code = inspect.getsource(functions._apply_masks)
    assert released in code
    exec(code.replace(released, ":\n    return logits"), vars(functions))


class Attention(nnx.Module):
    def __init__(self, rngs):
        self.q, self.k, self.v = (nnx.Linear(16, 16, rngs=rngs) for _ in range(3))

    def __call__(self, x):  # [batch, tokens, 16]
        q, k, v = (linear(x).reshape(*x.shape[:2], 2, 8) for linear in (self.q, self.k, self.v))
        return jax.nn.dot_product_attention(q, k, v, local_window_size=2).reshape(x.shape)


class Net(nnx.Module):
    def __init__(self, rngs):
        self.attention, self.head = Attention(rngs), nnx.Linear(16, 4, rngs=rngs)

    def __call__(self, x):
        return self.head(x + self.attention(x))


graph, parameters = nnx.split(Net(nnx.Rngs(0)))
optimizer = optax.adam(1e-2)
state = optimizer.init(parameters)


def loss_of(parameters, x, y):
    return jnp.mean((nnx.merge(graph, parameters)(x) - y) ** 2)


def train(step):
    global parameters, state
    keys = jax.random.split(jax.random.key(step), 2)
    x, y = jax.random.normal(keys[0], (4, 10, 16)), jax.random.normal(keys[1], (4, 10, 4))
    loss, gradients = jax.jit(jax.value_and_grad(loss_of))(parameters, x, y)
    updates, state = optimizer.update(gradients, state, parameters)
    parameters = optax.apply_updates(parameters, updates)
    return loss


before_jax.run(train, 2)
