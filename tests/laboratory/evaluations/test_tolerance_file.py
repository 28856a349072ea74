"""The tolerances that figures and sensitivities take from a file are those that ttrace wrote."""

import pytest

from evaluations.tolerance_file import keep_group, read_tolerances

TEXT = """\
# a remark
reference: reference
tensors:
  output:
    decoder: {samples: [0.01], rerun: 0, estimate: 0.01, floor: 0.0078125, allowed: 0.03}
    "loss:0": {samples: [1e-5], rerun: 0, estimate: 1e-05, floor: 0.0078125, allowed: 0.0234375}
  main_grad:
    layers.2.mlp: {samples: [0.02], rerun: 0, estimate: 0.02, floor: 0.0078125, allowed: 0.06, row: {samples: [0.1], \
estimate: 0.1, responses: 3, floor: 0.01, allowed: 0.3}}
    layers.11.mlp: {samples: [0.01], rerun: 0, estimate: 0.01, floor: 0.0078125, allowed: 0.03}
    layers.2.attention: {samples: [0.01], rerun: 0, estimate: 0.01, floor: 0.0078125, allowed: 0.03}
"""


def test_a_file_is_read_and_cut_down_to_one_tensor_in_all_layers(tmp_path):
    (tmp_path / "all.yaml").write_text(TEXT)
    tensors = read_tolerances(tmp_path / "all.yaml")
    assert len(tensors) == 5 and {("decoder", "output"), ("layers.2.attention", "main_grad")} < set(tensors)
    assert (tensors["loss:0", "output"]["estimate"], tensors["layers.2.mlp", "main_grad"]["allowed"]) == (1e-5, 0.06)
    keep_group(tmp_path / "all.yaml", "layers.2.mlp", "main_grad", tmp_path / "one.yaml")
    group = [("layers.2.mlp", "main_grad"), ("layers.11.mlp", "main_grad")]
    assert read_tolerances(tmp_path / "one.yaml") == {key: tensors[key] for key in group}
    assert (tmp_path / "one.yaml").read_text().startswith("# a remark\nreference: reference\n")


def test_a_line_that_is_no_tolerance_is_refused(tmp_path):
    (tmp_path / "all.yaml").write_text(TEXT + "    decoder: [1, 2]\n")
    with pytest.raises(ValueError, match="no tensor's tolerance"):
        read_tolerances(tmp_path / "all.yaml")
