"""What mutants make of recorded tensors is what a recorder may write."""

import json

import torch

from evaluations.trace_edits import Recorded
from ttrace_torch.library import Dtype, Kind, Pass, TensorId


def recorded(value, mapping=""):
    return Recorded(TensorId(0, -1, 0, Pass.FORWARD, Kind.MAIN_GRAD, "w"), Dtype.FLOAT32, value, mapping=mapping)


def test_another_shape_is_twice_as_long():
    assert recorded(torch.zeros(3, 2)).in_another_shape().value.shape == (6, 2)


def test_a_stretch_is_as_long_as_its_mapping_says():
    mapping = json.dumps({"fragment": {"whole": [4, 5], "range": [7, 15]}})
    half = recorded(torch.arange(8.0), mapping).in_another_shape()
    assert half.value.tolist() == [0.0, 1.0, 2.0, 3.0]
    assert json.loads(half.mapping)["fragment"] == {"whole": [4, 5], "range": [7, 11]}
