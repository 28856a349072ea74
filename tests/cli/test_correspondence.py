"""Two implementations of one model, with names and layouts of their own: check --correspondence."""

import json
import pathlib
import re

import numpy
import pytest

from traces import Tensor, record_run

SOURCE = pathlib.Path(__file__).parents[2]

# Two groups of two query heads, a key head and a value head each; heads of four. Two layers.
GROUPS, HEADS, SIZE, HIDDEN, BATCH, SEQUENCE = 2, 2, 4, 6, 2, 3

RULES = """\
sides: [plain, fused]
sizes:
  d: 4
activations: b s ... -> s b ...
embed: {is: embedding, weight: v c -> (v + _) c}
layers.{i}: decoder.{i}
layers.{i}.{q,k,v}:
  is: decoder.{i}.qkv
  weight: (g n d) c, (g d) c, (g d) c -> (g (n + 1 + 1) d) c
  input: b s c -> s b c
  output: b s (g n d), b s (g d), b s (g d) -> s b (g (n + 1 + 1) d)
layers.{i}.experts.{e}: {is: 'decoder.{i}.experts', weight: f c -> e c f}
"""


def numbers(*shape, seed):
    return numpy.random.default_rng(seed).standard_normal(shape).astype("float32")


def parameter_kinds(name, values):
    return [Tensor(name, values * (1 + at), kind, microbatch=-1) for at, kind in enumerate(("param", "main_grad"))]


def plain():
    """The model as one program has it."""
    tensors = parameter_kinds("embed.weight", numbers(5, HIDDEN, seed=1))
    for layer in range(2):
        at = f"layers.{layer}"
        for part, heads in (("q", GROUPS * HEADS), ("k", GROUPS), ("v", GROUPS)):
            seed = 10 * layer + len(part) + heads + ord(part)
            tensors += parameter_kinds(f"{at}.{part}.weight", numbers(heads * SIZE, HIDDEN, seed=seed))
            tensors.append(Tensor(f"{at}.{part}", numbers(BATCH, SEQUENCE, HIDDEN, seed=layer), "input"))
            tensors.append(Tensor(f"{at}.{part}", numbers(BATCH, SEQUENCE, heads * SIZE, seed=seed + 1)))
        for expert in range(3):
            tensors += parameter_kinds(f"{at}.experts.{expert}.weight", numbers(7, HIDDEN, seed=100 + expert))
        tensors.append(Tensor(at, numbers(BATCH, SEQUENCE, HIDDEN, seed=50 + layer)))
        tensors.append(Tensor(f"{at}.rope", numbers(SEQUENCE, SIZE, seed=60)))  # the other program has no such thing
    return [*tensors, Tensor("loss", numpy.float32(2.5), "scalar")]


def fused_rows(q, k, v, axis):
    """q, k and v by groups, along an axis."""
    parts = [numpy.moveaxis(part, axis, 0).reshape(GROUPS, -1, *numpy.delete(part.shape, axis)) for part in (q, k, v)]
    rows = numpy.concatenate(parts, 1)
    return numpy.moveaxis(rows.reshape(-1, *rows.shape[2:]), 0, axis)


def fused(padding=3, fuse=fused_rows):
    """The same as the other has it."""
    of = {(tensor.name, tensor.kind): tensor.values for tensor in plain()}
    tensors = []
    for kind in ("param", "main_grad"):
        weight = numpy.pad(of["embed.weight", kind], ((0, padding), (0, 0)))
        tensors.append(Tensor("embedding.weight", weight, kind, microbatch=-1))
    for layer in range(2):
        old, new = f"layers.{layer}", f"decoder.{layer}"
        for kind in ("param", "main_grad"):
            weight = fuse(*(of[f"{old}.{part}.weight", kind] for part in "qkv"), 0)
            tensors.append(Tensor(f"{new}.qkv.weight", weight, kind, microbatch=-1))
            stacked = numpy.stack([of[f"{old}.experts.{expert}.weight", kind].T for expert in range(3)])
            tensors.append(Tensor(f"{new}.experts.weight", stacked, kind, microbatch=-1))
        tensors.append(Tensor(f"{new}.qkv", of[f"{old}.q", "input"].swapaxes(0, 1), "input"))
        output = fuse(*(of[f"{old}.{part}", "output"] for part in "qkv"), 2)
        tensors.append(Tensor(f"{new}.qkv", output.swapaxes(0, 1)))
        tensors.append(Tensor(f"{new}:0", of[old, "output"].swapaxes(0, 1)))
        tensors.append(Tensor(f"{new}:1", numbers(2, seed=9)))  # a second result, which the other lacks
    return [*tensors, Tensor("loss", numpy.float32(2.5), "scalar")]


