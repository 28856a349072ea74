"""The trial for a GPU, on a CPU: a few of its rows are as they should be, and it says where one is not."""

import dataclasses
import os
import sys
import time
from pathlib import Path

import pytest

from gpu.commands import Commands, Ended, OutOfTime
from gpu.rows import ROWS, Program, Row
from gpu.trial import Trial
from sweeps import warm

TTRACE = Path(os.environ["TTRACE_PROGRAM"])
SECONDS = 300  # of a row
NAMED = {row.name: row for row in ROWS}


@pytest.fixture(scope="module")
def trial(tmp_path_factory):
    work = tmp_path_factory.mktemp("trial")
    commands = Commands("cpu", TTRACE, work / "log.txt", time.monotonic() + 600)
    with warm.server():
        yield Trial(commands, work, SECONDS)


@pytest.mark.parametrize("name", ["recorder-parts", "ddp-2", "side-stream", "checkpoint"])
def test_a_row_is_as_it_should_be_and_so_is_its_wrong_twin(trial, name):
    result = trial.run(NAMED[name])
    assert (result.state, result.right, result.wrong) == ("ok", "same", "different"), result
    assert result.bits == ("" if name == "recorder-parts" else "equal")


def test_a_wrong_twin_that_is_right_is_a_row_that_shows_nothing(trial):
    row = NAMED["side-stream"]
    result = trial.run(dataclasses.replace(row, name="no-twin", wrong=row.candidate))
    assert (result.state, result.problem) == ("WRONG", "the wrong twin is same, expected different")


def test_a_candidate_that_is_wrong_is_said_to_be(trial):
    row = NAMED["side-stream"]
    result = trial.run(dataclasses.replace(row, name="wrong", candidate=row.wrong))
    assert result.state == "WRONG" and result.problem.startswith("different, expected same: layers.1.feed_forward")


def test_a_program_that_cannot_run_here_is_no_fault_of_ttraces(trial):
    program = Program("pytorch/train.py", ("--strategy", "ddp"))
    result = trial.run(Row("nowhere", program, program, program))
    assert result.state == "not here"
    assert result.problem.startswith("the program ends with 1 without ttrace: ValueError")
    assert trial.run(NAMED["captured-step"]).problem == "no CUDA graphs on a CPU"


def test_a_command_ends_with_its_time_and_what_it_had_said_is_kept(tmp_path):
    commands = Commands("cpu", TTRACE, tmp_path / "log.txt", time.monotonic() + 60)
    program = "import time; print('begun', flush=True); time.sleep(60)"
    with pytest.raises(OutOfTime) as raised:
        commands.run([sys.executable, "-c", program], time.monotonic() + 1)
    assert isinstance(raised.value.ended, Ended) and raised.value.ended.stdout == "begun\n"
    with pytest.raises(OutOfTime, match="its time was over"):
        commands.run([sys.executable, "-c", program], time.monotonic() - 1)
