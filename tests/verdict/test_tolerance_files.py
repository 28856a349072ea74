"""A tolerance file says what was measured of this reference, and what people allow beyond that is seen."""

import json
import re

import numpy
import pytest
from conftest import CHECK
from forged import change, training_run


def negate(values):
    return -values


def override(pattern, allowed, more=""):
    return f"overrides:\n  - {{pattern: '{pattern}', {more}allowed: {allowed}, reason: a test}}"


@pytest.mark.parametrize("allowed", ["1", "5", "1e9", "0.5"])
def test_an_override_of_everything_is_refused(estimated, allowed):
    estimated.edit("overrides: []", override("**", allowed))
    estimated.record("candidate", change(training_run(), negate))
    refusal = estimated.refuses(*CHECK, "-t", "t.yaml")
    assert "the override '**' (allowed " in refusal and refusal.endswith(
        " matches every tensor; expected a pattern with a name in it and less than 1, or --accept-overrides"
    )


@pytest.mark.parametrize("allowed", ["2", "5", "1e9"])
def test_an_override_of_everything_proves_nothing_where_it_is_accepted(estimated, allowed):
    estimated.edit("overrides: []", override("**", allowed))
    estimated.record("candidate", change(training_run(), negate))
    report = estimated.check("-t", "t.yaml", "--accept-overrides", code=2)
    assert report.startswith("could-not-look: too little is proved, of input 0 of 8 (8 noise), ")


def test_an_override_that_allows_any_value_of_a_tensor_is_refused_unless_it_is_accepted(estimated):
    estimated.edit("overrides: []", override("layers.1.mlp", 1, "kind: output, "))
    estimated.record("candidate", change(training_run(9), negate, kind="output", name="layers.1.mlp"))
    assert "(allowed 1) allows any value; expected " in estimated.refuses(*CHECK, "-t", "t.yaml")
    report = estimated.check("-t", "t.yaml", "--accept-overrides", code=0)
    assert report.startswith("same\n")
    assert "the override 'layers.1.mlp' of output (t.yaml:" in report
    assert ": a test) allows 1 for 2 tensors, of which 2 need it\n" in report


def test_what_overrides_excuse_is_counted_and_proves_nothing(estimated):
    estimated.edit("overrides: []", override("layers.[0-2].mlp", 0.9, "kind: output, "))
    estimated.record(
        "candidate", change(training_run(9), lambda values: values * 1.5, kind="output", name="layers.1.mlp")
    )
    report = estimated.check("-t", "t.yaml", code=0)  # two of eight outputs
    assert "allows 0.9 for 6 tensors, of which 2 need it\n" in report and "output 6 of 8" in report
    use = json.loads(estimated.check("-t", "t.yaml", "--json", "-", code=0))["overrides"][0]
    assert (use["pattern"], use["kind"], use["covered"], use["excused"]) == ("layers.[0-2].mlp", "output", 6, 2)

    off = training_run(9)
    for i in range(3):
        off = change(off, lambda values: values * 1.5, kind="output", name=f"layers.{i}.mlp")
    estimated.record("candidate", off)
    report = estimated.check("-t", "t.yaml", code=2)  # six of eight
    assert report.startswith(
        "could-not-look: too little is proved, of output 2 of 8 (6 override); expected half of each kind: mend what "
        "they excuse, or accept it: --accept-overrides\n"
    )
    assert estimated.check("-t", "t.yaml", "--accept-overrides", code=0).startswith("same\n")


def test_tolerances_that_were_edited_are_refused(estimated):
    text = (estimated.directory / "t.yaml").read_text()
    (estimated.directory / "t.yaml").write_text(re.sub(r"allowed: [^}]*}", "allowed: 1e9}", text))
    estimated.record("candidate", change(training_run(), negate))
    assert "; expected " in estimated.refuses(*CHECK, "-t", "t.yaml")
    # Without its seal it is somebody's own.
    text = re.sub(r"seal: .*\n", "", text)
    (estimated.directory / "t.yaml").write_text(
        re.sub(r"floor: [^,]*, allowed: [^}]*}", "floor: 0.3, allowed: 0.9}", text, count=1)
    )
    refusal = estimated.refuses(*CHECK, "-t", "t.yaml")
    assert refusal.startswith("t.yaml: the floor of layers.0.mlp input is 0.3; expected at most 1.86")


