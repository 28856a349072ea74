"""A training run on two ranks, made up: the outputs of each layer, and their gradients, are split over
them."""

import json
from dataclasses import replace

import numpy
from forged import LAYERS, training_run

from traces import record_run

ANNOTATIONS = """\
layers.*.mlp:
  output: {tp_dim: 1}
"""
WRONG_LAYER = 2
WIDTH = 8

SOURCES = {
    "files": ["src/odd name%.py", "/usr/lib/library.py"],
    "forwards": {"model.Mlp": [0, 106]},
    "calls": {"layers.#.mlp": [1, 17]},
}


def seed_of(seed):
    return json.dumps({"command": ["python", "train.py"], **({"perturb_seed": seed} if seed else {})})


def record_reference(ttrace):
    """A reference and its tolerances, which the program itself estimates."""
    for name, seed in (("reference", 0), ("p1", 1), ("p2", 2), ("p3", 3), ("again", 0)):
        record_run(ttrace.directory / name, [training_run(seed)], provenance=seed_of(seed))
    perturbed = ("--perturbed", "p1", "p2", "p3", "--rerun", "again")
    ttrace("estimate-tolerance", "-o", "t.yaml", "--reference", "reference", *perturbed, code=0)
    (ttrace.directory / "a.yaml").write_text(ANNOTATIONS)


def record_candidate(ttrace, tensors, **facts):
    """`facts` are said by its provenance."""

    def part(tensor, rank):
        if tensor.kind not in ("output", "grad_output"):
            return tensor
        return tensor.with_values(numpy.split(tensor.values, 2, axis=1)[rank])

    ranks = [[part(tensor, rank) for tensor in tensors] for rank in range(2)]
    return record_run(ttrace.directory / "candidate", ranks, axes="tp=2", provenance=json.dumps(facts))


def wrong_half():
    """A correct run, but for the second rank's half of one layer's output, and what comes after it."""

    def spoil(tensor):
        values = tensor.values.copy()
        if tensor.name == f"layers.{WRONG_LAYER}.mlp" and tensor.kind == "output":
            values[:, WIDTH // 2 :] *= 1.05
        elif tensor.name == f"layers.{LAYERS - 1}.mlp" and tensor.kind in ("input", "output"):
            values *= 1.01
        return replace(tensor, values=values.astype("float32"))

    return [spoil(tensor) for tensor in training_run(4)]


CHECK = ("check", "--reference", "reference", "--candidate", "candidate", "-a", "a.yaml", "-t", "t.yaml")
FILES = ("--html", "page.html", "--json", "report.json", "--csv", "all.csv")
