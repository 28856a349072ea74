"""A collector lives as long as the job does, and holds no more memory for it."""

from conftest import HERE, PYTHON, TTRACE, Collected, run

# The index of a rank's file has a row for each tensor, which is kept until the file is closed.
BYTES_OF_A_TENSOR = 600


def growth(trace, iterations, steps):
    """Bytes that the process grows by in a step; the trace."""
    command = [PYTHON, HERE / "programs" / "memory.py", str(steps)]
    if iterations:
        command = [TTRACE, "collect", "-o", trace, "--iterations", iterations, "--", *command]
    process = run(command, timeout=900)
    assert process.returncode in (0, 2), process
    return float(process.stdout), Collected(process, trace)


def test_memory_is_flat_over_recorded_and_unrecorded_steps(tmp_path):
    steps = 1000
    plain, _ = growth(None, "", steps)
    recorded, collected = growth(tmp_path / "recorded", f"0-{steps - 1}", steps)
    assert collected.is_whole(), collected
    before, unreached = growth(tmp_path / "before", f"{steps + 10}", steps)
    assert unreached.code == 2, unreached
    after, first = growth(tmp_path / "after", "0", steps)
    assert first.is_whole(), first
    tensors = collected.tensors() / steps
    print(f"bytes a step: {plain:.0f} without ttrace, {recorded:.0f} recorded ({recorded / tensors:.0f} for each of ")
    print(f"{tensors:.0f} tensors), {before:.0f} before the recorded steps, {after:.0f} after them")
    assert recorded - plain < BYTES_OF_A_TENSOR * tensors
    page = 4096
    assert before - plain < page * 10 / steps and after - plain < page * 10 / steps, (plain, before, after)
