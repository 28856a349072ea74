"""annotate --reference of two programs with names of their own: the draft is a correspondence that check takes."""

import json
import shutil

import numpy
import pytest
from test_correspondence import GROUPS, HEADS, SIZE, fused_rows, numbers, parameter_kinds

from traces import Tensor, bfloat16, record_run

BATCH, SEQUENCE, HIDDEN, LAYERS, EXPERTS, VOCABULARY = 2, 3, 6, 2, 3, 5


def plain():
    """One program: q, k, v by themselves, an expert a module, [batch, sequence, hidden]."""
    tokens = numpy.arange(BATCH * SEQUENCE).reshape(BATCH, SEQUENCE)
    tensors = [
        Tensor("(model):ids", tokens, "input"),
        *parameter_kinds("embed.weight", numbers(VOCABULARY, HIDDEN, seed=1)),
    ]
    for layer in range(LAYERS):
        at, seed = f"layers.{layer}", 1000 * (layer + 1)
        for k, (part, heads) in enumerate((("q", GROUPS * HEADS), ("k", GROUPS), ("v", GROUPS))):
            tensors += parameter_kinds(f"{at}.attn.{part}.weight", numbers(heads * SIZE, HIDDEN, seed=seed + k))
            # A bias begins at zero, and has a gradient.
            value, _ = parameter_kinds(f"{at}.attn.{part}.bias", numpy.zeros(heads * SIZE, "float32"))
            _, gradient = parameter_kinds(f"{at}.attn.{part}.bias", numbers(heads * SIZE, seed=seed + 40 + k))
            tensors += [value, gradient]
            tensors.append(Tensor(f"{at}.attn.{part}", numbers(BATCH, SEQUENCE, HIDDEN, seed=seed), "input"))
            tensors.append(Tensor(f"{at}.attn.{part}", numbers(BATCH, SEQUENCE, heads * SIZE, seed=seed + 10 + k)))
        tensors += parameter_kinds(f"{at}.attn.out.weight", numbers(HIDDEN, GROUPS * HEADS * SIZE, seed=seed + 20))
        tensors.append(Tensor(f"{at}.attn.out", numbers(BATCH, SEQUENCE, HIDDEN, seed=seed + 21)))
        tensors.append(Tensor(f"{at}.attn", numbers(BATCH, SEQUENCE, HIDDEN, seed=seed + 21)))
        for expert in range(EXPERTS):
            tensors += parameter_kinds(f"{at}.experts.{expert}.weight", numbers(7, HIDDEN, seed=seed + 30 + expert))
        tensors.append(Tensor(f"{at}.rope", numbers(SEQUENCE, SIZE, seed=60)))
        tensors.append(Tensor(at, numbers(BATCH, SEQUENCE, HIDDEN, seed=seed + 50)))
    return [*tensors, Tensor("loss", numpy.float32(2.5), "scalar")]


def fused(fuse=fused_rows, prepare=lambda rows: rows):
    """The other: q, k and v in one layer, padded vocabulary, one transposed tensor of experts, [sequence, batch,
    hidden]. `prepare` is what becomes of q's and k's rows."""
    of = {(tensor.name, tensor.kind): tensor.values for tensor in plain()}
    tensors = [Tensor("(model)", of["(model):ids", "input"], "input")]
    for kind in ("param", "main_grad"):
        weight = numpy.pad(of["embed.weight", kind], ((0, 3), (0, 0)))
        tensors.append(Tensor("tokens.table.weight", weight, kind, microbatch=-1))
    for layer in range(LAYERS):
        old, new = f"layers.{layer}", f"decoder.blocks.{layer}"
        for kind in ("param", "main_grad"):
            q, k, v = (of[f"{old}.attn.{part}.weight", kind] for part in "qkv")
            tensors.append(Tensor(f"{new}.mixer.qkv.weight", fuse(prepare(q), prepare(k), v, 0), kind, microbatch=-1))
            q, k, v = (of[f"{old}.attn.{part}.bias", kind] for part in "qkv")
            tensors.append(Tensor(f"{new}.mixer.qkv.bias", fuse(prepare(q), prepare(k), v, 0), kind, microbatch=-1))
            tensors.append(
                Tensor(f"{new}.mixer.proj.weight", of[f"{old}.attn.out.weight", kind].T, kind, microbatch=-1)
            )
            stacked = numpy.stack([of[f"{old}.experts.{expert}.weight", kind].T for expert in range(EXPERTS)])
            tensors.append(Tensor(f"{new}.experts.weights", stacked, kind, microbatch=-1))
        tensors.append(Tensor(f"{new}.mixer.qkv", of[f"{old}.attn.q", "input"].swapaxes(0, 1), "input"))
        q, k, v = (of[f"{old}.attn.{part}", "output"] for part in "qkv")
        rows = [numpy.moveaxis(prepare(numpy.moveaxis(part, 2, 0)), 0, 2) for part in (q, k)]
        tensors.append(Tensor(f"{new}.mixer.qkv", fuse(*rows, v, 2).swapaxes(0, 1)))
        tensors.append(Tensor(f"{new}.mixer.proj", of[f"{old}.attn.out", "output"].swapaxes(0, 1)))
        tensors.append(Tensor(f"{new}.mixer", of[f"{old}.attn", "output"].swapaxes(0, 1)))
        tensors.append(Tensor(f"{new}:0", of[old, "output"].swapaxes(0, 1)))
        tensors.append(Tensor(f"{new}:1", numbers(2, seed=9)))
    return [*tensors, Tensor("loss", numpy.float32(2.5), "scalar")]


