"""Every command on a program that calls a module twice, one with two inputs and one that returns a dict, inside a block
that is called twice itself: the second call of each is told from the first, and each tensor from the module's others.
"""

import json

import numpy
import pytest
from conftest import CHECK

from traces import Tensor, record_run

ANNOTATIONS = """\
block.split:hidden:
  output: {tp_dim: 1}
block.split:cache.0:
  output: {tp_dim: 0}
block.join:0:
  input: {tp: partial}
"""
LINEAR = "torch.nn.modules.linear.Linear"
WEIGHT = (numpy.arange(16, dtype="float32") * 7 % 5 - 2).reshape(4, 4)


def twice(weight=WEIGHT):
    """What one process records of two calls, each made of the one before. All values are integers, exact in float32."""

    def seen(call, kind, name, values, module_class=""):
        path, colon, member = name.partition(":")
        number = f"#{call}" if call else ""
        tensors.append(Tensor(f"block{path}{colon}{member}{number}", values, kind, module_class=module_class))

    tensors = [Tensor("block.fc.weight", weight, "param", microbatch=-1)]
    x = (numpy.arange(16, dtype="float32") * 3 % 7 - 3).reshape(4, 4)
    inputs = []
    for call in (0, 1):
        inputs.append(x)
        seen(call, "input", "", x)
        seen(call, "input", ".fc", x, LINEAR)
        y = x @ weight.T
        seen(call, "output", ".fc", y, LINEAR)
        seen(call, "input", ".split", y)
        for member, values in {"hidden": y - 1, "gate": 2 * y, "cache.0": y + call, "cache.1": y - 3}.items():
            seen(call, "output", f".split:{member}", values)
        seen(call, "input", ".join:0", y - 1)
        seen(call, "input", ".join:1", 2 * y)
        x = y - 1
        seen(call, "output", ".join", x)
        seen(call, "output", ":out", x)
        seen(call, "output", ":gate", 2 * y)
    gradient = numpy.zeros((4, 4), "float32")
    for call in (1, 0):
        dy = (numpy.arange(16, dtype="float32") * (5 - call) % 3).reshape(4, 4)
        seen(call, "grad_output", ".fc", dy, LINEAR)
        seen(call, "grad_input", ".fc", dy @ weight, LINEAR)
        gradient += dy.T @ inputs[call]
    tensors.append(Tensor("block.fc.weight", gradient, "param_grad"))
    tensors.append(Tensor("block.fc.weight", gradient, "main_grad", microbatch=-1))
    return tensors


def parts(tensors):
    """On two ranks, as ANNOTATIONS has it."""

    def part(tensor, rank):
        path, _, member = tensor.name.partition("#")[0].partition(":")
        dim = {"hidden": 1, "cache.0": 0}.get(member) if path == "block.split" else None
        if dim is not None:
            return tensor.with_values(numpy.split(tensor.values, 2, axis=dim)[rank])
        if (path, member) == ("block.join", "0"):
            return tensor.with_values(tensor.values - 5 if rank == 0 else numpy.full_like(tensor.values, 5))
        return tensor

    return [[part(tensor, rank) for tensor in tensors] for rank in (0, 1)]


def damaged(ranks, *names, kind="output"):
    """100 more in an element of each tensor, on all ranks that have it."""

    def damage(tensor):
        if tensor.name not in names or tensor.kind != kind:
            return tensor
        values = tensor.values.copy()
        values[1, 1] += 100
        return tensor.with_values(values)

    assert set(names) <= {tensor.name for tensor in ranks[0] if tensor.kind == kind}
    return [[damage(tensor) for tensor in tensors] for tensors in ranks]


@pytest.fixture
def program(ttrace):
    (ttrace.directory / "a.yaml").write_text(ANNOTATIONS)
    record_run(ttrace.directory / "reference", [twice()])
    return ttrace


def record(ttrace, ranks, name="candidate"):
    record_run(ttrace.directory / name, ranks, axes="tp=2")


