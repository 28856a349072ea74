"""Runs real training jobs with and without `ttrace collect`, and something going wrong in them (programs/faults.py).

Whatever goes wrong, a job computes and exits as it does without ttrace, no trace that lacks something passes for a
whole one, and nothing hangs: every run has a time limit."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from sweeps import warm

HERE = Path(__file__).resolve().parent
TTRACE = os.environ.get("TTRACE_PROGRAM", str(HERE.parent.parent / "build" / "bin" / "ttrace"))
PYTHON = sys.executable
JOB = HERE / "programs" / "job.py"
TIMEOUT = 300  # seconds; only a run that hangs needs as many


@pytest.fixture(scope="session", autouse=True)
def warm_programs():
    with warm.server():
        yield


def run(command, **options):
    environment = dict(os.environ, OMP_NUM_THREADS="1", **options.pop("environment", {}))
    command = [str(part) for part in command]
    options = {"capture_output": True, "text": True, "timeout": TIMEOUT, **options}
    return subprocess.run(command, env=environment, **options)


def ranks_of(count, *command):
    """A Python program as that many ranks, in processes forked from one that has imported PyTorch."""
    return warm.command(*command, ranks=count)


class Collected:
    def __init__(self, process, trace):
        self.code, self.stdout, self.stderr, self.trace = process.returncode, process.stdout, process.stderr, trace

    def __repr__(self):  # what a failed assertion shows
        return f"exit code {self.code}, stdout:\n{self.stdout}\nstderr:\n{self.stderr}"

    @property
    def messages(self):
        return [line for line in self.stderr.splitlines() if line.startswith("ttrace:")]

    def says(self, text):
        return any(text in message for message in self.messages)

    def inspect(self, *options):
        return json.loads(run([TTRACE, "inspect", self.trace, "--json", *options], check=True).stdout)

    def tensors(self):
        return sum(len(rank["tensors"]) for rank in self.inspect()["ranks"])

    def is_whole(self):
        """Whether `ttrace collect` says so, and the trace itself."""
        described = self.inspect()
        complete = [rank["complete"] for rank in described["ranks"]]
        return self.code == 0 and all(complete) and len(complete) == described["world_size"]


def check(reference, candidate):
    return run([TTRACE, "check", "--reference", reference.trace, "--candidate", candidate.trace])


def results_in(directory):
    return {path.name: path.read_text() for path in sorted(directory.iterdir())}


@pytest.fixture(scope="session")
def collect_job(tmp_path_factory):
    """collect_job(fault, *options, ranks=1) -> Collected. Runs the job without ttrace, too, and requires the same
    results and exit code; but where only the trace is at fault, `ttrace collect` exits with 2. What was run without
    ttrace is the result of `without`, another fault, where that is given: the two compute the same."""
    plain = {}

    def collect_job(fault, *options, ranks=1, trace=None, without=None):
        base = tmp_path_factory.mktemp("job")
        job = [*ranks_of(ranks), JOB]
        key = (without or fault, *options, ranks)
        if key not in plain:
            (base / "plain").mkdir()
            plain[key] = run([*job, base / "plain", without or fault, *options]), results_in(base / "plain")
        (base / "traced").mkdir()
        axes = ["--axes", f"dp={ranks}"] if ranks > 1 else []
        options = ["--iterations", "0-1", *axes, "--", *job, base / "traced", fault, *options]
        collected = Collected(
            run([TTRACE, "collect", "-o", trace or base / "trace", *options]), trace or base / "trace"
        )
        process, collected.results = plain[key]
        assert results_in(base / "traced") == collected.results, (process, collected)
        assert collected.code == process.returncode or (process.returncode, collected.code) == (0, 2), collected
        return collected

    return collect_job


@pytest.fixture(scope="session")
def undisturbed(collect_job):
    """undisturbed(ranks) -> Collected of the job without a fault."""
    collected = {}

    def undisturbed(ranks=1):
        if ranks not in collected:
            collected[ranks] = collect_job("nothing", ranks=ranks)
            assert collected[ranks].is_whole(), collected[ranks]
        return collected[ranks]

    return undisturbed


@pytest.fixture
def require_lacking(undisturbed):
    """require_lacking(collected, ranks=1): it is said that the trace is not whole, and no check calls it the same."""

    def require_lacking(collected, ranks=1):
        assert collected.code != 0, collected
        assert any("error:" in message for message in collected.messages), collected
        checked = check(undisturbed(ranks), collected)
        assert checked.returncode in (1, 2), checked
        return checked

    return require_lacking


@pytest.fixture
def require_undisturbed(undisturbed):
    """require_undisturbed(collected, ranks=1): the trace is whole, and the same as without the fault."""

    def require_undisturbed(collected, ranks=1):
        assert collected.is_whole(), collected
        assert collected.tensors() == undisturbed(ranks).tensors(), collected
        checked = check(undisturbed(ranks), collected)
        assert checked.returncode == 0, checked

    return require_undisturbed
