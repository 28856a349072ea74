"""For unit tests: one module's forward and backward beside those of its reference."""

import os
import pathlib
from collections.abc import Callable, Sequence
from typing import NamedTuple

from .recording import record
from .reports import Report, check, estimate_tolerance


def assert_same(
    candidate: "str | os.PathLike[str]",
    reference: "str | os.PathLike[str]",
    *,
    tolerance: "str | os.PathLike[str]" = "",
    annotations: "str | os.PathLike[str]" = "",
    settings: Sequence[str] = (),
    axes: str = "",
    only: str = "",
    strict: bool = False,
) -> Report:
    """Fails unless `ttrace.check` says *same* of the two traces; its options are those of `check`. Also where it is an
    open question: what was compared proves too little. The message begins with the report's sentence, and the report
    follows. Without a tolerance, what is not equal bit for bit differs. Raises InputError where it could not look.

        def test_the_parallel_layer(tmp_path):
            reference = ttrace.testing.record_reference(tmp_path / "reference", lambda: step(plain_layer))
            with ttrace.record(tmp_path / "candidate"):
                step(parallel_layer)
            ttrace.testing.assert_same(tmp_path / "candidate", reference.trace, tolerance=reference.tolerance)

    >>> report = ttrace.testing.assert_same("correct", "reference", annotations="gpt.yaml")
    >>> report.counts
    Counts(compared=5, passed=5, fail=0, untrusted=0, missing=0, not_seen=0)
    """
    __tracebackhide__ = True  # pytest shows the line of the test
    report = check(
        candidate,
        reference,
        tolerance=tolerance,
        annotations=annotations,
        settings=settings,
        axes=axes,
        only=only,
        strict=strict,
    )
    if not report.same:
        raise AssertionError(f"{report.sentence}\n\n{report}")
    return report


class Reference(NamedTuple):
    trace: pathlib.Path
    tolerance: pathlib.Path


def record_reference(
    directory: "str | os.PathLike[str]", run: Callable[[], object], *, axes: str = "", seeds: int = 3
) -> Reference:
    """Records what `run()` computes as a reference, in `directory`/reference, and measures what rounding alone does to
    it: `run` is called again with perturbed activations, once for each of `seeds`, and once more as it is. Each call
    begins with PyTorch's random state as it is now, which stays. `run` leaves no gradients behind that its next call
    would add to. Raises InputError."""
    import torch

    home = pathlib.Path(directory)
    reference, rerun, tolerance = home / "reference", home / "rerun", home / "tolerance.yaml"
    perturbed = [home / f"perturbed-{seed}" for seed in range(1, seeds + 1)]
    runs = {reference: None, **dict(zip(perturbed, range(1, seeds + 1), strict=True)), rerun: None}
    for trace, seed in runs.items():
        with torch.random.fork_rng(), record(trace, axes=axes, perturb=seed):
            run()
    estimate_tolerance(reference, perturbed, tolerance, rerun=rerun, axes=axes)
    return Reference(reference, tolerance)