def named(findings):
    return [(finding["kind"], finding["name"]) for finding in findings]


def report_of(ttrace, *command, code=1):
    return json.loads(ttrace.reports(*command, "--json", "-", code=code))


def test_every_command_finds_a_right_program_right(program):
    record(program, parts(twice()))
    record(program, parts(twice()), "again")
    program.reports(*CHECK, code=0)
    program.reports("sdc", "--healthy", "candidate", "--suspect", "again", code=0)
    report = report_of(program, "abft", "candidate", "-a", "a.yaml", code=0)
    # Of both calls: three products, a sum over ranks, and copies of what is whole on each.
    assert report["counts"]["untrusted"] == 0 and report["counts"]["pass"] == 27


def test_a_draft_places_each_member_of_all_calls(program):
    record(program, parts(twice()))
    draft = program.reports("annotate", "candidate", "--reference", "reference", code=0)
    assert "\nsplit:cache.0:\n" in draft and "#1" not in draft
    (program.directory / "a.yaml").write_text(draft)
    program.reports(*CHECK, code=0)
    program.reports("lint", "candidate", "-a", "a.yaml", code=0)


# The outputs that are wrong, from the first; what finds it without a reference.
WRONG = [
    (["block.fc#1"], "product-differs"),
    (["block.split:hidden#1"], None),
    (["block.split:cache.0#1", "block:gate#1"], None),
    (["block.join#1", "block:out#1"], "sum-differs"),
    (["block:gate#1"], None),
]


@pytest.mark.parametrize(("names", "reason"), WRONG)
def test_a_wrong_second_call_is_the_one_that_is_named(program, names, reason):
    record(program, parts(twice()), "healthy")
    record(program, damaged(parts(twice()), *names))
    first = [("output", names[0])]
    assert named(report_of(program, *CHECK)["roots"]) == first
    assert named(report_of(program, "sdc", "--healthy", "healthy", "--suspect", "candidate")["origins"]) == first
    abft = report_of(program, "abft", "candidate", "-a", "a.yaml", code=0 if reason is None else 1)
    if reason:
        assert named([abft["root_cause"]]) == first and abft["root_cause"]["reason"] == reason


def test_every_call_of_a_wrong_weight_is_wrong_because_of_it(program):
    wrong = damaged(parts(twice()), "block.fc.weight", kind="param")
    record(program, damaged(wrong, "block.fc", "block.fc#1"))
    assert named(report_of(program, *CHECK)["roots"]) == [("param", "block.fc.weight")]


def test_the_gradient_of_a_shared_weight_is_wrong_because_of_any_call(program):
    wrong = damaged(parts(twice()), "block.fc#1", kind="grad_output")
    record(program, damaged(wrong, "block.fc.weight", kind="param_grad"))
    assert named(report_of(program, *CHECK)["roots"]) == [("grad_output", "block.fc#1")]
    abft = report_of(program, "abft", "candidate", "-a", "a.yaml")
    assert ("param_grad", "block.fc.weight") in named(abft["findings"])


def test_members_that_are_missing_are_no_module(program):
    record(program, [[t for t in tensors if ":cache" not in t.name] for tensors in parts(twice())])
    first = report_of(program, *CHECK)["roots"][0]
    assert first["sentence"].startswith(
        "block.split:cache.0, output, micro-batch 0: it is not there; 1 later difference"
    )


def test_what_a_wrong_second_call_looks_like_is_said(program):
    def tripled(tensor):
        return tensor.with_values(3 * tensor.values) if tensor.name == "block.split:hidden#1" else tensor

    record(program, [[tripled(tensor) for tensor in tensors] for tensors in parts(twice())])
    (root,) = report_of(program, *CHECK)["roots"]
    assert root["sentence"] == "block.split:hidden#1, output, micro-batch 0: every element is 3 times the reference's."
    assert root["module"] == "block.split#1"
