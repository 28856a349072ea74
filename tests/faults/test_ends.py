"""Every end that a rank may come to, while others wait for it or go on."""

import contextlib
import os
import random
import signal
import subprocess
import time

import pytest
from conftest import JOB, TTRACE, Collected, check, ranks_of, run
from night import at_night

ENDS = ["kill", "interrupt", "exit_at_once_with_3", "raise_in_backward"]
RARE_ENDS = ["terminate", "segfault", "exit_at_once", "exit_with_4", "exit_in_forward", "raise_in_forward"]


@pytest.mark.parametrize("fault", [*ENDS, *at_night(*RARE_ENDS)])
def test_a_rank_that_ends_leaves_the_jobs_exit_code_and_a_trace_that_says_so(collect_job, require_lacking, fault):
    collected = collect_job(fault, ranks=2)
    assert collected.says("the trace is marked incomplete"), collected
    require_lacking(collected, ranks=2)


@pytest.mark.parametrize("fault", ["exit_with_0", *at_night("exit_at_once", "replace_process")])
def test_a_process_that_ends_early_without_an_error_is_no_whole_trace(collect_job, require_lacking, fault):
    require_lacking(collect_job(fault))


def test_a_rank_that_leaves_the_others_to_go_on_is_named(collect_job, require_lacking):
    collected = collect_job("leave_alone", "--rank", "-1", ranks=2)
    assert collected.code == 2
    assert collected.says("incomplete: rank 1"), collected
    require_lacking(collected, ranks=2)


@pytest.mark.parametrize(
    "fault", ["leave_out_a_batch_whose_forward_raises", *at_night("leave_out_a_batch_whose_backward_raises")]
)
def test_a_program_that_survives_an_exception_is_recorded_on(collect_job, undisturbed, fault):
    collected = collect_job(fault)
    assert collected.is_whole(), collected
    assert check(undisturbed(), collected).returncode == 1  # it has computed something else


def test_what_signal_handlers_raise_reaches_the_program(collect_job, require_lacking):
    collected = collect_job("catch_timeouts")
    assert collected.says("a signal handler raised TimeoutError while a tensor was recorded"), collected
    require_lacking(collected)


@pytest.mark.parametrize("fault", ["stderr_that_raises", *at_night("no_stderr")])
def test_messages_that_nobody_can_be_told_harm_no_job(collect_job, fault):
    collected = collect_job(fault, without="nothing")
    assert "not traceable" in (collected.trace / "rank-00000.warning").read_text()
    assert collected.is_whole(), collected


def test_kills_at_any_time_leave_no_trace_that_is_called_the_same(tmp_path, undisturbed, nightly):
    """The signal goes to one of the ranks, found by the first tensors that it has recorded."""
    random.seed(4)
    complete = 0
    for attempt in range(50 if nightly else 2):
        trace, results = tmp_path / f"trace{attempt}", tmp_path / f"results{attempt}"
        results.mkdir()
        job = [*ranks_of(2), JOB, results, "say_process", "--at", "0", "--rank", "-1", "--steps", "4"]
        command = [TTRACE, "collect", "-o", trace, "--iterations", "0-1", "--axes", "dp=2", "--", *map(str, job)]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
            victim = random.randrange(2)
            number = _wait_for(results / f"process-{victim}")
            time.sleep(random.uniform(0, 0.8))
            _kill(number)
            _, stderr = process.communicate(timeout=60)
        collected = Collected(subprocess.CompletedProcess(command, process.returncode, "", stderr), trace)
        verified = run([TTRACE, "inspect", trace, "--verify"])
        if collected.code == 0:  # the rank had done its work
            complete += 1
            assert collected.is_whole() and check(undisturbed(2), collected).returncode == 0, collected
        else:
            assert collected.says("error:"), collected
            assert check(undisturbed(2), collected).returncode in (1, 2), collected
        if any(trace.glob("*.h5")):
            assert "every checksum agrees" in verified.stdout, verified
    print(f"of {attempt + 1} jobs, {complete} had ended before the kill")


def _wait_for(path):
    end = time.monotonic() + 60
    while not (path.exists() and path.read_text().endswith("\n")):
        assert time.monotonic() < end, f"{path} does not come"
        time.sleep(0.005)
    return int(path.read_text())


def _kill(number):
    with contextlib.suppress(ProcessLookupError):  # it has ended
        os.kill(number, signal.SIGKILL)
