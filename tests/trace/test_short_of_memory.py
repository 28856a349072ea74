"""Where memory is short, the job goes on, and its trace is not whole."""

import subprocess

import pytest
from conftest import BUILD, inspect

C_PROGRAM = BUILD / "tests" / "record_until_full"
OK, IO = 0, 2


def record(directory, kib, *tensors):
    """Tensors that were recorded, what the last one gave, what the closing gave, and its text."""
    with subprocess.Popen(["nm", "-D", BUILD / "lib" / "libttrace.so"], stdout=subprocess.PIPE, text=True) as names:
        if "__asan_init" in names.stdout.read():
            pytest.skip("a sanitizer ends the program itself")
    job = subprocess.run([C_PROGRAM, directory, str(kib), *map(str, tensors)], capture_output=True, text=True)
    assert job.returncode == 0 and job.stderr == "", job
    count, recorded, closed, text = job.stdout.rstrip("\n").split(" ", 3)
    return int(count), int(recorded), int(closed), text


@pytest.mark.parametrize("kib", [300, 500, 1000, 2000, 4000, 8000, 16000])
def test_a_job_that_runs_out_of_memory_goes_on(trace_directory, kib):
    count, recorded, closed, text = record(trace_directory, kib)
    assert recorded == IO and closed == IO and text == "out of memory"
    (rank,) = inspect(trace_directory)["ranks"]
    assert not rank["complete"] and count - 8 <= len(rank["tensors"]) <= count


def test_the_index_is_written_whole_or_not_begun(trace_directory):
    outcomes = []
    for kib in range(1000, 100_000, 4500):
        directory = trace_directory / str(kib)
        _, recorded, closed, text = record(directory, kib, 2000)
        (rank,) = inspect(directory)["ranks"]
        assert recorded == OK and rank["complete"] == (closed == OK) and len(rank["tensors"]) == 2000
        assert closed == OK or text == "out of memory; the journal says what was recorded"
        outcomes.append(closed)
    assert outcomes == sorted(outcomes, reverse=True) and outcomes[0] == IO and outcomes[-1] == OK
