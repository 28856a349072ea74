"""`ttrace annotate`: a draft can be used as it is."""

from conftest import CHECK, model, shards

from traces import record_run

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


def test_a_draft_doubts_an_axis_where_one_of_another_factoring_fits_as_well(ttrace, tmp_path, reference):
    record_run(tmp_path / "candidate", shards(model()), axes="tp=2/etp=1,ep=2")
    draft = ttrace.reports("annotate", "candidate", "--reference", "reference", code=0)
    assert "  tp_dim: 0  # guess: 1 tensor, rel_err 0; fits as well: ep_dim: 0\n" in draft
