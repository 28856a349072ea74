"""A job that is watched while it goes on, without a reference: real ranks over gloo."""

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from conftest import PYTHON, TIMEOUT, TTRACE, python, ranks, run

pytestmark = pytest.mark.usefixtures("warm_programs")

# `fault` happens on rank 1 after step 7: a weight changes there, or from then on it reads the data of rank 0,
# or misses the loss scale. "sharded ..."
# has the first two linears in parts, and the last one whole on both ranks, of which nothing says that it is.
# It waits until what it has recorded is checked, which no job does: a few steps of this one are over sooner.
TRAIN = """
import os, sys, time
import torch
import torch.distributed as dist
fault, watched = sys.argv[1], sys.argv[2]
def waits(step):
    names = os.listdir(watched)
    return "watching" in names and any(f"iteration-{number:06}" in names for number in range(step - 1))
dist.init_process_group("gloo")
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.Linear(8, 4), torch.nn.Linear(4, 8))
is_sharded = fault.startswith("sharded")
if is_sharded:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
    mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("tp",))
    model = parallelize_module(net, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
else:
    model = torch.nn.parallel.DistributedDataParallel(net)
optimizer = torch.optim.AdamW(model.parameters())
for step in range(24):
    while waits(step):
        time.sleep(0.05)
    strikes = step > 7 and dist.get_rank() == 1
    torch.manual_seed(step + 100 * (0 if is_sharded or (strikes and fault == "data") else dist.get_rank()))
    (model(torch.randn(2, 4)).square().mean() * (1 if strikes and fault == "scale" else 1024)).backward()
    optimizer.step()
    optimizer.zero_grad()
    if strikes and fault.endswith("weight") and step == 8:
        with torch.no_grad():
            net[3 if is_sharded else 2].weight[1, 3] += 0.25
print("trained")
dist.destroy_process_group()
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    path = tmp_path_factory.mktemp("program") / "train.py"
    path.write_text(TRAIN)
    return path


def watch(directory, *options, budget="90%"):
    return [TTRACE, "watch", "-o", directory, "--every", "6", "--budget", budget, *options, "--"]


def run_watched(program, fault, directory, *options, budget="90%", **more):
    return run([*watch(directory, *options, budget=budget), *ranks(2, program, fault, directory)], **more)


def checks(directory):
    return [json.loads(line) for line in (directory / "checks.jsonl").read_text().splitlines()]


def pieces(directory):
    return sorted(path.name for path in directory.iterdir() if path.is_dir())


def test_a_right_job_is_right_in_each_iteration_that_is_looked_at_and_leaves_nothing_but_lines(program, tmp_path):
    process = run_watched(program, "none", tmp_path / "watched")
    assert process.returncode == 0, process.stderr
    assert process.stdout.count("trained") == 2
    assert {0, 6, 12, 18} <= {check["iteration"] for check in checks(tmp_path / "watched")}
    assert {check["verdict"] for check in checks(tmp_path / "watched")} == {"same"}
    assert pieces(tmp_path / "watched") == []


def test_a_weight_that_changes_on_one_rank_is_seen_in_the_next_iteration_that_is_looked_at(program, tmp_path):
    hook = f"echo $TTRACE_ITERATION $TTRACE_REASON $TTRACE_KEPT >> {tmp_path}/hook"
    process = run_watched(program, "weight", tmp_path / "watched", "--hook", hook)
    assert process.returncode == 1, process.stderr
    wrong = [check for check in checks(tmp_path / "watched") if check["verdict"] == "different"]
    assert 8 < wrong[0]["iteration"] <= 12
    assert ("2.weight", "param", "replicas-disagree") in {
        (one["tensor"], one["kind"], one["reason"]) for one in wrong[0]["wrong"]
    }
    first = (tmp_path / "hook").read_text().splitlines()[0].split()
    assert first[:2] == [str(wrong[0]["iteration"]), wrong[0]["wrong"][0]["reason"]]
    assert Path(first[2]).is_dir() and Path(f"{first[2]}.json").is_file()
    (line,) = [line for line in process.stderr.splitlines() if f"iteration {wrong[0]['iteration']}: WRONG: " in line]
    assert line.count("2.weight param") == 1 and line.count("rank 1") == 1


@pytest.mark.parametrize("fault", ["none", "weight"])
def test_a_copy_that_parts_is_seen_where_nothing_says_that_it_is_one(program, tmp_path, fault):
    process = run_watched(program, f"sharded {fault}", tmp_path / "watched")
    assert process.returncode == (1 if fault == "weight" else 0), process.stderr
    wrong = [check for check in checks(tmp_path / "watched") if check["verdict"] == "different"]
    if fault == "weight":
        assert 8 < wrong[0]["iteration"] <= 12
        assert wrong[0]["wrong"][0] == {
            "tensor": "3.weight",
            "kind": "param",
            "reason": "replicas-disagree",
            "ranks": [1],
            "message": "rank 1 holds another value of it than rank 0, and the same one before",
        }


def test_a_rank_that_begins_to_read_the_data_of_another_is_named(program, tmp_path):
    process = run_watched(program, "data", tmp_path / "watched")
    assert process.returncode == 1, process.stderr
    wrong = [check for check in checks(tmp_path / "watched") if check["verdict"] == "different"]
    assert wrong and all(check["iteration"] > 7 for check in wrong)
    assert wrong[0]["wrong"][0]["reason"] == "data-repeated" and wrong[0]["wrong"][0]["ranks"] == [0, 1]


def test_a_rank_that_misses_the_loss_scale_is_asked_about(program, tmp_path):
    """All ranks hold the same sum of what they have, which is no contradiction."""
    process = run_watched(program, "scale", tmp_path / "watched")
    assert process.returncode == 2, process.stderr
    asked = [check for check in checks(tmp_path / "watched") if check["verdict"] != "same"]
    assert 7 < asked[0]["iteration"] <= 12 and {check["verdict"] for check in asked} == {"could-not-look"}
    assert "the gradients that rank 1 has of its samples are" in asked[0]["problem"]
    assert "has it missed a loss scale?" in process.stderr


# As word_language_model of pytorch/examples does.
CHANGES_ITS_WEIGHTS_ITSELF = """
import torch
net = torch.nn.Sequential(torch.nn.Embedding(8, 4), torch.nn.Linear(4, 8))
for _ in range(6):
    net(torch.arange(8)).square().mean().backward()
    with torch.no_grad():
        for parameter in net.parameters():
            parameter -= RATE * parameter.grad
            parameter.grad = None