def test_numbers_that_were_edited_to_fit_each_other_are_refused(estimated):
    text = (estimated.directory / "t.yaml").read_text()
    changed = re.sub(
        r"(layers.1.mlp: \{samples: )\[[^,]*(, .*), estimate: .*, allowed: [^}]*}",
        r"\1[0.3\2, estimate: 0.3, floor: 0.2, allowed: 0.9}",
        text,
    )
    assert changed != text
    (estimated.directory / "t.yaml").write_text(changed)
    estimated.record("candidate", training_run(9))
    refusal = estimated.refuses(*CHECK, "-t", "t.yaml")
    assert "they are not those that `ttrace estimate-tolerance` wrote" in refusal
    (estimated.directory / "t.yaml").write_text(f"# checked by hand\n{text}\n")
    assert estimated.check("-t", "t.yaml", code=0).startswith("same\n")


def test_one_tolerance_that_was_edited_is_refused_with_its_line(estimated):
    lines = (estimated.directory / "t.yaml").read_text().splitlines()
    (number,) = [i for i, line in enumerate(lines) if "layers.1.mlp:" in line][:1]
    lines[number] = re.sub(r"allowed: [^}]*}", "allowed: 0.9}", lines[number])
    (estimated.directory / "t.yaml").write_text("\n".join(lines))
    estimated.record(
        "candidate", change(training_run(9), lambda values: values * 1.5, kind="input", name="layers.1.mlp")
    )
    refusal = estimated.refuses(*CHECK, "-t", "t.yaml")
    assert refusal.startswith(f"t.yaml:{number + 1}: 'allowed' of 'layers.1.mlp' is 0.9; expected ")
    assert refusal.endswith(", margin * max(estimate, floor): to allow something else, add an override with a reason")


def test_a_reference_of_other_data_under_the_same_run_id_is_refused(estimated):
    estimated.record("candidate", change(training_run(), lambda values: values * numpy.float32(1.02)))
    estimated.record("reference", change(training_run(), lambda values: values * numpy.float32(1.02)))
    refusal = estimated.refuses(*CHECK, "-t", "t.yaml")
    assert re.fullmatch(
        r"t.yaml: estimated from data with digest [0-9a-f]{16}, but reference now holds data with digest [0-9a-f]{16}; "
        r"expected what the reference held then: run `ttrace estimate-tolerance` again with this reference",
        refusal,
    )
    estimated.record("reference", training_run())  # the same data as ever
    estimated.record("candidate", training_run(9))
    assert estimated.check("-t", "t.yaml", code=0).startswith("same\n")


def test_a_file_of_the_former_version_is_refused(estimated):
    estimated.edit("ttrace_tolerance: 4", "ttrace_tolerance: 3")
    estimated.record("candidate", training_run(9))
    assert estimated.refuses(*CHECK, "-t", "t.yaml").endswith(
        "tolerance file version 3; expected 4: run `ttrace estimate-tolerance` again"
    )


def test_a_file_of_too_few_runs_is_refused(estimated):
    text = (estimated.directory / "t.yaml").read_text()
    text = text.replace("  - {run: p2, seed: 2}\n  - {run: p3, seed: 3}\n", "")
    text = re.sub(r"samples: \[([^,]*),[^]]*\]", r"samples: [\1]", text)
    (estimated.directory / "t.yaml").write_text(text)
    estimated.record("candidate", training_run(9))
    assert estimated.refuses(*CHECK, "-t", "t.yaml").endswith(
        "1 different perturbed runs of 1; expected 3 or more, each once"
    )


def test_a_file_of_another_compute_dtype_is_refused(estimated):
    text = (estimated.directory / "t.yaml").read_text()
    (estimated.directory / "t.yaml").write_text(re.sub(r"seal: .*\n", "", text))
    estimated.edit(
        "compute_dtype: float32\nepsilon: 1.1920928955078125e-07", "compute_dtype: float16\nepsilon: 0.0009765625"
    )
    estimated.record("candidate", training_run(9))
    assert estimated.refuses(*CHECK, "-t", "t.yaml") == (
        "t.yaml: estimated in float16, but reference computes in 'float32'; expected the same dtype: run "
        "`ttrace estimate-tolerance` again with this reference"
    )
