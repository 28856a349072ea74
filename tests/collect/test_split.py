"""A run that is recorded as a trace for each iteration, and checked while it goes on: real ranks over gloo."""

import json
import re
import subprocess
import time

import pytest
from conftest import TIMEOUT, TTRACE, ranks, run

pytestmark = pytest.mark.usefixtures("warm_programs")

# Waits in step 3 until the file that it is told exists; on its last rank, one gradient of one step is wrong.
TRAIN = """
import os, sys, time
import torch
import torch.distributed as dist
wrong_at, fail_at, go_on = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
dist.init_process_group("gloo")
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.Linear(8, 4))
model = torch.nn.parallel.DistributedDataParallel(net)
optimizer = torch.optim.AdamW(model.parameters())
for step in range(5):
    if step == fail_at:
        sys.exit(3)
    torch.manual_seed(step + 10 * dist.get_rank())
    model(torch.randn(2, 4)).square().mean().backward()
    while step == 3 and not os.path.exists(go_on):
        time.sleep(0.1)
    if step == wrong_at and dist.get_rank() == 1:
        net[0].weight.grad.mul_(1.5)
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
"""


@pytest.fixture(scope="module")
def job(warm_programs, tmp_path_factory):
    """job(wrong_at, fail_at, go_on) -> a command of two ranks"""
    path = tmp_path_factory.mktemp("program") / "train.py"
    path.write_text(TRAIN)
    return lambda wrong_at=-1, fail_at=-1, go_on=path: ranks(2, path, wrong_at, fail_at, go_on)


@pytest.fixture(scope="module")
def reference(job, tmp_path_factory):
    """Of iterations 0, 2 and 4 in one trace. Another run of the same program has the same bits."""
    directory = tmp_path_factory.mktemp("reference") / "trace"
    process = run([TTRACE, "collect", "-o", directory, "--iterations", "0,2,4", "--", *job()])
    assert process.returncode == 0, process.stderr
    return directory


def start(*words):
    return subprocess.Popen([str(word) for word in words], stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def follow(reference, candidate, *options):
    return [TTRACE, "check", "--reference", reference, "--candidate", candidate, "--follow", "--timeout", 60, *options]


def test_iterations_are_checked_while_the_job_goes_on(job, reference, tmp_path):
    soak, go_on = tmp_path / "soak", tmp_path / "go-on"
    split = [TTRACE, "collect", "-o", soak, "--split", "--iterations", "0,2,4", "--"]
    running = start(*split, *job(go_on=go_on))
    check = start(*follow(reference, soak, "--keep", 1, "--history", tmp_path / "history.sqlite"))
    said = [check.stderr.readline().strip() for _ in range(2)]
    assert said == ["ttrace: iteration 0: same", "ttrace: iteration 2: same"]
    assert running.poll() is None and check.poll() is None
    go_on.touch()
    text, rest = check.communicate(timeout=TIMEOUT)
    assert check.returncode == 0 and rest == "ttrace: iteration 4: same\n" and text.startswith("same\n")
    assert "optimizer steps checked: 4 of 4 parameters, 1 iteration" in text  # from the state that the trace has
    running.communicate(timeout=TIMEOUT)
    assert running.returncode == 0
    assert [path.name for path in soak.iterdir() if path.is_dir()] == ["iteration-000004"]
    history = json.loads(run([TTRACE, "history", tmp_path / "history.sqlite", "--json"]).stdout)
    assert [check["candidate"] for check in history["checks"]] == ["iteration 0", "iteration 2", "iteration 4"]


def test_the_first_wrong_iteration_ends_the_check(job, reference, tmp_path):
    soak, report = tmp_path / "soak", tmp_path / "report.json"
    collected = run([TTRACE, "collect", "-o", soak, "--split", "--iterations", "0,2,4", "--", *job(wrong_at=2)])
    assert collected.returncode == 0
    assert re.search(r"collected 3 iterations of 2 ranks, \d+ tensors", collected.stderr)
    check = run(follow(reference, soak, "--keep", 1, "--json", report))
    assert check.returncode == 1
    said = check.stderr.splitlines()
    assert said[0] == "ttrace: iteration 0: same" and said[1].startswith("ttrace: iteration 2: different: 0.weight,")
    root = json.loads(report.read_text())["root_cause"]
    assert (root["name"], root["kind"], root["iteration"]) == ("0.weight", "main_grad", 2)
    # What differs stays, and what comes after it.
    assert sorted(path.name for path in soak.iterdir()) == [f"iteration-00000{i}" for i in (0, 2, 4)]
    assert "localize" not in check.stdout  # a second run would be given the values of all iterations


def test_an_iteration_is_a_trace_like_others(job, reference, tmp_path):
    soak = tmp_path / "soak"
    run([TTRACE, "collect", "-o", soak, "--split", "--iterations", "0,2,4", "--", *job()])
    one = [TTRACE, "check", "--reference", reference, "--candidate", soak / "iteration-000002"]
    assert run(one).returncode != 0  # the others are missing
    assert run([*one, "--iterations", "2"]).returncode == 0
    none = run([*one, "--iterations", "4"])
    assert none.returncode == 2
    assert none.stderr == "ttrace: error: --iterations 4: the candidate has none of them; expected some of 2\n"
    assert run([*follow(soak, tmp_path / "again")[:-1], 1]).returncode == 2  # it never began
    whole = run([TTRACE, "inspect", soak])
    assert whole.returncode == 2 and "holds a trace for each iteration" in whole.stderr
    run([TTRACE, "collect", "-o", tmp_path / "again", "--split", "--iterations", "0,2,4", "--", *job()])
    assert run(follow(soak, tmp_path / "again")).returncode == 0


def test_a_job_that_fails_leaves_what_it_had_finished_whole(job, reference, tmp_path):
    soak = tmp_path / "soak"
    collected = run([TTRACE, "collect", "-o", soak, "--split", "--iterations", "0,2,4", "--", *job(fail_at=3)])
    assert collected.returncode not in (0, 2)
    assert "the iterations that it had finished are whole" in collected.stderr
    started = time.monotonic()
    check = run([*follow(reference, soak)[:-1], 1])
    assert check.returncode == 2 and time.monotonic() - started < 30
    *same, error = check.stderr.splitlines()
    assert same == ["ttrace: iteration 0: same", "ttrace: iteration 2: same"]
    assert error.startswith(f"ttrace: error: {soak}/iteration-000004: not whole after 1 s: ")


def test_an_iteration_that_was_left_out_is_named(job, reference, tmp_path):
    soak = tmp_path / "soak"
    run([TTRACE, "collect", "-o", soak, "--split", "--iterations", "0,4", "--", *job()])
    check = run(follow(reference, soak))
    assert check.returncode == 2
    assert check.stderr.splitlines()[1:] == [
        f"ttrace: error: {soak}: has iteration 4, and not 2 before it; expected the reference's iterations"
    ]


@pytest.mark.parametrize("options", [("--perturb", "1"), ("--inject", "reference"), ("--again", "reference")])
def test_what_needs_all_iterations_in_one_trace_is_refused(job, tmp_path, options):
    collected = run([TTRACE, "collect", "-o", tmp_path / "soak", "--split", *options, "--", *job()])
    assert collected.returncode == 2 and collected.stderr.startswith("ttrace: error: --split: expected a run as it is")
    assert not (tmp_path / "soak").exists()
