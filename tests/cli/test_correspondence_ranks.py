"""A program of several ranks against another program: who runs which micro-batch, and what is a sum over them."""

import json
import shutil

import numpy
import pytest

from traces import Tensor, record_run

MICROBATCHES, BATCH, SEQUENCE, HIDDEN = 4, 2, 3, 5
RULES = """\
activations: b s ... -> s b ...
embed: embedding
experts.weight: {is: 'experts.{e}.weight', param: e f c -> f c}
"""
WITHOUT_TOKENS = RULES.replace("embed: embedding", "embed: {is: embedding, input: none}")


def numbers(*shape, seed):
    """Small integers, whose sums have no rounding."""
    return numpy.random.default_rng(seed).integers(1, 100, shape).astype("float32")


def tokens_of(microbatch):
    return numpy.random.default_rng(microbatch).integers(0, 1000, (BATCH, SEQUENCE))


def plain():
    tensors = [Tensor("embed.weight", numbers(7, HIDDEN, seed=1), "param", microbatch=-1)]
    for m in range(MICROBATCHES):
        tensors.append(Tensor("embed", tokens_of(m), "input", microbatch=m))
        tensors.append(Tensor("embed", numbers(BATCH, SEQUENCE, HIDDEN, seed=10 + m), microbatch=m))
    return tensors


def rank_of_other(microbatches, tokens=tokens_of):
    """One rank of the other program, which runs these; positions are an integer input that the first one lacks."""
    tensors = [Tensor("embedding.weight", numbers(7, HIDDEN, seed=1), "param", microbatch=-1)]
    for local, m in enumerate(microbatches):
        tensors.append(Tensor("rope", numpy.arange(SEQUENCE * BATCH), "input", microbatch=local))
        tensors.append(Tensor("embedding", tokens(m).T, "input", microbatch=local))
        output = numbers(BATCH, SEQUENCE, HIDDEN, seed=10 + m).swapaxes(0, 1)
        tensors.append(Tensor("embedding", output, microbatch=local))
    return tensors


@pytest.fixture
def check(ttrace, tmp_path):
    """Checks the ranks of a candidate, and returns the report."""

    def run(ranks, *options, reference=None, rules=RULES, expect=0):
        (tmp_path / "rules.yaml").write_text(rules)
        record_run(tmp_path / "reference", [reference or plain()])
        record_run(tmp_path / "candidate", ranks, axes=f"dp={len(ranks)}")
        words = ("check", "--reference", "reference", "--candidate", "candidate", "--correspondence", "rules.yaml")
        return json.loads(ttrace.reports(*words, *options, "--json", "-", code=expect))

    return run


@pytest.mark.parametrize("shares", [((0, 1), (2, 3)), ((0, 2), (1, 3)), ((0,), (1, 2, 3))])
def test_the_tokens_tell_which_rank_runs_which_microbatch(check, shares):
    report = check([rank_of_other(share) for share in shares])
    assert report["verdict"] == "same"
    assert report["counts"]["pass"] == 1 + 2 * MICROBATCHES


def test_wrong_tokens_of_one_microbatch_are_found_there(check):
    def tokens(m):
        return tokens_of(m) + (m == 3)

    report = check([rank_of_other(share, tokens) for share in ((0, 2), (1, 3))], expect=1)
    wrong = [(finding["name"], finding["microbatch"]) for finding in report["findings"]]
    assert wrong == [("embed", 3)]
    assert report["instead"] is None


BLOCKS = ((0, 1), (2, 3))


def test_where_nothing_tells_the_microbatches_one_sentence_says_what_to_write(check):
    report = check([rank_of_other(share) for share in BLOCKS], rules=WITHOUT_TOKENS, expect=1)
    assert report["instead"] == (
        "which micro-batches the ranks along dp run is not known, and 2 of 5 tensors differ where they interleave: of "
        "the integer inputs none that tells has a counterpart; write microbatches: {order: blocked} or {order: "
        "interleaved} in the annotations (-a), or a line for the model's inputs in rules.yaml"
    )


def test_the_annotations_say_which_rank_runs_which_microbatch(check, tmp_path):
    (tmp_path / "blocks.yaml").write_text("parallelism: {microbatches: {order: blocked}}\n")
    report = check([rank_of_other(share) for share in BLOCKS], "-a", "blocks.yaml", rules=WITHOUT_TOKENS)
    assert report["verdict"] == "same"


