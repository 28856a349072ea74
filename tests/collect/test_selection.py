"""A part of the tensors is recorded, and the trace says which part."""

import json

import pytest
from conftest import TTRACE, run

pytestmark = pytest.mark.usefixtures("warm_programs")

TRAIN = """
import sys
import torch
from torch import nn
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(4, 8), nn.Linear(8, 4)
    def forward(self, x):
        if "crooked" in sys.argv:
            return self.up(x) @ self.down.weight.T
        return self.down(self.up(x)) * (1.5 if "wrong" in sys.argv else 1)
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(2))
    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x
torch.manual_seed(0)
model = Model()
optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
for step in range(2):
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


@pytest.fixture
def chosen(collect, script):
    """chosen(options, arguments of the program) -> Collected"""

    def chosen(*options, program=()):
        collected = collect(*options, command=script(TRAIN, *program))
        assert collected.code == 0, collected
        return collected

    return chosen


def check(reference, candidate, code):
    sides = ["--reference", reference.directory, "--candidate", candidate.directory]
    checked = run([TTRACE, "check", *sides, "--json", "-"])
    assert checked.returncode == code, checked.stdout + checked.stderr
    return json.loads(checked.stdout)


def kinds_by_name(collected):
    found = {}
    for kind, name, _ in collected.rank().tensors:
        found.setdefault(name, set()).add(kind)
    return found


ACTIVATIONS = {"input", "output", "grad_output", "grad_input"}
PARAMETER = {"param", "param_grad", "main_grad", "param_delta", "param_after"}


def test_a_pattern_stands_for_all_that_is_inside_a_module(chosen):
    found = kinds_by_name(chosen("--only", "blocks.1"))
    inside = {"blocks.1", "blocks.1.up", "blocks.1.down"}
    parameters = {f"blocks.1.{linear}.{name}" for linear in ("up", "down") for name in ("weight", "bias")}
    assert found.keys() == inside | parameters | {"loss"}
    assert all(found[name] == ACTIVATIONS for name in inside) and all(found[name] == PARAMETER for name in parameters)


TWO_MODELS = """
import torch
from torch import nn
torch.manual_seed(0)
first, second = nn.Sequential(nn.Linear(4, 4)), nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
optimizer = torch.optim.SGD([*first.parameters(), *second.parameters()], lr=0.1)
second(first(torch.ones(2, 4))).sum().backward()
optimizer.step()
"""


@pytest.mark.parametrize(("pattern", "held"), [("model1.*", {"0", "1"}), ("model1.1", {"1"}), ("1", {"1"})])
def test_a_pattern_may_have_the_name_that_a_report_has(collect, script, pattern, held):
    collected = collect("--only", pattern, command=script(TWO_MODELS))
    calls = {(chunk, name) for _, _, chunk, _, kind, name in collected.rank().all if kind == "output"}
    assert calls - {(1, "(model)")} == {(1, name) for name in held}
    assert not any("fits no module" in line for line in collected.messages)


def test_what_is_excepted_is_left_out_of_what_is_asked_for(chosen):
    found = kinds_by_name(chosen("--only", "blocks.*", "--except", "up", "--except", "down.bias"))
    assert "blocks.0.down.weight" in found and "blocks.1" in found and "(model)" not in found
    assert not any("up" in name or name.endswith("bias") for name in found)


def test_depth_is_about_calls_and_not_about_parameters(chosen):
    found = kinds_by_name(chosen("--depth", "0"))
    assert {name for name, kinds in found.items() if kinds & ACTIVATIONS} == {"(model)"}
    assert sum(kinds == PARAMETER for kinds in found.values()) == 8
    found = kinds_by_name(chosen("--depth", "2"))
    assert {name for name, kinds in found.items() if kinds & ACTIVATIONS} == {"(model)", "blocks.0", "blocks.1"}


def test_kinds_are_those_alone_and_an_optimizers_state_comes_with_its_delta(chosen):
    without = {kind for kinds in kinds_by_name(chosen("--kinds", "output,param")).values() for kind in kinds}
    assert without == {"output", "param"}
    second = chosen("--kinds", "param_delta", "--iterations", "1").rank()
    assert {kind for _, _, _, _, kind, _ in second.all} == {"param_delta", "exp_avg", "exp_avg_sq"}


def test_a_check_is_about_what_both_hold_and_says_so(chosen):
    reference, part = chosen(), chosen("--only", "blocks.1", "--kinds", "output,param")
    report = check(reference, part, 0)
    reason = "collected with --only blocks.1 --kinds output,param"
    assert report["partial"].startswith(f"the candidate holds less by design ({reason}): of the reference, ")
    held = len(part.rank().all)
    assert report["counts"]["compared"] == held
    assert report["counts"]["missing"] == 0
    assert report["counts"]["not_seen"] + report["waived"] + held == len(reference.rank().all)
    other_way = check(part, reference, 0)
    assert other_way["partial"].startswith(f"the reference holds less by design ({reason})")
    twice = check(part, chosen("--only", "blocks.1", "--kinds", "output,param"), 0)
    assert twice["partial"].count(reason) == 2 and twice["counts"]["not_seen"] == 0


def test_what_was_computed_wrong_is_found_among_what_was_recorded(chosen):
    options = ("--depth", "2")
    report = check(chosen(*options), chosen(*options, program=("wrong",)), 1)
    assert report["counts"]["fail"] > 0


def test_a_module_that_ought_to_be_recorded_and_was_never_called_is_missing(chosen):
    options = ("--only", "down")
    whole, without_calls = chosen(*options), chosen(*options, program=("crooked",))
    report = check(whole, without_calls, 1)
    missing = [finding for finding in report["findings"] if finding["verdict"] in ("missing", "not-seen")]
    assert any(finding["kind"] == "output" and "down" in finding["name"] for finding in missing)
    assert not any(finding["reason"] == "not-recorded-in-candidate" for finding in missing)


def test_a_pattern_that_fits_nothing_is_named(chosen):
    collected = chosen("--except", "bolcks.1")
    assert any("'bolcks.1' fits no module and no parameter" in line for line in collected.messages)


def test_the_runs_of_a_tolerance_record_what_the_reference_did(chosen, script, tmp_path):
    reference = chosen("--depth", "2", "--except", "blocks.0")
    command = [TTRACE, "estimate-tolerance", "--reference", reference.directory, "-o", tmp_path / "t.yaml"]
    estimated = run([*command, "--runs", tmp_path / "runs", "--", *script(TRAIN)])
    assert estimated.returncode == 0, estimated.stderr
    inspected = run([TTRACE, "inspect", tmp_path / "runs" / "rerun", "--json"])
    (rank,) = json.loads(inspected.stdout)["ranks"]
    assert len(rank["tensors"]) == len(reference.rank().all)


@pytest.mark.parametrize("kinds", ["outputs", "exp_avg", "output,"])
def test_kinds_that_are_none_are_refused(collect, script, kinds):
    collected = collect("--kinds", kinds, command=script(TRAIN))
    expected = kinds == "output,"
    assert (collected.code == 0) is expected
    assert expected or "expected some of input, output, grad_output" in collected.process.stderr
