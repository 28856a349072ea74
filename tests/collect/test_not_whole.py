"""Traces that are not whole, and jobs that fail after they are: named, and not called the same."""

import json
import sys
from pathlib import Path

import pytest
from conftest import TTRACE, program, run

pytestmark = pytest.mark.usefixtures("warm_programs")


def test_axes_that_do_not_fit_the_ranks_are_named_and_the_job_is_recorded_all_the_same(collect):
    collected = collect("--axes", "tp=3", command=program("ranks", "--fork"))
    assert collected.code == 0
    expected = (
        "axes: axis 'tp' has size 3; expected 1 to 2, the number of ranks; recorded without axes: say them to "
        "`ttrace check --axes`"
    )
    assert any("warning: " in line and line.endswith(expected) for line in collected.messages)
    assert collected.rank(1).complete
    assert collected.rank(1).attributes["axes"] == "[]"


ENDING = """
import os, sys
import torch
torch.manual_seed(0)
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    if step == 1 and sys.argv[1] == "raise":
        raise RuntimeError("the training program fails")
    optimizer.zero_grad()
    model(torch.ones(3, 4)).square().mean().backward()
    if "wrong" in sys.argv:
        model.bias.grad.mul_(2)
    optimizer.step()
if sys.argv[1] == "abort":
    os.abort()
"""
KILLED = "the command was killed by signal 6 (Aborted)"


def test_a_job_that_dies_after_what_it_was_to_record_is_not_called_different_for_that(collect, script):
    whole, aborted, wrong, early = [
        collect(*options, command=script(ENDING, *arguments)).directory
        for options, arguments in (
            ((), ["end"]),
            ((), ["abort"]),
            ((), ["abort", "wrong"]),
            (("--iterations", "0-1"), ["raise"]),
        )
    ]
    assert (aborted / "job.failure").read_text() == f"{KILLED}\n"
    assert "whole, and the job failed afterwards" in run([TTRACE, "inspect", aborted]).stdout
    code, report = report_of(whole, aborted)
    assert (code, report["verdict"]) == (2, "could-not-look")
    assert (report["counts"]["fail"], report["counts"]["missing"]) == (0, 0)
    assert report["failed"] == f"{KILLED} after all of this was recorded"
    line = run([TTRACE, "check", "--reference", whole, "--candidate", aborted, "-t", "default", "-q"]).stdout
    assert line == f"could-not-look: {KILLED} after all of this was recorded; nothing of it is wrong\n"

    code, report = report_of(whole, wrong)
    assert (code, report["verdict"]) == (1, "different")
    assert (report["first_wrong"]["name"], report["first_wrong"]["kind"]) == ("bias", "main_grad")
    assert f"{KILLED} after all of this was recorded" in report["notes"]

    code, report = report_of(whole, early)  # it was to record one more iteration
    assert (code, report["first_wrong"]["reason"]) == (2, "incomplete-rank")
    refused = run([TTRACE, "check", "--reference", aborted, "--candidate", whole, "-t", "default"])
    assert refused.returncode == 2
    assert refused.stderr == (
        f"ttrace: error: {aborted}: {KILLED} after all of this was recorded; expected a whole trace\n"
    )
    assert "after all of this was recorded" in run([TTRACE, "abft", aborted, "-q"]).stdout


def report_of(reference, candidate):
    words = ("check", "--reference", reference, "--candidate", candidate, "-t", "default", "--json", "-")
    process = run([TTRACE, *words])
    return process.returncode, json.loads(process.stdout)


def test_an_iteration_that_is_never_reached_is_no_whole_trace(collect):
    collected = collect("--iterations", "1,9", command=program("small", "--steps", "2"))
    assert collected.code == 2
    expected = "rank 0: iterations asked for and not reached: 9; the program ended after 2"
    assert f"ttrace: error: {expected}" in collected.messages
    assert collected.messages[-1] == f"ttrace: error: {collected.directory}: incomplete: rank 0"


BY_FORWARD = """
import torch
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model.forward(torch.ones(3, 4)).sum().backward()
optimizer.step()
"""


def test_a_program_that_calls_no_module_is_told_so(collect):
    collected = collect(command=[sys.executable, "-c", BY_FORWARD])
    assert collected.code == 2
    assert (
        "no module with parameters was called with gradients; expected calls like `model(x)`" in collected.messages[-2]
    )


FORKING = """
import os, sys
import torch
torch.manual_seed(0)
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
def train():
    optimizer.zero_grad()
    model(torch.ones(3, 4)).square().mean().backward()
    optimizer.step()
train()
if sys.argv[1] == "fork":
    child = os.fork()
    if child == 0:
        train()
        sys.stdout.flush()
        os._exit(0)
    os.waitpid(child, 0)
"""


def test_what_collect_calls_not_whole_is_neither_checked_nor_a_reference(collect, script):
    forked, *others = [collect(command=script(FORKING, child)) for child in ("fork", "none", "none")]
    assert (forked.code, [other.code for other in others]) == (2, [0, 0])
    whole, again = (other.directory for other in others)
    assert verdict_of("check", "--reference", whole, "--candidate", again, "-t", "default") == (0, "")
    code, said = verdict_of("check", "--reference", whole, "--candidate", forked.directory, "-t", "default")
    assert code == 2
    assert said.startswith(f"ttrace: error: {forked.directory}: its recorder called it not whole: rank 0: process ")
    assert "trains, too, and is not recorded" in said
    refused = (2, said)
    assert verdict_of("check", "--reference", forked.directory, "--candidate", whole, "-t", "default") == refused
    assert verdict_of("abft", forked.directory) == refused
    to = ("-o", forked.directory.parent / "tolerance.yaml")
    runs = ("--reference", whole, "--perturbed", again, again, forked.directory)
    assert verdict_of("estimate-tolerance", *runs, *to) == refused
    assert run([TTRACE, "inspect", forked.directory]).returncode == 0


def verdict_of(*words):
    process = run([TTRACE, *words])
    return process.returncode, process.stderr


def test_an_error_in_the_collector_never_ends_the_training(collect, script):
    text = "import torch\nimport ttrace_torch.members as members\n"
    text += "members.inputs_of.__code__ = (lambda args, kwargs: 1 / 0).__code__\n"
    collected = collect(command=script(text + Path(program("small")[-1]).read_text()))
    assert collected.code == 2
    assert "parameters" in collected.stdout
    assert any("internal error: ZeroDivisionError('division by zero')" in line for line in collected.messages)
