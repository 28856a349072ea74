"""Threads of a program that call modules: one is recorded, whatever the others do."""

import pytest
from conftest import check
from night import at_night


@pytest.mark.parametrize(
    "fault", ["train_in_a_new_thread_each_step", *at_night("thread_that_evaluates", "train_in_a_thread")]
)
def test_training_in_any_thread_is_recorded_as_in_one(collect_job, require_undisturbed, fault):
    collected = collect_job(fault, without="nothing")
    require_undisturbed(collected)
    assert not collected.says("warning"), collected


@pytest.mark.parametrize("fault", ["thread_that_trains_another_model", "thread_that_computes_a_metric"])
def test_what_another_thread_does_meanwhile_is_named_and_not_mixed_in(collect_job, require_undisturbed, fault):
    collected = collect_job(fault, without="nothing")
    require_undisturbed(collected)
    assert collected.says("in the thread 'helper', beside those in 'MainThread'; expected one thread that trains")


def test_backward_in_another_thread_belongs_to_the_forward(collect_job, require_undisturbed):
    require_undisturbed(collect_job("backward_in_a_thread", without="nothing"))


def test_parts_that_a_model_calls_in_threads_of_its_own_belong_to_it(collect_job, undisturbed):
    collected = collect_job("parts_in_threads", without="nothing")
    assert collected.is_whole() and not collected.says("warning"), collected
    assert collected.tensors() == undisturbed().tensors()
    assert check(undisturbed(), collected).returncode == 0


@pytest.mark.parametrize("fault", ["threads_that_begin_together", "threads_that_share_the_model"])
def test_threads_that_get_in_each_others_way_end_no_recording(collect_job, fault):
    collected = collect_job(fault, "--at", "0", without="nothing")
    assert collected.is_whole(), collected
    assert collected.says("expected one thread that trains"), collected
