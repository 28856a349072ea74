"""`ttrace explain`: where shards lie, and which rule says so."""

from conftest import ANNOTATIONS, model, shards

from traces import record_run

EXPLAIN = ("explain", "candidate", "-a", "a.yaml")


def test_an_explanation_judges_nothing(ttrace, reference, candidate):
    candidate()
    assert (
        ttrace.reports(*EXPLAIN, "--reference", "reference", "mlp.weight", code=0)
        == """\
layers.0.mlp.weight main_grad
  rule a.yaml:5: 'layers.*.mlp.weight'
  reference: [8, 8], float32; 1 tensor: iteration 0
    rank  coordinates  local       logical     replica  term
    0     -            [0:8, 0:8]  [0:8, 0:8]  0        0
  candidate: [8, 8], float32; 1 tensor: iteration 0
    tp (2): splits dimension 0, contiguous
    rank  coordinates  local       logical     replica  term
    0     tp=0         [0:4, 0:8]  [0:4, 0:8]  0        0
    1     tp=1         [0:4, 0:8]  [4:8, 0:8]  0        0
"""
    )
    assert ttrace.refuses(*EXPLAIN, "mpl.weight") == (
        "pattern 'mpl.weight': no tensor's name matches; expected something like layers.0.mlp.weight"
    )


def test_a_trace_is_explained_without_a_reference(ttrace, candidate):
    candidate()
    assert (
        ttrace.reports(*EXPLAIN, "embedding", code=0)
        == """\
embedding output
  rule a.yaml:1: 'embedding': output
  candidate: [4, 8], float32; 1 tensor: iteration 0, micro-batch 0
    tp (2): splits dimension 1, contiguous
    rank  coordinates  local       logical     replica  term
    0     tp=0         [0:4, 0:4]  [0:4, 0:4]  0        0
    1     tp=1         [0:4, 0:4]  [0:4, 4:8]  0        0
"""
    )


def test_the_axes_are_those_of_the_factoring_that_the_tensor_lies_on(ttrace, tmp_path):
    record_run(tmp_path / "candidate", shards(model()), axes="tp=2/etp=1,ep=2")
    (tmp_path / "a.yaml").write_text(ANNOTATIONS.replace("  tp_dim: 0", "  ep_dim: 0"))
    text = ttrace.reports(*EXPLAIN, "mlp.weight", code=0)
    assert "    ep (2): splits dimension 0, contiguous\n" in text and "    tp (2)" not in text
