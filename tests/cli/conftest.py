"""Runs the program as a user types it, in a directory of its own, on traces of a model small enough to see through."""

import subprocess

import pytest

from models import changed, model, shards  # noqa: F401  for the tests
from traces import PROGRAM, record_run

ANNOTATIONS = """\
embedding:
  output: {tp_dim: 1}
layers.*.mlp:
  output: {}
layers.*.mlp.weight:
  tp_dim: 0
"""

TOLERANCES = """\
ttrace_tolerance: 1
reference: reference
perturbed:
  - {run: p1, seed: 1}
  - {run: p2, seed: 2}
  - {run: p3, seed: 3}
rerun: null
compute_dtype: bfloat16
epsilon: 0.0078125
margin: 3
notes: []
overrides: []
tensors:
  output:
    embedding: {samples: [0.01, 0.01, 0.01], estimate: 0.01, floor: 0.0078125, allowed: 0.03}
    layers.0.mlp: {samples: [0.02, 0.02, 0.02], estimate: 0.02, floor: 0.0078125, allowed: 0.06}
  main_grad:
    layers.0.mlp.weight: {samples: [0.02, 0.02, 0.02], estimate: 0.02, floor: 0.0078125, allowed: 0.06}
  scalar:
    loss: {samples: [0.001, 0.001, 0.001], estimate: 0.001, floor: 0.0078125, allowed: 0.0234375}
"""


class Program:
    def __init__(self, directory):
        self.directory = directory

    def __call__(self, *words, code):
        """Runs it and returns (stdout, stderr); `code` is the exit code it must have."""
        result = subprocess.run([PROGRAM, *words], cwd=self.directory, capture_output=True, text=True, timeout=60)
        assert result.returncode == code, f"exit code {result.returncode}\n{result.stdout}\n{result.stderr}"
        return result.stdout, result.stderr

    def refuses(self, *words):
        """The text of the one error line that a run which could not look leaves: nothing else, nowhere else."""
        stdout, stderr = self(*words, code=2)
        assert stdout == ""
        assert stderr.startswith("ttrace: error: ") and stderr.endswith("\n") and stderr.count("\n") == 1, stderr
        return stderr[len("ttrace: error: ") : -1]

    def reports(self, *words, code):
        """The report on stdout; nothing on stderr."""
        stdout, stderr = self(*words, code=code)
        assert stderr == ""
        return stdout


@pytest.fixture
def ttrace(tmp_path):
    (tmp_path / "a.yaml").write_text(ANNOTATIONS)
    (tmp_path / "t.yaml").write_text(TOLERANCES)
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
