"""`check --follow` takes iterations of one run, and waits for nothing that cannot come."""

import numpy

from traces import Tensor, record_run

FOLLOW = ("check", "--reference", "reference", "--candidate", "soak", "--follow", "--timeout", "30")


def test_an_iteration_of_another_run_is_refused(ttrace, tmp_path):
    values = numpy.arange(1, 5, dtype="float32")
    record_run(tmp_path / "reference", [[Tensor("mlp", values, iteration=i) for i in range(3)]])
    (tmp_path / "soak").mkdir()
    for i in range(3):
        run_id = "first" if i != 1 else "second"
        record_run(tmp_path / "soak" / f"iteration-{i:06}", [[Tensor("mlp", values, iteration=i)]], run_id=run_id)
    stdout, stderr = ttrace(*FOLLOW, code=2)
    expected = "holds another run (second) than the iterations before it (first); expected one run"
    assert stdout == "" and f"soak/iteration-000001: {expected}" in stderr


def test_a_file_is_not_waited_for(ttrace, reference, tmp_path):
    (tmp_path / "soak").write_text("")
    error = ttrace.refuses(*FOLLOW)
    assert error == "soak: not a directory; expected a run that is collected with --split"
