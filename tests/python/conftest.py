"""`import ttrace` from the build tree, on traces of a model small enough to see through."""

import os
import pathlib
import sys

import numpy
import pytest

TESTS = pathlib.Path(__file__).parents[1]
PACKAGE = pathlib.Path(os.environ["TTRACE_BUILD"]).resolve() / "lib" / "python"
sys.path[:0] = [str(PACKAGE), str(TESTS / "cli")]  # the latter: traces

import ttrace  # noqa: E402 (found by the path just set)
from traces import Tensor, bfloat16, record_run  # noqa: E402 (the same)

ANNOTATIONS = """\
mlp.weight:
  tp_dim: 0
"""


def model(factor=1):
    """`factor` is on the outputs of mlp: 1 in the reference."""
    values = numpy.arange(24, dtype="float32").reshape(4, 6)
    tensors = [Tensor("mlp.weight", values, kind="param", microbatch=-1)]
    for microbatch in range(2):
        tensors.append(Tensor("attention", values + microbatch, microbatch=microbatch))
        tensors.append(bfloat16(Tensor("mlp", factor * (values + microbatch), microbatch=microbatch)))
    return tensors


def halves(tensors):
    """Of two ranks, as ANNOTATIONS say."""

    def part(tensor, rank):
        return tensor.with_values(numpy.split(tensor.values, 2)[rank]) if tensor.kind == "param" else tensor

    return [[part(tensor, rank) for tensor in tensors] for rank in range(2)]


@pytest.fixture
def traces(tmp_path, monkeypatch):
    """The directory of a correct and a wrong candidate on two ranks, beside the reference; it is the current one."""
    record_run(tmp_path / "reference", [model()])
    record_run(tmp_path / "correct", halves(model()), axes="tp=2")
    record_run(tmp_path / "candidate", halves(model(factor=2)), axes="tp=2")
    (tmp_path / "gpt.yaml").write_text(ANNOTATIONS)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(autouse=True)
def of_the_build_tree():
    assert pathlib.Path(ttrace.__file__).parent == PACKAGE / "ttrace"
