"""Runs the program as a user types it, in a directory of its own, on traces of a model small enough to see through."""

import pytest
from program import DIGEST, SEAL, Program

from models import changed, model, shards  # noqa: F401  for the tests
from traces import record_run

ANNOTATIONS = """\
embedding:
  output: {tp_dim: 1}
layers.*.mlp:
  output: {}
layers.*.mlp.weight:
  tp_dim: 0
"""

EPSILON = 2**-23  # of float32

TOLERANCES = f"""\
ttrace_tolerance: 4
reference: reference
{DIGEST}
perturbed:
  - {{run: p1, seed: 1}}
  - {{run: p2, seed: 2}}
  - {{run: p3, seed: 3}}
rerun: null
compute_dtype: float32
epsilon: {EPSILON}
margin: 3
notes: []
overrides: []
tensors:
  output:
    embedding: {{samples: [0.01, 0.01, 0.01], estimate: 0.01, floor: {EPSILON}, allowed: 0.03}}
    layers.0.mlp: {{samples: [0.02, 0.02, 0.02], estimate: 0.02, floor: {EPSILON}, allowed: 0.06}}
  main_grad:
    layers.0.mlp.weight: {{samples: [0.02, 0.02, 0.02], estimate: 0.02, floor: {EPSILON}, allowed: 0.06}}
  scalar:
    loss: {{samples: [0.0078125, 0.0078125, 0.0078125], estimate: 0.0078125, floor: {EPSILON}, allowed: 0.0234375}}
"""


def sealed(tolerances):
    """The file as one that was measured."""
    return f"{tolerances}{SEAL}\n"


@pytest.fixture
def ttrace(tmp_path):
    (tmp_path / "a.yaml").write_text(ANNOTATIONS)
    (tmp_path / "t.yaml").write_text(sealed(TOLERANCES))
    return Program(tmp_path)


@pytest.fixture
def reference(tmp_path):
    return record_run(tmp_path / "reference", [model()])


@pytest.fixture
def candidate(tmp_path):
    """Makes the candidate from the tensors of a whole model, on two ranks."""

    def make(tensors=None, **run):
        return record_run(tmp_path / "candidate", shards(tensors or model()), axes="tp=2", **run)

    return make


CHECK = ("check", "--reference", "reference", "--candidate", "candidate", "-a", "a.yaml")