@pytest.fixture
def check_reference(ttrace, tmp_path):
    """Checks one process against a reference of several ranks, and returns the report."""

    def run(ranks, candidate, *options, rules=RULES, expect=0):
        (tmp_path / "rules.yaml").write_text(rules)
        for name in ("reference", "candidate"):
            shutil.rmtree(tmp_path / name, ignore_errors=True)
        record_run(tmp_path / "reference", ranks, axes=f"dp={len(ranks)}")
        record_run(tmp_path / "candidate", [candidate])
        words = ("check", "--reference", "reference", "--candidate", "candidate")
        words += ("--correspondence", "rules.yaml") if rules else ()
        return json.loads(ttrace.reports(*words, *options, "--json", "-", code=expect))

    return run


@pytest.mark.parametrize("shares", [((0, 1), (2, 3)), ((0, 2), (1, 3))])
@pytest.mark.parametrize("rules", [RULES, ""])
def test_the_tokens_tell_which_microbatches_the_ranks_of_a_reference_ran(check_reference, shares, rules):
    candidate = plain() if rules else rank_of_other(range(MICROBATCHES))
    report = check_reference([rank_of_other(share) for share in shares], candidate, rules=rules)
    assert report["verdict"] == "same"
    assert report["counts"]["pass"] == 1 + (2 if rules else 3) * MICROBATCHES
    told = any(
        "as the candidate's integer inputs say (microbatches: {order: blocked})" in note for note in report["notes"]
    )
    assert told == (shares == BLOCKS)


def test_wrong_tokens_are_found_where_the_reference_has_several_ranks(check_reference):
    def tokens(m):
        return tokens_of(m) + (m == 3)

    candidate = [t for t in plain() if t.kind != "input"]
    candidate += [Tensor("embed", tokens(m), "input", microbatch=m) for m in range(MICROBATCHES)]
    report = check_reference([rank_of_other(share) for share in ((0, 2), (1, 3))], candidate, expect=1)
    assert [(finding["name"], finding["microbatch"]) for finding in report["findings"]] == [("embedding", 3)]


def test_where_nothing_tells_the_microbatches_of_a_reference_one_sentence_says_what_to_write(check_reference, tmp_path):
    ranks = [rank_of_other(share) for share in BLOCKS]
    report = check_reference(ranks, plain(), rules=WITHOUT_TOKENS, expect=1)
    assert report["instead"] == (
        "which micro-batches the ranks along dp run is not known, and 2 of 5 tensors differ where they interleave: of "
        "the integer inputs none that tells has a counterpart; write microbatches: {order: blocked} or {order: "
        "interleaved} in the annotations (--reference-annotations), or a line for the model's inputs in rules.yaml"
    )
    (tmp_path / "blocks.yaml").write_text("parallelism: {microbatches: {order: blocked}}\n")
    words = ("--reference-annotations", "blocks.yaml")
    assert check_reference(ranks, plain(), *words, rules=WITHOUT_TOKENS)["verdict"] == "same"


def gradients(of_microbatch, name="experts.weight"):
    return [Tensor(name, values, "param_grad", microbatch=m) for m, values in enumerate(of_microbatch)]


@pytest.mark.parametrize("wrong", [0, 1])
def test_a_gradient_that_is_a_sum_over_microbatches_is_compared_with_the_sum(check, tmp_path, wrong):
    whole = [numbers(3, 4, HIDDEN, seed=20 + m) for m in range(2)]
    moved = numbers(3, 4, HIDDEN, seed=30)  # of tokens that came to the experts with the other micro-batch
    recorded = [whole[0] + moved, whole[1] - moved]
    recorded[1][2, 0, 0] += wrong
    (tmp_path / "sums.yaml").write_text("experts.*.weight: {param_grad: {microbatch: partial}}\n")
    rank = [
        tensor
        for expert in range(3)
        for tensor in gradients([values[expert] for values in recorded], f"experts.{expert}.weight")
    ]
    reference = [*plain(), *gradients(whole)]
    candidate = [*rank_of_other(range(MICROBATCHES)), *rank]
    report = check([candidate], "-a", "sums.yaml", reference=reference, expect=wrong)
    assert report["verdict"] == ("different" if wrong else "same")
    assert [finding["name"] for finding in report["findings"]] == ["experts.weight"] * wrong
    assert report["counts"]["compared"] == 1 + 2 * MICROBATCHES + 1
