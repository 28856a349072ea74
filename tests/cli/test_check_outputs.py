"""What check prints, whole. Each expected output is a file under expected/."""

import pathlib
from dataclasses import replace

import numpy
import pytest
from conftest import CHECK, TOLERANCES, changed, model, sealed, shards

from traces import Tensor, record_run

EXPECTED = pathlib.Path(__file__).parent / "expected"
BIG, SMALL = 90.0, 4.0625  # for an element that is 4: far beyond what TOLERANCES allow, and within


def wrong():
    """The right half of the embedding is wrong, which only rank 1 computes, and what follows from it."""
    tensors = changed(model(), "embedding", (slice(None), slice(4, 8)), BIG)
    return changed(changed(tensors, "layers.0.mlp", (1, 2), BIG), "loss", (), 2.75)


def slightly_off():
    return changed(model(), "layers.0.mlp", (1, 2), SMALL)


def without(name):
    return [tensor for tensor in model() if tensor.name != name]


def all_zero():
    return [tensor.with_values(numpy.zeros_like(tensor.values)) for tensor in model()]


def tolerances_of_deep():
    (line,) = [line for line in TOLERANCES.splitlines(keepends=True) if line.startswith("    layers.0.mlp: ")]
    return sealed(TOLERANCES.replace(line, "".join(line.replace("layers.0", f"layers.{i}") for i in range(12))))


def deep(value):
    """A model of more tensors than the ten that a report begins with."""
    return [Tensor(f"layers.{i}.mlp", numpy.full((4, 8), value, "float32")) for i in range(12)]


# name of the expected output -> reference, candidate, options, exit code
CASES = {
    "same.txt": (model(), slightly_off(), ["-t", "t.yaml"], 0),
    "same.json": (model(), slightly_off(), ["-t", "t.yaml", "--json", "-"], 0),
    "same.xml": (model(), slightly_off(), ["-t", "t.yaml", "--junit", "-"], 0),
    "different.txt": (model(), wrong(), ["-t", "t.yaml"], 1),
    "different.json": (model(), wrong(), ["-t", "t.yaml", "--json", "-"], 1),
    "different.xml": (model(), wrong(), ["-t", "t.yaml", "--junit", "-"], 1),
    "without_tolerances.txt": (model(), slightly_off(), [], 1),
    "a_missing_tensor.txt": (model(), without("layers.0.mlp"), ["-t", "t.yaml"], 1),
    "a_missing_tensor.json": (model(), without("layers.0.mlp"), ["-t", "t.yaml", "--json", "-"], 1),
    "a_missing_tensor.xml": (model(), without("layers.0.mlp"), ["-t", "t.yaml", "--junit", "-"], 1),
    "an_additional_tensor.txt": (without("layers.0.mlp"), model(), ["-t", "t.yaml"], 1),
    "different.csv": (model(), wrong(), ["-t", "t.yaml", "--csv", "-"], 1),
    "one_untrusted.txt": (
        changed(model(), "embedding", ..., 0),
        changed(model(), "embedding", ..., 0),
        ["-t", "t.yaml"],
        0,
    ),
    "strict.txt": (
        changed(model(), "embedding", ..., 0),
        changed(model(), "embedding", ..., 0),
        ["-t", "t.yaml", "--strict"],
        1,
    ),
    "untrusted_only.txt": (all_zero(), all_zero(), ["-t", "t.yaml"], 2),
    "untrusted_only.json": (all_zero(), all_zero(), ["-t", "t.yaml", "--json", "-"], 2),
    "untrusted_only.xml": (all_zero(), all_zero(), ["-t", "t.yaml", "--junit", "-"], 2),
    "only_the_right_ones.txt": (model(), wrong(), ["-t", "t.yaml", "--only", "layers.0.mlp.weight"], 0),
    "only_the_layer.txt": (model(), wrong(), ["-t", "t.yaml", "--only", "layers.**"], 1),
    "a_cascade.txt": (deep(1), deep(2), ["-t", "t.yaml"], 1),
    "the_first_ten.txt": (deep(1), deep(2), ["-t", "t.yaml", "-v"], 1),
    "quiet.txt": (model(), wrong(), ["-t", "t.yaml", "-q"], 1),
    "all.txt": (deep(1), deep(2), ["-t", "t.yaml", "--all"], 1),
    "many_without_tolerances.txt": (deep(1), deep(2), [], 1),
    "many_roundings_without_tolerances.txt": (deep(1), deep(1 + 2**-23), [], 1),
    "many_roundings_quiet.txt": (deep(1), deep(1 + 2**-23), ["-q"], 1),
}


