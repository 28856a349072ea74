"""tunix's own PeftTrainer and its Llama 3, small, on CPU devices of one process.

python train.py [--mesh FSDP,TP] [--mistake NAME]
"""

import argparse
import contextlib
import os

MISTAKES = {
    "eps": "the model's norms have another eps",
    "mask": "the loss counts the tokens of the prompt, too",
    "lr": "the learning rate is 1.001 times as large",
}


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mesh", default="1,1", help="devices along fsdp and tp")
    parser.add_argument("--mistake", default="", help="; ".join(f"{name}: {what}" for name, what in MISTAKES.items()))
    return parser.parse_args()


os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=4"

import jax  # noqa: E402 (after the number of devices is set)
import jax.numpy as jnp  # noqa: E402
import numpy  # noqa: E402
import optax  # noqa: E402
from flax import nnx  # noqa: E402
from tunix.models.llama3.model import Llama3, ModelConfig  # noqa: E402
from tunix.sft.hooks import TrainingHooks  # noqa: E402
from tunix.sft.peft_trainer import PeftTrainer, TrainingConfig, TrainingInput  # noqa: E402

import ttrace  # noqa: E402
from ttrace.jax import CallRecorder  # noqa: E402

VOCABULARY, LENGTH, BATCH, PROMPT, STEPS = 128, 24, 8, 6, 2


class Iterations(TrainingHooks):
    """A step is an iteration, until the next one begins: the trainer says that it has ended one step later."""

    def __init__(self, recorder):
        self._recorder, self._open, self._number = recorder, contextlib.ExitStack(), 0

    def on_train_step_start(self, train_ctx):
        self._open.close()
        self._open.enter_context(self._recorder.iteration(self._number))
        self._number += 1

    def on_train_end(self, train_ctx):
        self._open.close()

    def on_train_start(self, train_ctx):
        pass

    def on_train_step_end(self, train_ctx, train_step, train_loss):
        print(f"step {train_step} loss {train_loss}")

    def on_eval_step_start(self, train_ctx):
        pass

    def on_eval_step_end(self, train_ctx, eval_loss):
        pass


def batches(options):
    random = numpy.random.default_rng(1)
    for _ in range(STEPS):
        tokens = random.integers(VOCABULARY, size=(BATCH, LENGTH), dtype="int32")
        mask = numpy.ones((BATCH, LENGTH), "int32")
        if options.mistake != "mask":
            mask[:, :PROMPT] = 0
        yield TrainingInput(input_tokens=tokens, input_mask=mask)


def model_inputs(batch):
    causal = jnp.tril(jnp.ones((LENGTH, LENGTH), bool))
    return {
        "input_tokens": batch.input_tokens,
        "input_mask": batch.input_mask,
        "positions": jnp.broadcast_to(jnp.arange(LENGTH), (BATCH, LENGTH)),
        "attention_mask": jnp.broadcast_to(causal, (BATCH, LENGTH, LENGTH)),
    }


def make_model(options, mesh):
    eps = 1e-3 if options.mistake == "eps" else 1e-5
    heads = {"num_heads": 4, "head_dim": 16, "num_kv_heads": 4}
    config = ModelConfig(
        num_layers=2, vocab_size=VOCABULARY, embed_dim=64, hidden_dim=128, rope_theta=10_000, norm_eps=eps, **heads
    )

    @nnx.jit
    def make():
        model = Llama3(config, rngs=nnx.Rngs(0))
        state = nnx.state(model)
        leaves, tree = jax.tree.flatten(state)
        keys = jax.random.split(jax.random.key(1), len(leaves))  # for weights that tunix leaves zero, to be loaded
        drawn = [one + 0.05 * jax.random.normal(key, one.shape) for one, key in zip(leaves, keys, strict=True)]
        state = jax.tree.unflatten(tree, drawn)
        nnx.update(model, jax.lax.with_sharding_constraint(state, nnx.get_partition_spec(state)))
        return model

    with mesh:
        return make()


def main():
    options = parse_options()
    sizes = tuple(map(int, options.mesh.split(",")))
    count = sizes[0] * sizes[1]
    mesh = jax.sharding.Mesh(numpy.array(jax.devices()[:count]).reshape(sizes), ("fsdp", "tp"))
    lr = 1e-3 * (1.001 if options.mistake == "lr" else 1)
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(optax.linear_schedule(lr, 2 * lr, STEPS)))
    trainer = PeftTrainer(make_model(options, mesh), optimizer, TrainingConfig(eval_every_n_steps=100, max_steps=STEPS))
    trainer = trainer.with_gen_model_input_fn(model_inputs)
    with mesh, contextlib.ExitStack() as stack:
        if ttrace.is_collected():
            recorder = stack.enter_context(CallRecorder(mesh, compute_dtype="float32"))
            trainer.with_training_hooks(Iterations(recorder))
        trainer.train(batches(options))


if __name__ == "__main__":
    main()
