"""What is recorded, under which identity, with which values."""

import numpy
import pytest
from conftest import program

pytestmark = pytest.mark.usefixtures("warm_programs")

PARAMETERS = [
    "embedding.weight",
    "blocks.0.fc1.weight",
    "blocks.0.fc1.bias",
    "blocks.0.fc2.weight",
    "blocks.0.fc2.bias",
    "blocks.1.fc1.weight",
    "blocks.1.fc1.bias",
    "blocks.1.fc2.weight",
    "blocks.1.fc2.bias",
    "head.weight",
]


def block(number, call=""):
    parts = [".fc1", ".drop", ".fc2"]
    return [f"blocks.{number}{part}{call}" for part in ["", *parts]], [
        f"blocks.{number}{part}{call}" for part in [*parts, ""]
    ]


def test_every_kind_has_exactly_the_expected_identities(collect):
    rank = collect(command=program("small", "--clip")).rank()
    begin, end = zip(block(0), block(1), block(0, "#1"), strict=True)
    begin, end = sum(begin, []), sum(end, [])
    for microbatch in (0, 1):
        assert rank.names("input", microbatch) == ["(model)", "embedding", *begin, "head"]
        assert rank.names("output", microbatch) == ["embedding", *end, "head", "(model)"]
        assert set(rank.names("grad_output", microbatch)) == {"(model)", "embedding", *end, "head"}
        # Tokens have no gradient.
        assert set(rank.names("grad_input", microbatch)) == {*begin, "head"}
        assert set(rank.names("param_grad", microbatch)) == set(PARAMETERS)
    assert rank.names("scalar") == ["loss", "loss", "grad_norm"]
    for kind in ("param", "main_grad", "param_delta", "param_after"):
        assert rank.names(kind) == PARAMETERS
        assert rank.names(kind, -1) == PARAMETERS
    assert {identity[0] for identity in rank.all} == {0}
    assert {identity[2] for identity in rank.all} == {0}
    assert rank.names("output", pass_="recompute") == []
    assert rank.complete and rank.attributes["compute_dtype"] == "float32"


def test_values_fit_together(collect):
    rank = collect(command=program("small", "--clip")).rank()
    tensors = rank.tensors
    for name in PARAMETERS:
        added = tensors["param_grad", name, 0] + tensors["param_grad", name, 1]
        assert numpy.array_equal(added, tensors["main_grad", name, -1]), name
        after = tensors["param", name, -1] + tensors["param_delta", name, -1]
        assert numpy.allclose(after, tensors["param_after", name, -1], rtol=1e-6, atol=0), name
    # Plain SGD on the clipped gradient.
    norm = tensors["scalar", "grad_norm", -1]
    own = [name for name in PARAMETERS if name != "head.weight"]  # tied to the embedding: one parameter
    squares = sum(numpy.square(tensors["main_grad", name, -1].astype("f8")).sum() for name in own)
    assert numpy.isclose(norm, squares**0.5, rtol=1e-6)
    assert norm > 0.01
    expected = -0.1 * 0.01 / norm * tensors["main_grad", "blocks.1.fc1.weight", -1]
    assert numpy.allclose(tensors["param_delta", "blocks.1.fc1.weight", -1], expected, rtol=1e-3)


def test_an_output_is_recorded_before_a_later_operation_changes_it_in_place(collect):
    tensors = collect(command=program("small")).rank().tensors
    output, after = tensors["output", "blocks.0.fc1", 0], tensors["input", "blocks.0.drop", 0]
    assert (output < 0).any() and (after >= 0).all()
    # The gradient is that of the value as it left the module: 0 where relu cut it off.
    gradient = tensors["grad_output", "blocks.0.fc1", 0]
    assert (gradient[output < 0] == 0).all() and (gradient[output > 0] != 0).any()


def test_a_tied_parameter_has_both_names_and_the_same_values(collect):
    tensors = collect(command=program("small")).rank().tensors
    for kind in ("param", "main_grad", "param_delta", "param_after"):
        assert numpy.array_equal(tensors[kind, "embedding.weight", -1], tensors[kind, "head.weight", -1])


def test_an_evaluation_pass_is_not_recorded(collect):
    command = program("small", "--evaluate")
    with_evaluation, without = (
        collect("--iterations", "0,1", command=command),
        collect("--iterations", "0,1", command=program("small")),
    )
    assert with_evaluation.code == 0, with_evaluation.process.stderr
    assert set(with_evaluation.rank().all) == set(without.rank().all)


def test_bf16_is_recorded_bit_by_bit(collect):
    rank = collect(command=program("small", "--bf16")).rank()
    assert rank.attributes["compute_dtype"] == "bfloat16"
    assert rank.dtypes[0, 0, 0, "forward", "output", "head"] == 4
    # Deltas of bf16 parameters without a master are differences of bf16 values, exact in fp32.
    assert rank.dtypes[0, -1, 0, "forward", "param_delta", "head.weight"] == 2