@pytest.fixture
def check(ttrace, tmp_path):
    """Checks one list of tensors against another, and returns the report."""
    (tmp_path / "rules.yaml").write_text(RULES)

    def run(reference, candidate, expect=0):
        record_run(tmp_path / "reference", [reference])
        record_run(tmp_path / "candidate", [candidate])
        words = ("check", "--reference", "reference", "--candidate", "candidate", "--correspondence", "rules.yaml")
        return json.loads(ttrace.reports(*words, "--json", "-", code=expect))

    return run


def test_the_same_model_in_both_directions(check):
    report = check(plain(), fused())
    # Of either layer: three weights and three experts in two kinds, three inputs, three outputs and the layer's own.
    assert report["counts"]["pass"] == 2 * (12 + 3 + 3 + 1) + 2 + 1
    assert any("2 tensors of the reference have no counterpart" in note for note in report["notes"])
    assert any("2 tensors of the candidate have no counterpart" in note for note in report["notes"])
    assert report["without_counterpart"] == {
        "reference": {"tensors": 2, "names": ["layers.#.rope"]},
        "candidate": {"tensors": 2, "names": ["decoder.#:1"]},
    }
    assert report["verdict"] == "same"


def test_a_name_that_is_several_has_a_list_of_rules(ttrace, tmp_path):
    """One program's model returns what a module inside of the other's does, as torchtitan's with its loss apart."""
    inner, tokens = numbers(BATCH, SEQUENCE, HIDDEN, seed=1), numpy.arange(6).reshape(BATCH, SEQUENCE)
    record_run(tmp_path / "reference", [[Tensor("(model)", tokens, "input"), Tensor("(model)", inner)]])
    rules = "(model): [{is: '(model):ids', input: same, output: none}, {is: body, input: none}]\n"
    (tmp_path / "rules.yaml").write_text(rules)
    for wrong in (0, 1):
        candidate = [Tensor("(model):ids", tokens, "input"), Tensor("(model):loss", numbers(1, seed=2))]
        record_run(tmp_path / f"candidate{wrong}", [[*candidate, Tensor("body", inner + wrong)]])
        words = (
            "check",
            "--reference",
            "reference",
            "--candidate",
            f"candidate{wrong}",
            "--correspondence",
            "rules.yaml",
        )
        report = json.loads(ttrace.reports(*words, "--json", "-", code=wrong))
        assert report["counts"]["compared"] == 2
        assert [(finding["name"], finding["kind"]) for finding in report["findings"]] == [("(model)", "output")] * wrong


def test_the_fused_program_as_the_reference(check):
    report = check(fused(), plain())
    # Of either layer: the fused weight and the experts in two kinds, an input, an output and the layer's own.
    assert report["counts"]["pass"] == 2 * (4 + 1 + 1 + 1) + 2 + 1
    assert report["verdict"] == "same"


def test_heads_in_another_order_are_found_where_they_are(check):
    report = check(plain(), fused(fuse=lambda q, k, v, axis: numpy.concatenate([q, k, v], axis)), expect=1)
    wrong = {finding["name"] for finding in report["findings"] if finding["verdict"] == "fail"}
    assert wrong == {f"layers.{layer}.{part}{what}" for layer in range(2) for part in "qkv" for what in ("", ".weight")}
    message = report["root_cause"]["message"]
    assert message.startswith("layers.0.q.weight param, iteration 0: the candidate's decoder.0.qkv.weight: rel_err")


def test_what_a_rule_names_is_missing_where_it_is_not(check):
    without = [tensor for tensor in fused() if (tensor.name, tensor.kind) != ("decoder.1.experts.weight", "main_grad")]
    report = check(plain(), without, expect=1)
    missing = {finding["name"] for finding in report["findings"] if finding["verdict"] == "missing"}
    assert missing == {f"layers.1.experts.{expert}.weight" for expert in range(3)}


def test_a_part_of_a_fused_tensor_that_is_missing_makes_it_missing(check):
    without = [tensor for tensor in plain() if (tensor.name, tensor.kind) != ("layers.0.k.weight", "param")]
    report = check(fused(), without, expect=1)
    missing = {(finding["name"], finding["kind"]) for finding in report["findings"] if finding["verdict"] == "missing"}
    assert ("decoder.0.qkv.weight", "param") in missing


def test_copies_are_compared_with_the_one(check):
    tensors = plain()
    at = next(i for i, tensor in enumerate(tensors) if (tensor.name, tensor.kind) == ("layers.1.v", "input"))
    tensors[at] = tensors[at].with_values(tensors[at].values * 2)
    report = check(fused(), tensors, expect=1)
    assert [finding["name"] for finding in report["findings"] if finding["verdict"] == "fail"] == ["decoder.1.qkv"]


