"""Models that are large or oddly named."""

import pytest
from conftest import HERE, TTRACE, Collected, run

from sweeps import warm


@pytest.mark.parametrize("fault", ["odd_names+long_names+long_class_name+deep_model"])
def test_names_and_depths_that_no_trace_can_hold_end_no_recording(collect_job, fault):
    collected = collect_job(fault)
    assert collected.is_whole(), collected
    assert all(len(message) < 2500 and message.isprintable() for message in collected.messages), collected
    verified = run([TTRACE, "inspect", collected.trace, "--verify"])
    assert "every checksum agrees" in verified.stdout, verified


def test_many_modules_are_recorded(tmp_path, nightly):
    count = 100_000 if nightly else 1_000
    command = warm.command(HERE / "programs" / "many_modules.py", count)
    plain = run(command, timeout=600)
    process = run([TTRACE, "collect", "-o", tmp_path / "trace", "--", *command], timeout=900)
    collected = Collected(process, tmp_path / "trace")
    assert (collected.code, collected.stdout) == (0, plain.stdout), collected
    print(collected.messages)
    # Of each module input, output and the output's gradient; of each parameter five kinds.
    assert collected.tensors() == 8 * count + 4
