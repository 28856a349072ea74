"""What the programs of JAX have in common: they train on as many devices as there are, recorded where ttrace asks."""

import contextlib
import os
import sys

os.environ["JAX_PLATFORMS"] = "cpu"

import jax

import ttrace
from ttrace.jax import CallRecorder

MISTAKE = os.environ.get("MISTAKE", "")
MESH = jax.sharding.Mesh(jax.devices(), ("data",))


def run(train, iterations: int) -> None:
    """`train(step)`, each in an iteration."""
    recorder = CallRecorder(MESH, compute_dtype="float32") if ttrace.is_collected() else None
    with recorder or contextlib.nullcontext():
        for step in range(iterations):
            with recorder.iteration(step) if recorder else contextlib.nullcontext():
                print(f"step {step} loss {train(step)}", file=sys.stderr)
