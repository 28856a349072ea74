"""What a process starts while it is recorded, or before."""

import pytest
from night import at_night

WITHOUT_TORCH = ["subprocess_without_python", "subprocess_of_another_python", "subprocess_without_torch"]
EVALUATING = ["subprocess_that_evaluates", "fork_that_exits", "fork_that_evaluates"]
TRAINING = ["fork_that_trains", "subprocess_of_a_subprocess_that_trains"]


WORKERS = "workers_forked+workers_forked_with_model+workers_spawned_with_model"


@pytest.mark.parametrize("children", ["+".join(WITHOUT_TORCH + EVALUATING), *at_night("subprocess_isolated")])
def test_processes_that_do_not_train_are_left_alone(collect_job, require_undisturbed, children):
    collected = collect_job(children)
    require_undisturbed(collected)
    assert len(collected.messages) == 1, collected  # the summary


@pytest.mark.parametrize("workers", ["workers_forked_with_model", *at_night(WORKERS)])
@pytest.mark.parametrize("at", ["0", *at_night("1")])
def test_workers_that_load_data_are_left_alone(collect_job, require_undisturbed, workers, at):
    collected = collect_job(workers, "--at", at)
    require_undisturbed(collected)
    assert len(collected.messages) == 1, collected


@pytest.mark.parametrize("fault", TRAINING)
def test_a_second_process_that_trains_is_named_and_no_whole_trace(collect_job, fault):
    collected = collect_job(fault)
    assert collected.code == 2, collected
    assert collected.says("trains, too, and is not recorded: it was started by process"), collected


def test_a_process_that_takes_the_place_of_the_one_that_trains_is_named(collect_job, require_lacking):
    """It calls a model before the other does, so it is the first."""
    collected = collect_job("subprocess_that_trains", "--at", "0")
    assert collected.says("one process per rank; not recorded: process"), collected
    assert collected.says("job.py"), collected
    require_lacking(collected)