@pytest.mark.parametrize("name", CASES)
def test_check_prints(ttrace, candidate, tmp_path, name):
    reference, tensors, options, code = CASES[name]
    if len(reference) == len(deep(0)):
        (tmp_path / "t.yaml").write_text(tolerances_of_deep())
    record_run(tmp_path / "reference", [reference])
    candidate(tensors)
    assert ttrace.reports(*CHECK, *options, code=code) == (EXPECTED / name).read_text()


def test_the_same_report_goes_to_files_beside_the_text(ttrace, reference, candidate, tmp_path):
    candidate(wrong())
    text = ttrace.reports(*CHECK, "-t", "t.yaml", "--json", "r.json", "--junit", "r.xml", code=1)
    assert text == (EXPECTED / "different.txt").read_text()
    assert (tmp_path / "r.json").read_text() == (EXPECTED / "different.json").read_text()
    assert (tmp_path / "r.xml").read_text() == (EXPECTED / "different.xml").read_text()


@pytest.mark.parametrize("threads", ["1", "2", "7"])
def test_the_report_is_the_same_for_any_number_of_threads(ttrace, reference, candidate, threads):
    candidate(wrong())
    report = ttrace.reports(*CHECK, "-t", "t.yaml", "--json", "-", "--threads", threads, code=1)
    assert report == (EXPECTED / "different.json").read_text()


def test_the_command_that_shows_more_shows_all(ttrace, candidate, tmp_path):
    (tmp_path / "t.yaml").write_text(tolerances_of_deep())
    record_run(tmp_path / "reference", [deep(1)])
    candidate(deep(2))
    (more,) = [line for line in ttrace.reports(*CHECK, "-t", "t.yaml", "-v", code=1).splitlines() if "... and" in line]
    program, *words = more.split(": ")[1].split()
    assert program == "ttrace"
    assert ttrace.reports(*words, code=1) == (EXPECTED / "all.txt").read_text()


def test_a_wrong_copy_is_named_by_its_rank(ttrace, reference, tmp_path):
    ranks = shards(model())
    ranks[1] = changed(ranks[1], "layers.0.mlp", (1, 2), BIG)
    record_run(tmp_path / "candidate", ranks, axes="tp=2")
    assert ttrace.reports(*CHECK, "-t", "t.yaml", code=1) == (EXPECTED / "a_wrong_copy.txt").read_text()


def test_later_microbatches_are_findings_of_their_own(ttrace, tmp_path, candidate):
    def two(first, second):
        return first + [replace(tensor, microbatch=1) for tensor in second if tensor.microbatch == 0]

    record_run(tmp_path / "reference", [two(model(), model())])
    candidate(two(model(), wrong()))
    report = ttrace.reports(*CHECK, "-t", "t.yaml", code=1)
    assert report == (EXPECTED / "a_wrong_microbatch.txt").read_text()


def test_a_run_held_against_itself_is_noted_where_that_is_allowed(ttrace, reference):
    words = ("check", "--reference", "reference", "--candidate", "reference", "--allow-same-run")
    assert ttrace.reports(*words, code=0) == (
        "same\n"
        "\n"
        "note: reference and candidate are one and the same run (--allow-same-run)\n"
        "\n"
        "proof: 4 of 4 floating-point tensors\n"
        "4 compared: 4 pass, 0 fail, 0 untrusted; 0 missing\n"
    )