def pairs(rows):
    """Rotary halves become rotary pairs, in each head."""
    halves = rows.reshape(-1, 2, SIZE // 2, *rows.shape[1:])
    return halves.swapaxes(1, 2).reshape(rows.shape)


@pytest.fixture
def draft(ttrace):
    """Records both, and returns the draft, which is in draft.yaml."""

    def run(reference, candidate):
        for name, tensors in (("reference", reference), ("candidate", candidate)):
            shutil.rmtree(ttrace.directory / name, ignore_errors=True)
            record_run(ttrace.directory / name, [tensors])
        ttrace.reports("annotate", "candidate", "--reference", "reference", "-o", "draft.yaml", code=0)
        return (ttrace.directory / "draft.yaml").read_text()

    return run


def check(ttrace, code=0, candidate="candidate"):
    words = ("check", "--reference", "reference", "--candidate", candidate, "--correspondence", "draft.yaml")
    return json.loads(ttrace.reports(*words, "--json", "-", code=code))


# Of either layer: four weights, three biases and three experts in two kinds; three inputs; three outputs of q, k and v,
# those of out, attn and the layer. The table in two kinds, the tokens, the loss.
ALL = LAYERS * (2 * (4 + 3 + EXPERTS) + 3 + 6) + 2 + 1 + 1


def test_a_draft_maps_all_that_corresponds(ttrace, draft):
    text = draft(plain(), fused())
    for line in (
        "  weight: (g n d) c, (g d) c, (g d) c -> (g ((n d) + d + d)) c",
        "  output: b s (g n d), b s (g d), b s (g d) -> s b (g ((n d) + d + d))",
        "# bias: as its weight, values tell nothing",
        "embed:  # equal weight",
        "  is: tokens.table",
        "  weight: f c -> (f + _) c",
        "layers.{i}.experts.{e}.weight:  # equal in 2 layers",
        "  param: a b -> e b a",
        "  is: (model)",
        "#   output of the reference: layers.#.rope (2 of them)",
        "#   output of the candidate: decoder.blocks.#:1 (2 of them)",
    ):
        assert line in text, text
    report = check(ttrace)
    assert report["verdict"] == "same" and report["counts"]["compared"] == ALL
    zeros = LAYERS * 3  # the biases, which begin so, prove nothing
    assert report["counts"]["pass"] == ALL - zeros


def test_the_fused_program_as_the_reference(ttrace, draft):
    text = draft(fused(), plain())
    assert "  weight: (g ((n d) + d + d)) c -> (g n d) c, (g d) c, (g d) c" in text
    assert "  param: e b a -> a b" in text or "  param: e a b -> b a" in text
    assert check(ttrace)["verdict"] == "same"


def test_rotary_pairs_are_found_and_remarked(ttrace, draft):
    text = draft(plain(), fused(prepare=pairs))
    assert "right only where the rotary embeddings differ so" in text
    assert "  weight: (g n two p) c, (g two p) c, (g d) c -> (g ((n p two) + (p two) + d)) c" in text
    assert check(ttrace)["verdict"] == "same"


def test_a_draft_finds_what_a_later_port_does_wrong(ttrace, draft):
    draft(plain(), fused())
    record_run(ttrace.directory / "wrong", [fused(lambda q, k, v, axis: numpy.concatenate([q, k, v], axis))])
    report = check(ttrace, code=1, candidate="wrong")
    assert report["root_cause"]["message"].startswith("layers.0.attn.q.weight param")
    record_run(ttrace.directory / "permuted", [fused(prepare=pairs)])
    report = check(ttrace, code=1, candidate="permuted")
    assert report["root_cause"]["message"].startswith("layers.0.attn.q.weight param")


def test_one_layer_that_was_converted_otherwise_is_not_explained_away(ttrace, draft):
    wrong = [
        tensor.with_values(tensor.values[::-1].copy()) if tensor.name == "decoder.blocks.1.mixer.qkv.weight" else tensor
        for tensor in fused()
    ]
    text = draft(plain(), wrong)
    assert "and decoder.blocks.1.mixer.qkv.weight share values, in an order that no pattern was found for" in text
    assert "parameter of the candidate: decoder.blocks.#.mixer.qkv.weight" in text


def test_what_only_looks_near_is_no_counterpart(ttrace, draft):
    """Probabilities of one half, and a bit: near each other, and of other tokens."""
    alike = [0.5 + 0.001 * numbers(BATCH, SEQUENCE, 4, seed=seed) for seed in (1, 2)]
    text = draft(
        [*plain(), Tensor("layers.0.attn:1", alike[0])], [*fused(), Tensor("decoder.blocks.0.mixer:1", alike[1])]
    )
    assert "output of the reference: layers.#.attn:1" in text
    assert check(ttrace)["verdict"] == "same"


def test_a_name_of_the_reference_that_is_two_of_the_candidate(ttrace, draft):
    """The reference's model returns what the outermost layer of the candidate's does, which returns a loss."""
    last = numbers(BATCH, SEQUENCE, HIDDEN, seed=70)
    reference = [
        Tensor("(model)", tensor.values, "input") if tensor.name == "(model):ids" else tensor for tensor in plain()
    ]
    candidate = [Tensor("(model):loss", numpy.float32(2.5)), Tensor("decoder", last.swapaxes(0, 1))]
    text = draft([*reference, Tensor("(model)", last)], [*fused(), *candidate])
    assert "(model):\n" in text and "  - is: decoder" in text and "  - is: (model)" in text
    report = check(ttrace)
    assert report["verdict"] == "same" and report["counts"]["compared"] == ALL + 1


def test_scalars_of_other_names(ttrace, draft):
    """One names its loss as a call, and has another one by that name."""
    reference = [*plain(), Tensor("norm", numpy.float32(2), "scalar")]
    candidate = [tensor for tensor in fused() if tensor.name != "loss"]
    losses = (Tensor("loss", numpy.float32(1.25), "scalar"), Tensor("loss#1", numpy.float32(2.5), "scalar"))
    text = draft(reference, [*candidate, *losses, Tensor("norm", numpy.float32(2.01), "scalar")])
    assert "loss: 'loss#1'  # rel_err of scalar 0" in text
    assert "# The scalar norm is 0.005 apart" in text and "none: [norm]" in text
    text = draft([*candidate, *losses], plain())
    assert "'loss#1': loss  # rel_err of scalar 0" in text
    assert check(ttrace)["verdict"] == "same"


def test_parameters_in_bfloat16_are_compared_rounded(ttrace, draft):
    def rounded(tensors):
        for tensor in tensors:
            if tensor.values.dtype == numpy.float32 and tensor.kind in ("param", "main_grad"):
                bits = (tensor.values.astype("float32").view("uint32") & 0xFFFF0000).view("float32")
                yield bfloat16(tensor.with_values(bits))
            else:
                yield tensor

    exact = [
        tensor.with_values((tensor.values.view("uint32") & 0xFFFF0000).view("float32"))
        if tensor.kind in ("param", "main_grad")
        else tensor
        for tensor in plain()
    ]
    text = draft(exact, list(rounded(fused())))
    assert "# Parameters were rounded to bfloat16 first." in text and "equal weight in 2 layers" in text


def test_programs_that_begin_otherwise_have_no_draft(ttrace):
    record_run(ttrace.directory / "reference", [plain()])
    other = [tensor.with_values(tensor.values * 1.5) if tensor.kind == "param" else tensor for tensor in fused()]
    record_run(ttrace.directory / "candidate", [other])
    message = ttrace.refuses("annotate", "candidate", "--reference", "reference")
    assert message.startswith("candidate: no parameter has the values of one of reference; expected two programs")


def test_several_ranks_want_their_annotations_first(ttrace):
    record_run(ttrace.directory / "reference", [plain()])
    record_run(ttrace.directory / "candidate", [fused(), fused()], axes="tp=2")
    message = ttrace.refuses("annotate", "candidate", "--reference", "reference")
    assert message.endswith(
        "nothing says how its 2 ranks hold them; expected its annotations (-a), or a run of one process"
    )


def test_export_and_explain_by_a_correspondence(ttrace, draft, tmp_path):
    draft(plain(), fused())
    sides = ("--reference", "reference", "--correspondence", "draft.yaml")
    ttrace.reports("export", "candidate", *sides, "-o", "out.npz", "--kind", "param", code=0)
    written = numpy.load(tmp_path / "out.npz")
    expected = {tensor.name: tensor.values for tensor in plain() if tensor.kind == "param"}
    assert {key.rpartition("/")[2] for key in written.files} == set(expected)
    for key in written.files:
        assert numpy.array_equal(written[key], expected[key.rpartition("/")[2]]), key
    text = ttrace.reports("explain", "candidate", "layers.1.attn.k.weight", *sides, code=0)
    assert "layers.1.attn.k.weight param\n  reference: [8, 6], float32" in text
    assert "    recorded as decoder.blocks.1.mixer.qkv.weight param, iteration 0; no rule\n" in text


def test_localize_says_that_it_needs_one_program(ttrace, draft):
    draft(plain(), fused())
    words = ("localize", "--reference", "reference", "--candidate", "candidate", "-t", "default")
    message = ttrace.refuses(*words, "--correspondence", "draft.yaml")
    assert message.startswith("--correspondence: a second run gives") and "ttrace check --correspondence" in message


def test_names_of_a_trace_stay_words(ttrace, draft):
    odd = Tensor("layers.0.odd\nembed: x", numbers(2, 3, seed=5))
    text = draft([*plain(), odd], fused())
    assert "#   output of the reference: layers.#.odd\\nembed: x\n" in text or "\nembed: x" not in text
    assert check(ttrace)["verdict"] == "same"