"""


def test_where_weights_change_by_themselves_an_iteration_ends_and_where_none_do_nothing_tells_where(tmp_path):
    def watched(name, rate):
        path = tmp_path / f"{name}.py"
        path.write_text(CHANGES_ITS_WEIGHTS_ITSELF.replace("RATE", rate))
        process = run([*watch(tmp_path / name), *python(path)])
        (check,) = checks(tmp_path / name)
        return process, check

    process, check = watched("steps", "0.5")
    assert process.returncode == 0, process.stderr
    assert check["verdict"] == "same", check
    process, check = watched("stands", "0.0")
    assert process.returncode == 2, process.stderr
    assert check["verdict"] == "could-not-look" and "no step of an optimizer was seen" in check["problem"]


def test_a_checker_that_dies_ends_watching_and_not_the_job(program, tmp_path):
    """`nice` is what the check is started with."""
    (tmp_path / "nice").write_text("#!/bin/sh\nkill -9 $$\n")
    (tmp_path / "nice").chmod(0o755)
    path = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    process = run_watched(program, "weight", tmp_path / "watched", environment=path)
    assert process.returncode == 2, process.stderr
    assert process.stdout.count("trained") == 2
    assert "watching ends, and the job goes on: the check of iteration 0 was killed by signal 9" in process.stderr


def test_a_watcher_that_is_killed_leaves_the_job_alone_and_a_bounded_disk(tmp_path):
    (tmp_path / "train.py").write_text(
        "import os, sys, time, torch\n"
        "net = torch.nn.Linear(4, 4)\n"
        "optimizer = torch.optim.SGD(net.parameters(), lr=0.1)\n"
        "for step in range(200):\n"
        "    while step == 20 and not os.path.exists(sys.argv[1]): time.sleep(0.05)\n"
        "    net(torch.randn(2, 4)).sum().backward()\n"
        "    optimizer.step()\n"
        "    optimizer.zero_grad()\n"
        "open(sys.argv[2], 'w').close()\n"
    )
    go_on, done = tmp_path / "go-on", tmp_path / "done"
    words = [*watch(tmp_path / "watched"), *python(tmp_path / "train.py", go_on, done)]
    watcher = subprocess.Popen([str(word) for word in words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    until(lambda: (tmp_path / "watched" / "checks.jsonl").exists())
    watcher.send_signal(signal.SIGKILL)
    watcher.wait()
    go_on.touch()
    until(done.exists)
    assert len([name for name in pieces(tmp_path / "watched") if name.startswith("iteration-")]) <= 3


def until(condition):
    started = time.monotonic()
    while not condition():
        assert time.monotonic() < started + TIMEOUT
        time.sleep(0.05)


@pytest.mark.parametrize(("code", "said"), [(7, 7), (1, 2)])
def test_what_the_job_fails_with_is_passed_on_where_it_does_not_say_that_an_iteration_was_wrong(tmp_path, code, said):
    job = [PYTHON, "-c", f"raise SystemExit({code})"]
    assert run([*watch(tmp_path / "watched"), *job]).returncode == said


def test_what_recording_takes_is_said_and_held_to_the_budget(program, tmp_path):
    process = run_watched(program, "none", tmp_path / "watched", budget="1%")
    assert process.returncode == 0, process.stderr
    shares = [check["recording_share"] for check in checks(tmp_path / "watched")]
    assert shares[0] is None and all(0 < share < 1 for share in shares[1:])
    (line,) = [line for line in process.stderr.splitlines() if "for a budget of 1%" in line]
    every = int(line.split("one of ")[1].split()[0])
    begins = int(line.split("from iteration ")[1].split()[0])
    assert every > 6  # which was asked for
    assert not [check for check in checks(tmp_path / "watched") if begins <= check["iteration"] < every]


@pytest.mark.parametrize("budget", ["2", "0%", "100%", "much"])
def test_a_budget_is_a_share_of_the_time(budget, tmp_path):
    process = run([TTRACE, "watch", "-o", tmp_path / "watched", "--budget", budget, "--", "true"])
    assert process.returncode == 2
    assert process.stderr == f"ttrace: error: --budget: '{budget}'; expected a share of the job's time, as in 2%\n"
    assert not (tmp_path / "watched").exists()
