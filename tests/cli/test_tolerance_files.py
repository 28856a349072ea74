"""A tolerance file that does not belong to the reference, or was spoilt by hand, is refused: what it does not say must
not let a tensor pass."""

from xml.etree import ElementTree

import pytest
from conftest import CHECK, TOLERANCES, changed, model, sealed

OVERRIDE = "overrides:\n  - {pattern: %s, allowed: %s, reason: %s}"

# what to replace in TOLERANCES, by what, and the error line
REFUSED = {
    "another reference": (
        "reference: reference",
        "reference: 2f6c",
        "t.yaml: estimated from the reference run 2f6c, but reference holds run reference; expected the same run: "
        "run `ttrace estimate-tolerance` again with this reference",
    ),
    "another version": (
        "ttrace_tolerance: 4",
        "ttrace_tolerance: 3",
        "t.yaml:1: tolerance file version 3; expected 4: run `ttrace estimate-tolerance` again",
    ),
    "a misspelt key": ("margin: 3", "margins: 3", "t.yaml:1: the file has no 'margin'; expected one"),
    "an additional key": (
        "margin: 3",
        "margin: 3\nslack: 2",
        "t.yaml:12: the file has an unknown key 'slack'; expected ttrace_tolerance, reference, digest, anchor, "
        "perturbed, rerun, estimator, compute_dtype, epsilon, margin, notes, overrides, tensors, coherence, updates, "
        "options, seal, seal_by_key",
    ),
    "a misspelt key of a tensor": (
        "allowed: 0.03}",
        "alowed: 0.03}",
        "t.yaml:16: 'embedding' has no 'allowed'; expected one",
    ),
    "a negative tolerance": (
        "allowed: 0.03}",
        "allowed: -0.03}",
        "t.yaml:16: 'allowed' of 'embedding' is '-0.03'; expected a finite number from 0",
    ),
    "an infinite tolerance": (
        "allowed: 0.03}",
        "allowed: .inf}",
        "t.yaml:16: 'allowed' of 'embedding' is '.inf'; expected a finite number from 0",
    ),
    "a tolerance that is no number": (
        "allowed: 0.03}",
        "allowed: some}",
        "t.yaml:16: 'allowed' of 'embedding' is 'some'; expected a finite number from 0",
    ),
    "a misspelt kind": (
        "  output:",
        "  outptu:",
        "t.yaml:15: 'outptu' is no kind of tensor; expected output, main_grad, ...",
    ),
    "a tensor twice": (
        "    layers.0.mlp: {",
        "    embedding: {",
        "t.yaml:17: 'output' has 'embedding' twice; expected it once",
    ),
    "another epsilon": (
        "epsilon: 1.1920928955078125e-07",
        "epsilon: 0.1",
        "t.yaml:10: epsilon is 0.1; expected 1.1920928955078125e-07, that of float32",
    ),
    "an override without a reason": (
        "overrides: []",
        "overrides:\n  - {pattern: embedding, allowed: 1}",
        "t.yaml:14: an override has no 'reason'; expected one",
    ),
    "an override of an unknown kind": (
        "overrides: []",
        OVERRIDE % ("embedding, kind: outptu", "1", "none"),
        "t.yaml:14: 'outptu' is no kind of tensor; expected output, main_grad, ...",
    ),
    "what is not YAML": (
        "margin: 3",
        "margin: {3",
        "t.yaml:11: end of map flow not found; expected YAML as `ttrace estimate-tolerance` writes it",
    ),
    "a list": (TOLERANCES, "- 1\n", "t.yaml: not one YAML mapping; expected a file of `ttrace estimate-tolerance`"),
    "nothing": (TOLERANCES, "", "t.yaml: not one YAML mapping; expected a file of `ttrace estimate-tolerance`"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_mistake_is_refused_with_its_line(ttrace, reference, candidate, tmp_path, what):
    old, new, message = REFUSED[what]
    assert TOLERANCES.count(old) == 1
    (tmp_path / "t.yaml").write_text(TOLERANCES.replace(old, new))
    candidate()
    assert ttrace.refuses(*CHECK, "-t", "t.yaml") == message


def test_a_file_that_is_not_there_is_named(ttrace, reference, candidate):
    candidate()
    assert ttrace.refuses(*CHECK, "-t", "none.yaml") == (
        "none.yaml: No such file or directory; expected a file of `ttrace estimate-tolerance`"
    )


def test_a_difference_without_a_tolerance_is_untrusted_and_never_the_same(ttrace, reference, candidate, tmp_path):
    (line,) = [line for line in TOLERANCES.splitlines(keepends=True) if line.startswith("    embedding:")]
    (tmp_path / "t.yaml").write_text(sealed(TOLERANCES.replace(line, "")))
    candidate(changed(model(), "embedding", (0, 0), 90))
    assert ttrace.reports(*CHECK, "-t", "t.yaml", "-v", code=1) == (
        "different: the tolerance file does not list a tensor that differs\n"
        "\n"
        "findings, wrong ones first, in order of execution:\n"
        "  verdict    reason        rel_err  allowed  ratio  ranks  tensor\n"
        "  untrusted  no-tolerance  3.66     -        -      -      embedding output, iteration 0, micro-batch 0\n"
        "\n"
        "proof: 3 of 4 floating-point tensors (output 1 of 2)\n"
        "4 compared: 3 pass, 0 fail, 1 untrusted; 0 missing\n"
    )
    # A consumer of JUnit sees failures and no exit code.
    junit = ElementTree.fromstring(ttrace.reports(*CHECK, "-t", "t.yaml", "--junit", "-", code=1))
    assert junit.find("testsuite").get("failures") == "1"
    assert [failure.get("type") for failure in junit.iter("failure")] == ["no-tolerance"]


def test_an_override_counts_and_one_that_fits_nothing_is_noted(ttrace, reference, candidate, tmp_path):
    overrides = OVERRIDE % ("layers.*.mlp", "0.5", "a test")
    overrides += "\n  - {pattern: layers.*.mpl, allowed: 0.5, reason: a typo}"
    (tmp_path / "t.yaml").write_text(sealed(TOLERANCES.replace("overrides: []", overrides)))
    candidate(changed(model(), "layers.0.mlp", (1, 2), 8))
    assert ttrace.reports(*CHECK, "-t", "t.yaml", code=0) == (
        "same\n"
        "\n"
        "note: t.yaml:15: the override 'layers.*.mpl' matches no tensor\n"
        "\n"
        "the override 'layers.*.mlp' (t.yaml:14: a test) allows 0.5 for 1 tensor, of which 1 needs it\n"
        "proof: 3 of 4 floating-point tensors (output 1 of 2)\n"
        "4 compared: 4 pass, 0 fail, 0 untrusted; 0 missing\n"
    )


def test_a_file_without_a_seal_is_named(ttrace, reference, candidate, tmp_path):
    candidate()
    (tmp_path / "t.yaml").write_text(TOLERANCES)
    note = (
        "note: t.yaml: has no seal: nothing says that what it allows was measured (`ttrace estimate-tolerance` seals "
        "what it writes)\n"
    )
    assert note in ttrace.reports(*CHECK, "-t", "t.yaml", code=0)
    (tmp_path / "t.yaml").write_text(sealed(TOLERANCES))
    assert "seal" not in ttrace.reports(*CHECK, "-t", "t.yaml", code=0)
