"""The program that PyTorch parallelises computes what the single process computes, and its trace says by itself, with
no annotation, where everything lies: each of its tensors is rebuilt from the shards of all ranks and compared.

The bound is tinygpt's: 16 roundings of fp32. Adam's first step has nearly the size lr whatever the gradient, so that
where a gradient is noise an element of a step may differ by all of it; a wrong layout changes most of them. Parameters
after the step are bounded by the same step."""

import os
import subprocess
import sys
from pathlib import Path

import numpy
import pytest
from rank_file import RankFile
from rebuild import rebuilt

from sweeps import launch, warm

ROOT = Path(__file__).resolve().parents[2]
TTRACE = os.environ.get("TTRACE_PROGRAM", str(ROOT / "build" / "bin" / "ttrace"))
TRAIN = ROOT / "tools" / "torchgpt" / "train.py"
EPS = {"fp32": 2.0**-23, "bf16": 2.0**-7}
ROUNDINGS = 16
SMALL = ["--layers", "3", "--micro-batches", "4", "--seq", "15"]  # 3 layers over 2 stages: 1 and 2

LAYOUTS = {
    "FSDP 4, shards that are empty": (4, ["--fsdp", "4", "--vocab", "5", "--ffn", "9"], ["fsdp"]),
    "TP 2 x FSDP 2": (4, ["--tp", "2", "--fsdp", "2"], ["fsdp"]),
    "TP 2 x DP 2, loss on shards of the vocabulary": (4, ["--tp", "2", "--dp", "2", "--loss-parallel"], ["dp"]),
    "FSDP 2 x DP 2, hybrid sharding": (4, ["--fsdp", "2", "--dp", "2"], ["fsdp", "dp"]),
    "PP 2 x TP 2, GPipe": (4, ["--pp", "2", "--tp", "2", "--schedule", "gpipe"], []),
    "PP 2 x FSDP 2, 1F1B": (4, ["--pp", "2", "--fsdp", "2"], ["fsdp"]),
}


def run(command):
    environment = dict(os.environ, OMP_NUM_THREADS="1")
    process = subprocess.run(
        [str(part) for part in command], env=environment, capture_output=True, text=True, timeout=600
    )
    assert process.returncode == 0, process.stderr
    return process.stdout


def launched(processes, arguments):
    return [sys.executable, warm.__file__, launch.__file__, processes, TRAIN, *SMALL, *arguments]


def collected(directory, processes, arguments, *options):
    run([TTRACE, "collect", "-o", directory, *options, "--", *launched(processes, arguments)])
    return [RankFile(directory / f"rank-{rank:05}.h5") for rank in range(processes)]


@pytest.fixture(scope="module", autouse=True)
def warm_programs():
    with warm.server():
        yield


@pytest.fixture(scope="module")
def single(tmp_path_factory):
    """single(arguments) -> the tensors of one process; each runs once."""
    known = {}

    def single(arguments):
        key = tuple(arguments)
        if key not in known:
            known[key] = rebuilt(collected(tmp_path_factory.mktemp("single"), 1, arguments))
        return known[key]

    return single


def with_the_work_of(arguments):
    """What of a layout's arguments changes the model."""
    at = [arguments.index(option) for option in ("--vocab", "--ffn") if option in arguments]
    return [part for begin in at for part in arguments[begin : begin + 2]]


def assert_equal_but_for_rounding(candidate, reference, dtype):
    assert candidate.keys() == reference.keys()
    assert len(reference) > 500
    for identity, values in reference.items():
        found, values = candidate[identity].astype("f8"), values.astype("f8")
        assert found.shape == values.shape, identity
        kind, name = identity[4:]
        allowed = ROUNDINGS * EPS[dtype] * numpy.linalg.norm(values)
        if kind in ("param_delta", "param_after"):
            allowed += 0.1 * numpy.linalg.norm(reference[(*identity[:4], "param_delta", name)])
        assert numpy.linalg.norm(found - values) <= allowed, identity
        assert values.any(), identity


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_tensor_equals_the_single_process_in_fp32(tmp_path, single, layout):
    processes, arguments, microbatch_axes = LAYOUTS[layout]
    ranks = collected(tmp_path / "trace", processes, ["--dtype", "fp32", *arguments])
    reference = single(["--dtype", "fp32", *with_the_work_of(arguments)])
    assert_equal_but_for_rounding(rebuilt(ranks, microbatch_axes), reference, "fp32")


