"""The tolerances that figures and sensitivities take from a file are those that ttrace wrote."""

import pytest

from evaluations.tolerance_file import keep_one, read_tolerances

TEXT = """\
# a remark
reference: reference
tensors:
  output:
    decoder: {samples: [0.01], rerun: 0, estimate: 0.01, floor: 0.0078125, allowed: 0.03}
    "loss:0": {samples: [1e-5], rerun: 0, estimate: 1e-05, floor: 0.0078125, allowed: 0.0234375}
  main_grad:
    decoder: {samples: [0.02], rerun: 0, estimate: 0.02, floor: 0.0078125, allowed: 0.06}
"""


def test_a_file_is_read_and_cut_down_to_one_tensor(tmp_path):
    (tmp_path / "all.yaml").write_text(TEXT)
    tensors = read_tolerances(tmp_path / "all.yaml")
    assert set(tensors) == {("decoder", "output"), ("loss:0", "output"), ("decoder", "main_grad")}
    assert (tensors["loss:0", "output"]["estimate"], tensors["decoder", "main_grad"]["allowed"]) == (1e-5, 0.06)
    keep_one(tmp_path / "all.yaml", "decoder", "main_grad", tmp_path / "one.yaml")
    assert read_tolerances(tmp_path / "one.yaml") == {("decoder", "main_grad"): tensors["decoder", "main_grad"]}
    assert (tmp_path / "one.yaml").read_text().startswith("# a remark\nreference: reference\n")


def test_a_line_that_is_no_tolerance_is_refused(tmp_path):
    (tmp_path / "all.yaml").write_text(TEXT + "    decoder: [1, 2]\n")
    with pytest.raises(ValueError, match="no tensor's tolerance"):
        read_tolerances(tmp_path / "all.yaml")
