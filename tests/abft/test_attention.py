"""`ttrace abft` on real attention: right runs are verified; a fault is found in its matrix, rank and head."""

import json
import os
import pathlib
import subprocess

import pytest

from sweeps import warm

ROOT = pathlib.Path(__file__).resolve().parents[2]
TTRACE = pathlib.Path(os.environ["TTRACE_PROGRAM"])
PROGRAM = pathlib.Path(__file__).parent / "programs" / "attention_with_fault.py"
MODEL = ["--tp", "2", "--layers", "2", "--micro-batches", "2", "--unfused-attention"]
CORE = "decoder.layers.1.self_attention.core_attention"
SCORES = f"{CORE}.scale_mask_softmax:0"


def run(*command, allowed=(0,)):
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    result = subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, env=environment, timeout=300
    )
    assert result.returncode in allowed, f"exit code {result.returncode}\n{result.stdout}\n{result.stderr}"


def checked(directory, fault, *arguments, annotations=("megatron_gpt",)):
    """The report on a run of two ranks with this fault, and the lines of its CSV that are about attention."""
    run(
        TTRACE,
        "collect",
        "-o",
        directory / "trace",
        "--axes",
        "tp=2",
        "--",
        *warm.command(PROGRAM, fault, *MODEL, *arguments, ranks=2),
    )
    run(
        TTRACE,
        "abft",
        directory / "trace",
        "-a",
        *annotations,
        "--json",
        directory / "json",
        "--csv",
        directory / "csv",
        allowed=(0, 1),
    )
    lines = (directory / "csv").read_text().splitlines()
    return json.loads((directory / "json").read_text()), [line for line in lines if "core_attention" in line]


@pytest.mark.parametrize("dtype", ["bf16", "fp32"])
def test_right_attention_is_verified_forward_and_backward(tmp_path, dtype):
    report, attention = checked(tmp_path, "none", "--dtype", dtype)
    assert report["verdict"] == "same" and report["counts"]["untrusted"] == 0
    # Of each layer and micro-batch: scores, the mask's copies, probabilities, context, and four gradients.
    assert len(attention) == 2 * 2 * 8
    assert all(",pass," in line for line in attention)


def test_keys_that_several_heads_share_and_a_scale_that_rounds(tmp_path):
    annotations = [ROOT / "tools" / "tinygpt" / "llama.yaml"]
    report, attention = checked(
        tmp_path, "none", "--arch", "llama", "--kv-heads", 2, "--hidden", 96, annotations=annotations
    )
    assert report["verdict"] == "same" and report["counts"]["untrusted"] == 0
    assert len(attention) == 2 * 2 * 8


@pytest.mark.parametrize(
    "fault, dtype, name, kind, told",
    [
        # Rank 1's heads 0 and 1 are the model's heads 2 and 3; its second call is layer 1.
        (
            "scores,1,1,0,9,3,inf",
            "bf16",
            SCORES,
            "input",
            "head 2 of sample 0 is not its queries times its keys, times 0.25: row 9, column 3 is inf, not ",
        ),
        (
            "context,1,1,1,7,3,flip",
            "bf16",
            CORE,
            "output",
            "head 3 of sample 0 is not its probabilities times its values: row 7, column 3 is ",
        ),
        ("scores,1,1,1,9,3,2.5", "fp32", SCORES, "input", "head 3 of sample 0 is not its queries times its keys"),
        (
            "queries,1,1,0,9,3,nan",
            "fp32",
            SCORES,
            "input",
            "NaN in one row (1R) of the scores: by ATTNChecker's Table 1 the fault struck the queries on their way",
        ),
        (
            "keys,1,1,0,9,3,inf",
            "bf16",
            SCORES,
            "input",
            "INF in one column (1C) of the scores: by ATTNChecker's Table 1 the fault struck the keys on their way",
        ),
    ],
)
def test_a_fault_in_attention_is_found_where_it_struck(tmp_path, fault, dtype, name, kind, told):
    report, _ = checked(tmp_path, fault, "--dtype", dtype)
    assert report["verdict"] == "different"
    cause = report["root_cause"]
    assert (cause["name"], cause["kind"], cause["microbatch"]) == (name, kind, 0)
    assert cause["reason"] == "product-differs" and cause["ranks"] == [1]
    assert told in cause["message"]
    # What follows from it is not blamed. Backward uses the corrupted queries once more.
    failed = [finding for finding in report["findings"] if finding["verdict"] == "fail"]
    assert [finding["name"] for finding in failed if not finding["kind"].startswith("grad_")] == [name]