def test_a_layout_told_wrongly_is_found(tmp_path, single):
    """The twin: the same trace with the nesting of tensor parallelism and FSDP swapped is wrong where both split."""
    processes, arguments, microbatch_axes = LAYOUTS["TP 2 x FSDP 2"]
    ranks = collected(tmp_path / "trace", processes, ["--dtype", "fp32", *arguments])
    for rank in ranks:
        for mapping in filter(None, rank.mappings.values()):
            mapping["axes"].reverse()
    found, reference = rebuilt(ranks, microbatch_axes), single(["--dtype", "fp32"])
    wrong = {
        name
        for (*_, kind, name), values in reference.items()
        if kind == "param" and not numpy.array_equal(found[0, -1, 0, "forward", kind, name], values)
    }
    columns = {"tok_embeddings.weight", "output.weight"}
    for layer in range(3):
        columns |= {f"layers.{layer}.attention.{part}.weight" for part in ("wq", "wk", "wv")}
        columns |= {f"layers.{layer}.feed_forward.{part}.weight" for part in ("w1", "w3")}
    assert wrong == columns


def test_bf16_starts_from_the_same_bits_and_ends_within_its_rounding(tmp_path, single):
    processes, arguments, microbatch_axes = LAYOUTS["TP 2 x FSDP 2"]
    found = rebuilt(collected(tmp_path / "trace", processes, arguments), microbatch_axes)
    reference = single([])
    assert found.keys() == reference.keys()
    for identity, values in reference.items():
        if identity[4] == "param":
            assert numpy.array_equal(found[identity], values), identity
        elif identity[4] == "main_grad":
            error = numpy.linalg.norm(found[identity].astype("f8") - values)
            assert error <= ROUNDINGS * EPS["bf16"] * numpy.linalg.norm(values), identity


def test_collecting_changes_no_digit(tmp_path):
    processes, arguments, _ = LAYOUTS["PP 2 x TP 2, GPipe"]
    command = launched(processes, [*arguments, "--steps", "2"])
    collected = run([TTRACE, "collect", "-o", tmp_path / "trace", "--iterations", "0,1", "--", *command])
    assert run(command) == collected and collected.count("step") == 2


def test_a_perturbed_embedding_is_a_dtensor_and_gets_the_factors_of_the_single_process(tmp_path, single):
    processes, arguments, microbatch_axes = LAYOUTS["TP 2 x FSDP 2"]
    annotations = tmp_path / "microbatches.yaml"  # the factors are those of the micro-batch of the whole run
    annotations.write_text("parallelism:\n  microbatches: {axis: dp, order: interleaved}\n")
    perturb = ["--perturb", "7", "-a", annotations]
    found = rebuilt(collected(tmp_path / "parallel", processes, arguments, *perturb), microbatch_axes)
    alone = rebuilt(collected(tmp_path / "single", 1, [], *perturb))
    for microbatch in range(4):
        identity = (0, microbatch, 0, "forward", "output", "tok_embeddings")
        assert numpy.array_equal(found[identity], alone[identity])
        assert not numpy.array_equal(found[identity], single([])[identity])


@pytest.mark.parametrize(
    "arguments, text",
    [
        (["--tp", "2"], "--tp 2 --fsdp 1 --dp 1 --pp 1 needs 2 processes, 1 started (torchrun --nproc-per-node 2)"),
        (["--tp", "4"], "--kv-heads over --tp: 2 is not divisible by 4"),
        (["--fsdp", "3"], "--micro-batches over --dp times --fsdp: 4 is not divisible by 3"),
        (["--loss-parallel"], "--loss-parallel needs --tp 2 or more: the logits are sharded over the vocabulary"),
        (["--pp", "4"], "--pp 4: only 3 layers"),
        (["--seq", "0"], "--seq 0: must be 1 or more"),
    ],
)
def test_what_cannot_be_is_refused_with_one_line(arguments, text):
    process = subprocess.run([sys.executable, TRAIN, *SMALL, *arguments], capture_output=True, text=True, timeout=600)
    assert process.returncode == 2 and process.stderr == f"torchgpt: error: {text}\n"
