"""What is said while a job is collected, and when it has ended."""

import os
import pathlib
import pty
import re
import subprocess
import sys

import pytest

from traces import PROGRAM

TRAIN = f"{sys.executable} {pathlib.Path(__file__).parent / 'programs' / 'train.py'}"


@pytest.fixture
def run(tmp_path):
    """Runs the program; returns (exit code, stdout, stderr). On a `terminal` stderr is one."""

    def run(*words, terminal=False, **environment):
        variables = {**os.environ, "CALLS": str(tmp_path / "calls"), "TERM": "xterm", **environment}
        master, slave = pty.openpty()
        process = subprocess.Popen(
            [PROGRAM, *words],
            cwd=tmp_path,
            env=variables,
            stdout=subprocess.PIPE,
            stderr=slave if terminal else subprocess.PIPE,
            text=True,
        )
        os.close(slave)
        shown = b""
        try:
            while terminal and (part := os.read(master, 1 << 16)):
                shown += part
        except OSError:  # the other side is closed
            pass
        os.close(master)
        stdout, stderr = process.communicate(timeout=60)
        return process.returncode, stdout, shown.decode() if terminal else stderr

    return run


WARNINGS = (
    "printf 'rank 0: odd\\nrank 0: other\\n' > out/rank-00000.warning; printf 'rank 1: odd\\n' > out/rank-00001.warning"
)


def test_warnings_are_shown_once_for_all_ranks_that_have_them(run, tmp_path):
    code, _, stderr = run("collect", "-o", "out", "--", "sh", "-c", f"{TRAIN} --ranks 2; {WARNINGS}")
    assert code == 0
    assert stderr.splitlines()[1:] == [
        "ttrace: warning: ranks 0-1: odd",
        "ttrace: warning: rank 0: other",
        "ttrace: 3 warnings, in out/rank-*.warning",
    ]


def test_quiet_leaves_warnings_and_errors(run):
    code, _, stderr = run("collect", "-q", "-o", "out", "--", "sh", "-c", f"{TRAIN} --ranks 2; {WARNINGS}")
    assert code == 0
    assert stderr.splitlines() == ["ttrace: warning: ranks 0-1: odd", "ttrace: warning: rank 0: other"]
    code, _, stderr = run("collect", "-q", "-o", "again", "--", "no-such-command")
    assert code == 127 and stderr.startswith("ttrace: error: no-such-command: ")


def test_a_job_that_takes_long_is_shown_on_a_terminal_only(run):
    words = ("collect", "-o", "out", "--", "sh", "-c")
    assert ", 1 s" in run(*words, "sleep 2.5", terminal=True)[2]
    (code, _, shown) = run(*words, f"{TRAIN}; sleep 2.5", terminal=True)
    assert code == 0 and "ttrace: out: 1 rank: " in shown and " KiB, " in shown
    assert (
        shown.rstrip().splitlines()[-1].lstrip("\r").startswith("\x1b[J") or "\x1b[Jttrace: collected 1 rank" in shown
    )
    assert "/s" not in run("collect", "-o", "other", "--", "sh", "-c", f"{TRAIN}; sleep 1.5")[2]
    assert "\x1b" not in run("collect", "-q", "-o", "third", "--", "sh", "-c", f"{TRAIN}; sleep 1.5", terminal=True)[2]


@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="nothing runs side by side on one core")
@pytest.mark.parametrize("device, is_side_by_side", [("cpu", True), ("cuda", False), ("", False)])
def test_runs_on_the_cpu_are_side_by_side_unless_told_otherwise(run, tmp_path, device, is_side_by_side):
    words = ("estimate-tolerance", "-o", "t.yaml", "--", *TRAIN.split())
    code, stdout, stderr = run(*words, DEVICE=device)
    assert code == 0, stderr
    # The reference tells what the machine has room for.
    assert stdout.count("a line of the training program") == (1 if is_side_by_side else 5)
    assert (tmp_path / "t.runs" / "rerun.log").exists() == is_side_by_side


@pytest.mark.parametrize("jobs, started", [("1", 1), ("2", 3)])
def test_the_first_run_that_begins_with_other_parameters_than_the_reference_is_the_last(run, tmp_path, jobs, started):
    """Side by side another one has been started with it, and a third may be by the time that the first is looked at."""
    assert run("collect", "-o", "reference", "--", "sh", "-c", f"{TRAIN} --seed 1")[0] == 0
    (tmp_path / "calls").unlink()
    words = ("estimate-tolerance", "-j", jobs, "-o", "t.yaml", "--reference", "reference", "--", *TRAIN.split())
    code, _, stderr = run(*words, "--seed", "2")
    assert code == 2, stderr
    assert re.search(
        r"^ttrace: error: t.runs/[a-z0-9-]+: begins with other parameters than the reference: layers.0.mlp.weight "
        "param, iteration 0 differs by 1; expected a run of the same program: set its seeds, or collect ",
        stderr,
        re.M,
    ), stderr
    assert 1 <= len((tmp_path / "calls").read_text().splitlines()) <= started


def test_each_of_the_runs_side_by_side_has_a_line(run):
    words = ("estimate-tolerance", "-j", "2", "-o", "t.yaml", "--", "sh", "-c", f"{TRAIN}; sleep 2.5")
    code, _, shown = run(*words, terminal=True)
    assert code == 0
    lines = [
        re.findall("^ttrace: ([a-z0-9-]+): (?:1 rank|nothing recorded)", block, re.M) for block in shown.split("\x1b[J")
    ]
    assert any(len(set(names)) == 2 for names in lines), shown
    assert "ttrace: collected t.runs/perturbed-3 (its output: t.runs/perturbed-3.log)" in shown
