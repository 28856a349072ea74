"""`ttrace annotate`: a draft can be used as it is; a lint says what to mend; `check --explain` shows where shards lie."""

import json

from conftest import ANNOTATIONS, CHECK, model, shards

from traces import record_run

LINT = ("annotate", "candidate", "--lint", "a.yaml")

DRAFT = """\
# Drafted by `ttrace annotate` (3 placements: 3 certain, 0 guessed; 0 remarks).
# Read what is called a guess: what was measured is what a program does, not what it should do.
embedding:
  output:
    tp_dim: 1  # certain: 1 tensor, rel_err 0; otherwise 0.64
mlp:
  output:
    tp: replicate  # certain: 1 tensor, rel_err 0; otherwise 1
mlp.weight:
  tp_dim: 0  # certain: 1 tensor, rel_err 0; otherwise 0.58
"""


def test_a_draft_places_a_correct_program_and_no_wrong_one(ttrace, reference, candidate):
    candidate()
    assert ttrace.reports("annotate", "candidate", "--reference", "reference", "-o", "draft.yaml", code=0) == (
        "draft.yaml: 3 placements: 3 certain, 0 guessed; 0 remarks\n"
    )
    assert (ttrace.directory / "draft.yaml").read_text() == DRAFT
    check = (*CHECK[:-1], "draft.yaml")
    ttrace.reports(*check, code=0)
    # The same program with two ranks' parts swapped.
    record_run(ttrace.directory / "swapped", shards(model())[::-1], axes="tp=2")
    report = ttrace.reports(*check[:4], "swapped", *check[5:], code=1)
    assert "first wrong tensor: embedding output" in report


def test_without_a_place_to_write_it_a_draft_goes_to_stdout(ttrace, reference, candidate):
    candidate()
    assert ttrace.reports("annotate", "candidate", "--reference", "reference", code=0) == DRAFT


def test_a_draft_made_from_annotations_holds_them(ttrace, reference, candidate):
    candidate()
    (ttrace.directory / "some.yaml").write_text("# mine\nembedding:\n  output: {tp_dim: 1}\n")
    draft = ttrace.reports("annotate", "candidate", "--reference", "reference", "-a", "some.yaml", code=0)
    assert draft.startswith("# mine\nembedding:\n  output: {tp_dim: 1}\n\n# Drafted")
    assert draft.count("embedding") == 1 and "mlp.weight:" in draft


def test_a_draft_that_cannot_be_written_is_refused(ttrace, reference, candidate):
    candidate()
    message = ttrace.refuses("annotate", "candidate", "--reference", "reference", "-o", "no/such/draft.yaml")
    assert message == "no/such/draft.yaml: cannot be written; expected a file"


def test_a_lint_of_annotations_that_fit_finds_nothing(ttrace, candidate):
    candidate()
    assert ttrace.reports(*LINT, code=0) == "0 to mend, 0 to know of\n"


def test_a_lint_names_file_and_line(ttrace, candidate):
    candidate()
    (ttrace.directory / "a.yaml").write_text(ANNOTATIONS + "layers.*.attn:\n  output: {cp_dim: 0}\n")
    assert ttrace.reports(*LINT, code=1) == (
        "a.yaml:7: 'layers.*.attn': output: places no tensor of the trace [unused-rule]\n"
        "note: a.yaml:8: 'layers.*.attn': output: axis 'cp' is not in the trace [tp=2], so it has size 1 "
        "[absent-axis]\n"
        "1 to mend, 1 to know of\n"
    )
    report = json.loads(ttrace.reports(*LINT, "--json", code=1))
    assert report["schema"] == "ttrace-lint/1"
    assert [(m["check"], m["mistake"], m["line"]) for m in report["messages"]] == [
        ("unused-rule", True, 7),
        ("absent-axis", False, 8),
    ]


def test_a_lint_of_contradictory_annotations_could_not_look(ttrace, candidate):
    candidate()
    (ttrace.directory / "a.yaml").write_text("embedding:\n  output: {tq_dim: 1}\n")
    assert ttrace.refuses(*LINT) == "a.yaml:2: 'embedding': output: axis 'tq' is not an axis of the trace [tp]"


def test_an_explanation_judges_nothing(ttrace, reference, candidate):
    candidate()
    assert (
        ttrace.reports(*CHECK, "--explain", "mlp.weight", code=0)
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
    assert ttrace.refuses(*CHECK, "--explain", "mpl.weight") == (
        "--explain 'mpl.weight': no tensor's name matches; expected something like layers.0.mlp.weight"
    )


def test_an_axis_of_another_factoring_is_in_the_trace(ttrace, tmp_path, reference):
    record_run(tmp_path / "candidate", shards(model()), axes="tp=2/etp=1,ep=2")
    (tmp_path / "a.yaml").write_text(ANNOTATIONS.replace("  tp_dim: 0", "  ep_dim: 0"))
    ttrace.reports(*CHECK, code=0)
    assert ttrace.reports(*LINT, code=0) == "0 to mend, 0 to know of\n"
    assert "    ep (2): splits dimension 0, contiguous\n" in ttrace.reports(*CHECK, "--explain", "mlp.weight", code=0)
    draft = ttrace.reports("annotate", "candidate", "--reference", "reference", code=0)
    assert "  tp_dim: 0  # guess: 1 tensor, rel_err 0; fits as well: ep_dim: 0\n" in draft
