"""`ttrace annotate`: a draft can be used as it is."""

from dataclasses import replace

import numpy
import pytest
from conftest import CHECK, model, shards

from traces import Tensor, record_run

DRAFT = """\
# Drafted by `ttrace annotate` (2 placements: 2 certain, 0 guessed; 1 needs no rule; 0 remarks).
# Seen on candidate (tp=2).
# Read what is called a guess: what was measured is what a program does, not what it should do. Lines that begin
# with #? do not count: they would excuse a sum that was forgotten or made twice, or nothing that was seen
# fits them. Where the program means it so, take the #? away.
parallelism:
  known_axes: [tp]  # along others, tensors lie as their shapes say
embedding:
  output:
    tp_dim: 1  # certain on tp=2: 1 tensor, rel_err 0; otherwise 0.64
mlp.weight:
  tp_dim: 0  # certain on tp=2: 1 tensor, rel_err 0; otherwise 0.58
"""


def test_a_draft_places_a_correct_program_and_no_wrong_one(ttrace, reference, candidate):
    candidate()
    assert ttrace.reports("annotate", "candidate", "--reference", "reference", "-o", "draft.yaml", code=0) == (
        "draft.yaml: 2 placements: 2 certain, 0 guessed; 1 needs no rule; 0 remarks\n"
    )
    assert (ttrace.directory / "draft.yaml").read_text() == DRAFT
    check = (*CHECK[:-1], "draft.yaml")
    ttrace.reports(*check, code=0)
    # The same program with two ranks' parts swapped.
    record_run(ttrace.directory / "swapped", shards(model())[::-1], axes="tp=2")
    report = ttrace.reports(*check[:4], "swapped", *check[5:], code=1)
    assert "first wrong tensor: embedding output" in report


def test_a_layer_that_lies_otherwise_than_its_sisters_is_no_rule_of_its_own(ttrace, tmp_path):
    values = [numpy.random.default_rng(i).standard_normal((8, 6)).astype("float32") for i in range(4)]

    def layers(parts):
        return [Tensor(f"layers.{i}.w", part, kind="param", microbatch=-1) for i, part in enumerate(parts)]

    record_run(tmp_path / "reference", [layers(values)])
    ranks = [[numpy.split(whole, 2)[rank] for whole in values] for rank in range(2)]
    quarters = numpy.split(values[1], 4)  # as a zigzag split has them
    ranks[0][1], ranks[1][1] = numpy.concatenate(quarters[::3]), numpy.concatenate(quarters[1:3])
    record_run(tmp_path / "candidate", [layers(parts) for parts in ranks], axes="tp=2")
    ttrace.reports("annotate", "candidate", "--reference", "reference", "-o", "draft.yaml", code=0)
    assert "layers.1" not in (tmp_path / "draft.yaml").read_text()
    report = ttrace.reports(*CHECK[:-1], "draft.yaml", code=1)
    assert "first wrong tensor: layers.1.w param" in report and ", 1 fail," in report


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
    assert message == "no/such/draft.yaml: cannot be written (No such file or directory); expected a file"


def test_a_draft_doubts_an_axis_where_one_of_another_factoring_fits_as_well(ttrace, tmp_path, reference):
    record_run(tmp_path / "candidate", shards(model()), axes="tp=2/etp=1,ep=2")
    draft = ttrace.reports("annotate", "candidate", "--reference", "reference", code=0)
    assert "  tp_dim: 0  # guess on tp=2/ep=2: 1 tensor, rel_err 0; fits as well: ep_dim: 0\n" in draft


def columns(tensors, ranks):
    """The tensors of each rank: the embedding's columns are split, all else is whole."""
    parts = numpy.split(tensors[0].values, ranks, axis=1)
    return [[tensors[0].with_values(part), *tensors[1:]] for part in parts]


def test_a_draft_holds_on_other_meshes(ttrace, tmp_path, reference, candidate):
    """Drafted on tp, used on tp, on cp, and on one rank: nothing in it speaks of a mesh that is not there."""
    candidate()
    record_run(tmp_path / "columns", columns(model(), 2), axes="cp=2")
    record_run(tmp_path / "single", [model()])
    ttrace.reports("annotate", "candidate", "--reference", "reference", "-o", "draft.yaml", code=0)
    for other in ("candidate", "columns", "single"):
        check = ("check", "--reference", "reference", "--candidate", other, "-a", "draft.yaml")
        assert "4 compared: 4 pass" in ttrace.reports(*check, code=0)


def test_a_draft_of_several_candidates_serves_each(ttrace, tmp_path, reference, candidate):
    candidate()
    record_run(tmp_path / "columns", columns(model(), 2), axes="cp=2")
    summary = ttrace.reports("annotate", "candidate", "columns", "--reference", "reference", "-o", "draft.yaml", code=0)
    assert summary == "draft.yaml: 2 placements: 2 certain, 0 guessed; 1 needs no rule; 0 remarks\n"
    draft = (tmp_path / "draft.yaml").read_text()
    assert "# Seen on A: candidate (tp=2).\n# Seen on B: columns (cp=2).\n" in draft
    assert "    tp_dim: 1  # certain on A (tp=2): 1 tensor, rel_err 0; otherwise 0.64\n" in draft
    assert "    cp_dim: 1  # certain on B (cp=2): 1 tensor, rel_err 0; otherwise 0.64\n" in draft
    for trace in ("candidate", "columns"):
        ttrace.reports("check", "--reference", "reference", "--candidate", trace, "-a", "draft.yaml", code=0)
        assert ttrace.reports("lint", trace, "-a", "draft.yaml", "--reference", "reference", code=0)


def test_axes_are_said_of_those_traces_that_do_not_say_theirs(ttrace, tmp_path, reference, candidate):
    candidate()
    record_run(tmp_path / "silent", columns(model(), 2))
    command = ("annotate", "candidate", "silent", "--reference", "reference")
    assert "nothing says how its 2 ranks are arranged" in ttrace.refuses(*command)
    assert "# Seen on B: silent (cp=2).\n" in ttrace.reports(*command, "--axes", "cp=2", code=0)


@pytest.mark.parametrize("name", ["#", "#1", ":", ":x", "[", "*", "..", ".a."])
def test_a_tensor_of_an_odd_name_is_drafted(ttrace, tmp_path, name):
    (tensor, *_) = model()
    record_run(tmp_path / "reference", [[replace(tensor, name=name)]])
    parts = numpy.split(tensor.values, 2, axis=1)
    record_run(tmp_path / "candidate", [[replace(tensor, name=name, values=part)] for part in parts], axes="tp=2")
    draft = ttrace.reports("annotate", "candidate", "--reference", "reference", code=0)
    assert ("tp_dim: 1  # certain on tp=2: 1 tensor, rel_err 0" in draft) != name.startswith(".")
    ttrace.reports("annotate", "candidate", code=0)