def test_sizes_that_do_not_fit_are_a_finding(check):
    tensors = [
        tensor.with_values(tensor.values[:-SIZE]) if tensor.name == "decoder.0.qkv.weight" else tensor
        for tensor in fused()
    ]
    report = check(plain(), tensors, expect=1)
    wrong = {finding["name"]: finding["reason"] for finding in report["findings"] if finding["verdict"] == "fail"}
    assert wrong == {f"layers.0.{part}.weight": "shape-mismatch" for part in "qkv"}


def test_a_kind_of_which_nothing_corresponds_proves_nothing(check, tmp_path, ttrace):
    check(plain(), fused())
    (tmp_path / "few.yaml").write_text("activations: b s ... -> s b ...\nlayers.{i}: decoder.{i}\n")
    words = ("check", "--reference", "reference", "--candidate", "candidate", "--correspondence", "few.yaml")
    report = json.loads(ttrace.reports(*words, "--json", "-", code=2))
    assert report["verdict"] == "could-not-look"
    assert {kind: proof["enough"] for kind, proof in report["proof"].items()} == {
        "input": False,
        "output": True,
        "param": False,
        "main_grad": False,
        "scalar": True,
    }


def test_both_are_shown_in_the_names_and_the_order_of_the_reference(check, ttrace):
    check(plain(), fused())
    words = ("show", "candidate", "layers.1.k.weight", "--reference", "reference", "--kind", "param")
    text = ttrace.reports(*words, "--correspondence", "rules.yaml", "--slice", "2:5, 0:2", code=0)
    assert text.startswith("layers.1.k.weight param, iteration 0\ncandidate: [2:5, 0:2] of [8, 6], float32")
    assert "candidate - reference: relative error 0: equal" in text
    # Of a group's 16 rows, 8 of q come before 4 of k.
    assert re.findall(r"\[\d+:\d+, 0:6\]", text) == ["[8:12, 0:6]", "[0:4, 0:6]", "[24:28, 0:6]", "[4:8, 0:6]"]


SHIPPED = sorted(path.stem for path in (SOURCE / "annotations/correspondences").glob("*.yaml"))


@pytest.mark.parametrize("name", SHIPPED)
def test_the_files_that_come_with_the_program_are_read(ttrace, tmp_path, name):
    record_run(tmp_path / "reference", [[Tensor("other", numbers(2, seed=1))]])
    record_run(tmp_path / "candidate", [[Tensor("other", numbers(2, seed=2))]])
    message = ttrace.refuses("check", "--reference", "reference", "--candidate", "candidate", "--correspondence", name)
    assert f"{name}.yaml: its rules name tensors of none of the two traces" in message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "rules.yaml:1: not a mapping; expected names and what they are on the other side"),
        ("sides: [a, b]\n", "rules.yaml: names nothing; expected lines as in annotations/correspondences/README.md"),
        (
            "embed: {is: embedding, weight: v c -> c w}\n",
            "rules.yaml:1: 'embed': weight: 'v c -> c w': part 1 has the axes c v on the left and c w on the right; "
            "expected the same",
        ),
        (
            "layers.{i}.{q,k}: {is: 'decoder.{i}.qkv', weight: 'a, b, c -> (a + b + c)'}\n",
            "rules.yaml:1: 'layers.{i}.{q,k}': weight: 'a, b, c -> (a + b + c)' has 3 tensors on the left, the rule 2 "
            "names; expected as many, or one",
        ),
        (
            "embed:\n  - is: embedding\n  - tokens\n",
            "rules.yaml:3: 'embed': not a mapping; expected the name on the other side, a list of such, a mapping with "
            "`is` and patterns by input, output or parameter, or a list of such mappings",
        ),
        (
            "\nlayers.{i: decoder\n",
            "rules.yaml:2: 'layers.{i': 'layers.{i': expected captures as in layers.{i}, each once",
        ),
        (
            "nobody: knows\n",
            "rules.yaml: its rules name tensors of none of the two traces; expected the names of the left names in one "
            "of reference and candidate, and those of the right names in the other",
        ),
        (
            RULES.replace("  d: 4\n", "  e: 3\n"),
            "rules.yaml:7: '(g n d) c, (g d) c, (g d) c -> (g (n + 1 + 1) d) c': the shapes do not tell the size of "
            "'d'; expected it under `sizes`, or --set d=N",
        ),
        (
            RULES.replace("  d: 4\n", "  layers.0.q: 'b s (h n d)'\n").replace("layers.0.q:", "layers.0.q.weight:"),
            "rules.yaml:3: layers.0.q.weight param, iteration 0 has the shape [16, 6], which is not what is said of "
            "it; expected another pattern",
        ),
    ],
)
def test_a_bad_file_is_one_line(ttrace, tmp_path, text, message):
    record_run(tmp_path / "reference", [plain()])
    record_run(tmp_path / "candidate", [fused()])
    (tmp_path / "rules.yaml").write_text(text)
    words = ("check", "--reference", "reference", "--candidate", "candidate", "--correspondence", "rules.yaml")
    assert ttrace.refuses(*words) == message
