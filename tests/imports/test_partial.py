"""A trace that holds less by design: compared is what both sides hold, and the verdict says so."""

import json

import numpy
import pytest
import torch

from traces import Tensor, record_run

KINDS = {"output": 0, "grad_output": 0, "main_grad": -1}


def run():
    return [
        Tensor(name, numpy.arange(1, 7, dtype="float32").reshape(2, 3) + i, kind, 0, microbatch)
        for i, name in enumerate(("a", "b", "c"))
        for kind, microbatch in KINDS.items()
    ]


def dump(tmp_path, tensors):
    for tensor in tensors:
        path = tmp_path / "dump" / tensor.kind / f"{tensor.name}.pt"
        path.parent.mkdir(parents=True, exist_ok=True)
        torch.save(torch.from_numpy(tensor.values), path)


@pytest.fixture
def outputs(ttrace, tmp_path):
    """Imports the outputs of two of the three modules; kinds and micro-batches are those of `run`."""

    def imports(*words, change=0.0):
        kept = [tensor for tensor in run() if tensor.kind == "output" and tensor.name != "c"]
        dump(tmp_path, [tensor.with_values(tensor.values + change) for tensor in kept])
        ttrace.imports("files", "--pattern={kind}/{name}.pt", *words, "--", "dump")

    record_run(tmp_path / "recorded", [run()])
    return imports


SENTENCE = "the {} holds less by design (imported from files with --partial): of the {}, 7 tensors not recorded in it"


@pytest.mark.parametrize("sides", [("recorded", "trace"), ("trace", "recorded")])
def test_what_both_hold_is_the_same(ttrace, outputs, sides):
    outputs("--partial")
    names = ("reference", "candidate") if sides[0] == "trace" else ("candidate", "reference")
    text = ttrace.compares(*sides, code=0)
    assert text.startswith(
        f"same, of what both traces hold\n{SENTENCE.format(*names)}: 1 output, 3 grad_output, 3 main_grad\n"
    )
    assert f"not-recorded-in-{names[0]}" in text and "proof: 2 of 2 floating-point tensors" in text
    assert text.endswith("2 compared: 2 pass, 0 fail, 0 untrusted; 0 missing, 7 not seen\n")
    report = json.loads(ttrace.compares(*sides, "--json", "-", code=0))
    assert report["partial"].startswith(SENTENCE.format(*names)) and report["counts"]["not_seen"] == 7


def test_undeclared_it_is_missing(ttrace, outputs):
    outputs()
    text = ttrace.compares("recorded", "trace", code=1)
    assert text.startswith("different\n") and "7 missing" in text and "by design" not in text
    assert "partial" not in json.loads(ttrace.compares("recorded", "trace", "--json", "-", code=1))


def test_what_differs_is_different(ttrace, outputs):
    outputs("--partial", change=0.25)
    text = ttrace.compares("recorded", "trace", code=1)
    assert text.startswith(f"different\n{SENTENCE.format('candidate', 'reference')}")
    assert "first wrong tensor: a output, iteration 0, micro-batch 0\n" in text


def test_a_strict_check_could_not_look(ttrace, outputs):
    outputs("--partial")
    text = ttrace.compares("recorded", "trace", "--strict", code=2)
    assert text.startswith("could-not-look: 7 tensors were not seen (--strict)\n")


def test_what_is_zero_proves_nothing_in_part_either(ttrace, tmp_path, outputs):
    zero = [tensor.with_values(tensor.values * 0) for tensor in run()]
    record_run(tmp_path / "zeros", [zero])
    dump(tmp_path, [tensor for tensor in zero if tensor.kind == "output"])
    ttrace.imports("files", "--pattern={kind}/{name}.pt", "--partial", "--", "dump")
    assert ttrace.compares("zeros", "trace", code=2).startswith("could-not-look: ")


def test_nothing_in_common_is_no_verdict(ttrace, tmp_path, outputs):
    dump(tmp_path, [Tensor("other", numpy.ones(3, "float32"))])
    ttrace.imports("files", "--pattern={kind}/{name}.pt", "--partial", "--", "dump")
    assert "no tensor in common" in ttrace.refuses("check", "--reference", "recorded", "--candidate", "trace")


def test_a_kind_that_a_program_could_not_record_is_still_asked_for(ttrace, tmp_path, outputs):
    """The other side says that it computed outputs and could not record them: that is no design."""
    outputs("--partial")
    weights = [Tensor("a", numpy.ones(3, "float32"), "main_grad", 0, -1)]
    dump(tmp_path, weights)
    ttrace.imports("files", "--pattern={kind}/{name}.pt", "--partial", "--", "dump", output="both")
    statement = {"reason": "compiled", "kinds": ["output"], "iterations": [0], "modules": ["a", "b"]}
    record_run(tmp_path / "compiled", [weights], provenance=json.dumps({"not_seen": [statement]}))
    text = ttrace.compares("both", "compiled", code=2)
    assert text.startswith("could-not-look: no output passed, and 2 tensors were not seen\n")


def test_a_tensor_that_is_there_in_part_is_an_omission(ttrace, tmp_path):
    """What a rank does not hold of a tensor that others hold was not left out by design."""
    values = numpy.arange(8, dtype="float32").reshape(4, 2)
    record_run(tmp_path / "recorded", [[Tensor("a", values), Tensor("b", values)]])
    for rank in range(2):
        path = tmp_path / "dump" / f"rank{rank}"
        path.mkdir(parents=True)
        part = torch.from_numpy(values).chunk(2)[rank].clone()
        torch.save({"a": part} | ({"b": part} if rank == 0 else {}), path / "x.pt")
    words = ("--pattern=rank{rank}/*.pt", "--kind=output", "--axes=tp=2", "--partial")
    ttrace.imports("files", *words, "--", "dump")
    (tmp_path / "a.yaml").write_text('"*":\n  output: {tp_dim: 0}\n')
    text = ttrace.compares("recorded", "trace", "-a", "a.yaml", "--all", code=1)
    assert "omission" in text and "b output" in text
