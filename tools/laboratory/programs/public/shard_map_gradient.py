"""Gradients by sample, clipped each, of samples that devices share out (as differentially private training has it).

venv: .venv-jax
"""

import before_jax
import jax
import jax.numpy as jnp
import optax
from flax import nnx
from jax.sharding import PartitionSpec as P


class Net(nnx.Module):
    def __init__(self, rngs):
        self.first, self.second = nnx.Linear(8, 16, rngs=rngs), nnx.Linear(16, 4, rngs=rngs)

    def __call__(self, x):
        return self.second(jnp.tanh(self.first(x)))


graph, parameters = nnx.split(Net(nnx.Rngs(0)))
optimizer = optax.sgd(0.1)
state = optimizer.init(parameters)


def loss_of(parameters, x, y):
    return jnp.mean((nnx.merge(graph, parameters)(x) - y) ** 2)


def clipped(parameters, x, y):
    """Of a sample."""
    loss, gradient = jax.value_and_grad(loss_of)(parameters, x[None], y[None])
    norm = optax.global_norm(gradient)
    return loss, jax.tree.map(lambda one: one * jnp.minimum(1.0, 0.5 / norm), gradient)


def mean(parameters, x, y):
    if not before_jax.MISTAKE:  # weights that vary from device to device: their gradients aren't added up in here
        parameters = jax.lax.pcast(parameters, "data", to="varying")
    losses, gradients = jax.vmap(clipped, (None, 0, 0))(parameters, x, y)
    of_all = lambda one: jax.lax.pmean(one.mean(0), "data")  # noqa: E731
    return of_all(losses), jax.tree.map(of_all, gradients)


def train(step):
    global parameters, state
    keys = jax.random.split(jax.random.key(step), 2)
    x, y = jax.random.normal(keys[0], (8, 8)), jax.random.normal(keys[1], (8, 4))
    sharded = jax.shard_map(mean, mesh=before_jax.MESH, in_specs=(P(), P("data"), P("data")), out_specs=(P(), P()))
    loss, gradients = jax.jit(sharded)(parameters, x, y)
    updates, state = optimizer.update(gradients, state, parameters)
    parameters = optax.apply_updates(parameters, updates)
    return loss


before_jax.run(train, 2)
