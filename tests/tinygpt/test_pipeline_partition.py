"""Interleaved and uneven pipeline stages."""

import functools

import pytest
from rounding import assert_equal_but_for_rounding
from runs import run

from tinygpt.parallel.turns import turns

# What each part of the model holds, in model order, beside the layout that says so.
LAYOUTS = {
    "two chunks a stage": ({"pp": 2, "vpp": 2}, [1, 1, 1, 1]),
    "two chunks a stage, fewer micro-batches than a full pipeline has": (
        {"pp": 2, "vpp": 2, "micro_batches": 2},
        [1, 1, 1, 1],
    ),
    "short first stage": ({"pp": 2, "first_stage_layers": 1}, [1, 3]),
    "short last stage": ({"pp": 2, "last_stage_layers": 1}, [3, 1]),
    "long middle stage": ({"pp": 3, "first_stage_layers": 1, "last_stage_layers": 1}, [1, 2, 1]),
    "embedding counted": ({"pp": 2, "layers": 5, "count_embedding": True}, [2, 3]),
    "head counted": ({"pp": 2, "layers": 5, "count_head": True}, [3, 2]),
    "first and last chunk without layers": (
        {"pp": 2, "vpp": 2, "layers": 2, "count_embedding": True, "count_head": True},
        [0, 1, 1, 0],
    ),
    "uneven stages of two chunks": ({"pp": 2, "vpp": 2, "layers": 6, "first_stage_layers": 2}, [1, 2, 1, 2]),
}


@functools.cache
def single(layers, micro_batches, lr):
    return run(layers=layers, micro_batches=micro_batches, lr=lr)


@pytest.mark.parametrize("name", LAYOUTS)
def test_every_division_of_the_layers_equals_the_single_process(name):
    layout, sizes = LAYOUTS[name]
    work = layout.get("layers", 4), layout.get("micro_batches", 4)
    candidate = run(**layout)
    assert candidate.part_sizes == sizes
    assert_equal_but_for_rounding(candidate, single(*work, lr=1.0), single(*work, lr=0.0))
    assert candidate.replicas_that_differ == []


def test_virtual_stages_compose_with_tensor_parallelism_and_recomputation():
    candidate = run(pp=2, vpp=2, tp=2, sp=True, recompute="reentrant")
    assert_equal_but_for_rounding(candidate, single(4, 4, lr=1.0), single(4, 4, lr=0.0))
    assert candidate.replicas_that_differ == []


SCHEDULES = [(2, 1, 4), (4, 1, 2), (4, 1, 8), (2, 2, 2), (2, 2, 8), (4, 3, 8), (3, 2, 6)]


@pytest.mark.parametrize("stages, chunks, micro_batches", SCHEDULES)
def test_a_schedule_never_waits_for_what_never_comes(stages, chunks, micro_batches):
    left = [turns(stages, stage, chunks, micro_batches) for stage in range(stages)]
    parts = stages * chunks
    forwards, backwards = set(), set()
    while any(left):
        progress = False
        for stage, order in enumerate(left):
            while order and _can_run(order[0], stage, stages, parts, forwards, backwards):
                turn = order.pop(0)
                done = forwards if turn.is_forward else backwards
                done.add((turn.chunk * stages + stage, turn.micro_batch))
                progress = True
        assert progress, left
    whole = {(part, micro_batch) for part in range(parts) for micro_batch in range(micro_batches)}
    assert forwards == backwards == whole


def _can_run(turn, stage, stages, parts, forwards, backwards):
    part = turn.chunk * stages + stage
    if turn.is_forward:
        return part == 0 or (part - 1, turn.micro_batch) in forwards
    own = (part, turn.micro_batch) in forwards
    return own and (part == parts - 1 or (part + 1, turn.micro_batch) in backwards)


def test_the_interleaved_schedule_is_megatrons():
    # Figure 4 (bottom) of the paper, for two stages: forwards of the first stage, by (chunk, micro-batch).
    order = turns(stages=2, stage=0, chunks=2, micro_batches=4)
    warm_up = [turn.is_forward for turn in order].index(False)
    assert warm_up - 1 == 2 * 1 + 1 * 2  # the last forward before a backward belongs to the first pair
    forwards = [(turn.chunk, turn.micro_batch) for turn in order if turn.is_forward]
    assert forwards == [(0, 0), (0, 1), (1, 0), (1, 1), (0, 2), (0, 3), (1, 2), (1, 3)]
    backwards = [(turn.chunk, turn.micro_batch) for turn in order if not turn.is_forward]
    assert backwards == [(1, 0), (1, 1), (0, 0), (0, 1), (1, 2), (1, 3), (0, 2), (0, 3)]


@pytest.mark.parametrize("stages, chunks, micro_batches", SCHEDULES)
def test_a_stage_holds_no_more_micro_batches_than_the_depth_behind_it(stages, chunks, micro_batches):
    for stage in range(stages):
        held = most = 0
        for turn in turns(stages, stage, chunks, micro_batches):
            held += 1 if turn.is_forward else -1
            most = max(most, held)
        behind = stages - 1 - stage
        assert most == min(chunks * micro_batches, 1 + (behind if chunks == 1 else 2 * behind + (chunks - 1) * stages))
