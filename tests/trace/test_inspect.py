"""`ttrace inspect`: what a user sees of a trace."""

import json
import math
import struct
import subprocess

from conftest import PROGRAM, inspect
from recorder import Dtype, Kind, Recorder


def run_inspect(*arguments):
    run = subprocess.run([PROGRAM, "inspect", *arguments], capture_output=True, text=True)
    return run.returncode, run.stdout, run.stderr


def two_ranks(directory):
    for rank in range(2):
        recorder = Recorder(directory, rank, 2, "tp=2,sp=tp")
        recorder.record("layers.0.mlp", struct.pack("<4f", 3, -4, 0, 12), Dtype.FLOAT32, (2, 2))
        recorder.record(
            "layers.0.mlp.weight",
            struct.pack("<2f", math.nan, -math.inf),
            Dtype.FLOAT32,
            (2,),
            kind=Kind.PARAM,
            microbatch=-1,
        )
        recorder.close(complete=rank == 0)


SUMMARY = """\
trace             {0}
run               run-1
ranks             2: tp=2,sp=tp
compute dtype     not known
rank 0            2 tensors, 24 bytes (tp=0)
rank 1            2 tensors, 24 bytes (tp=1), INCOMPLETE: it crashed, or is still running
"""

STATISTICS = """\
rank  iter  micro-batch  kind    name                 dtype    shape          norm          min          max     NaN     Inf
   0     0            0  output  layers.0.mlp         float32  [2, 2]           13           -4           12       0       0
   0     0            -  param   layers.0.mlp.weight  float32  [2]               0            0            0       1       1
"""  # noqa: E501 (a table, as it is printed)


def test_optimizers_steps_are_shown_a_line_each(trace_directory):
    recorder = Recorder(trace_directory)
    options = {"eps": 1e-8, "lr": 0.001}
    facts = {
        "iteration": 0,
        "chunk": 0,
        "optimizer": "Adam",
        "calls": 1,
        "step": 3.0,
        "clip_factor": 0.5,
        "options": {},
    }
    steps = [
        {**facts, "parameters": 0, "master": "float32", "options": options},
        {**facts, "parameters": 1, "chunk": 1, "calls": 2, "changed_after": True},
        {"iteration": 1, "chunk": 0, "parameters": 1, "optimizer": "", "calls": 0, "options": {}},
    ]
    document = {"parameters": [["w", "b"], ["c"]], "steps": steps}
    recorder.describe(json.dumps({"optimizer_steps": document}))
    recorder.close(complete=True)
    _, out, _ = run_inspect(trace_directory)
    assert [line for line in out.splitlines() if line.startswith("optimizer")] == [
        "optimizer         iteration 0: Adam, 2 parameters, step 3, gradients times 0.5, float32 masters, eps 1e-08, "
        "lr 0.001",
        "optimizer         iteration 0: Adam, 1 parameter of chunk 1, 2 calls, step 3, gradients times 0.5, changed "
        "after the step",
        "optimizer         iteration 1: in no optimizer, 1 parameter",
    ]


def test_the_listing_shows_ranks_and_tensors(trace_directory):
    two_ranks(trace_directory)
    assert run_inspect(trace_directory) == (
        0,
        SUMMARY.format(trace_directory)
        + """
rank  iter  micro-batch  kind    name                 dtype    shape
   0     0            0  output  layers.0.mlp         float32  [2, 2]
   0     0            -  param   layers.0.mlp.weight  float32  [2]
   1     0            0  output  layers.0.mlp         float32  [2, 2]
   1     0            -  param   layers.0.mlp.weight  float32  [2]
""",
        "",
    )


def test_statistics_leave_nan_and_inf_out_and_count_them(trace_directory):
    two_ranks(trace_directory)
    code, out, err = run_inspect(trace_directory, "--stats")
    assert (code, err) == (0, "")
    assert out.splitlines()[7:10] == STATISTICS.splitlines()


def test_a_pattern_selects_tensors_and_one_without_a_match_is_an_error(trace_directory):
    two_ranks(trace_directory)
    trace = inspect(trace_directory, "--tensor", "*.weight")
    assert [[tensor["name"] for tensor in rank["tensors"]] for rank in trace["ranks"]] == [["layers.0.mlp.weight"]] * 2
    assert run_inspect(trace_directory, "--verify", "--tensor", "layer.*") == (
        2,
        "",
        f"ttrace: error: --tensor 'layer.*': matches no tensor of {trace_directory}; expected a name or a pattern "
        "of one\n",
    )


def test_json_tells_everything(trace_directory):
    two_ranks(trace_directory)
    code, out, err = run_inspect(trace_directory, "--json", "--stats", "--verify", "--tensor", "layers.0.mlp")
    assert (code, err) == (0, "")
    tensor = {
        "iteration": 0,
        "microbatch": 0,
        "chunk": 0,
        "pass": "forward",
        "kind": "output",
        "name": "layers.0.mlp",
        "dtype": "float32",
        "shape": [2, 2],
        "bytes": 16,
        "order": 0,
        "module": "Module",
        "statistics": {"norm": 13.0, "min": -4.0, "max": 12.0, "mean": 2.75, "nan": 0, "inf": 0, "zero": 1},
        "checksum_ok": True,
    }
    assert json.loads(out) == {
        "schema": "ttrace-inspect/1",
        "directory": str(trace_directory),
        "run_id": "run-1",
        "world_size": 2,
        "missing_ranks": [],
        "axes": [["tp", 2]],
        "views": [],
        "aliases": {"sp": "tp"},
        "compute_dtype": "",
        "provenance": {},
        "ranks": [
            {"rank": 0, "file": "rank-00000.h5", "complete": True, "coordinates": {"tp": 0}, "tensors": [tensor]},
            {"rank": 1, "file": "rank-00001.h5", "complete": False, "coordinates": {"tp": 1}, "tensors": [tensor]},
        ],
    }


def test_a_recorded_mapping_is_shown_with_the_tensors_that_are_asked_for(trace_directory):
    mapping = {
        "axes": [
            {"axis": "dp", "size": 2, "placement": "replicate"},
            {"axis": "tp", "size": 2, "placement": "shard", "dim": -1},
        ],
        "shape": [8, 4],
        "fragment": {
            "whole": [8, 2],
            "slices": [
                {"local": [0, 0], "start": [7, 0], "size": [1, 2]},
                {"local": [1, 0], "start": [0, 0], "size": [1, 2]},
            ],
        },
    }
    flat = {"fragment": {"whole": [8, 2], "range": [4, 8]}}
    recorder = Recorder(trace_directory)
    recorder.record("a", bytes(16), Dtype.FLOAT32, (2, 2), mapping=json.dumps(mapping))
    recorder.record("b", bytes(16), Dtype.FLOAT32, (4,), mapping=json.dumps(flat))
    recorder.record("c", bytes(16), Dtype.FLOAT32, (4,))
    recorder.close()
    a, b, c = inspect(trace_directory)["ranks"][0]["tensors"]
    assert (a["mapping"], b["mapping"]) == (mapping, flat) and "mapping" not in c
    assert "fragment" not in run_inspect(trace_directory)[1]
    assert run_inspect(trace_directory, "--tensor", "b")[1].endswith("""
rank  iter  micro-batch  kind    name  dtype    shape
   0     0            0  output  b     float32  [4]
      mapping {"fragment":{"whole":[8,2],"range":[4,8]}}
""")


def test_verify_finds_the_tensor_with_a_changed_bit(trace_directory):
    two_ranks(trace_directory)
    path = trace_directory / "rank-00001.h5"
    with open(path, "r+b") as file:
        file.seek(4096 + 64 + 3)
        file.write(b"\x7e")
    code, out, err = run_inspect(trace_directory, "--verify")
    assert (code, err) == (1, "")
    assert out == SUMMARY.format(trace_directory) + (
        f"{path}: layers.0.mlp.weight param, iteration 0: the bytes are not those that were recorded\n"
        "\n4 tensors read, 48 bytes: 1 of them not as recorded\n"
    )
    code, out, _ = run_inspect(trace_directory, "--verify", "--json")
    assert code == 1
    assert [[tensor["checksum_ok"] for tensor in rank["tensors"]] for rank in json.loads(out)["ranks"]] == [
        [True, True],
        [True, False],
    ]


def test_a_missing_rank_is_shown(trace_directory):
    two_ranks(trace_directory)
    (trace_directory / "rank-00000.h5").unlink()
    assert run_inspect(trace_directory)[1].splitlines()[4:6] == [
        "rank 1            2 tensors, 24 bytes (tp=1), INCOMPLETE: it crashed, or is still running",
        "MISSING ranks     0",
    ]
    assert inspect(trace_directory)["missing_ranks"] == [0]


def test_what_is_no_trace_is_exit_code_2(tmp_path):
    assert run_inspect(tmp_path / "none") == (
        2,
        "",
        f"ttrace: error: {tmp_path}/none: No such file or directory; expected a trace: a directory with "
        "rank-00000.h5, rank-00001.h5, ...\n",
    )
    assert run_inspect()[0] == 2


def test_a_reader_that_stops_early_is_no_error(trace_directory):
    recorder = Recorder(trace_directory)
    for number in range(5000):
        recorder.record(f"layers.{number}", bytes(4), Dtype.FLOAT32, (1,))
    recorder.close()
    for preparation in ("", "trap '' PIPE; "):  # with SIGPIPE, and ignoring it
        run = subprocess.run(
            ["bash", "-c", f"{preparation}'{PROGRAM}' inspect '{trace_directory}' | head -1"],
            capture_output=True,
            text=True,
        )
        assert (run.stdout, run.stderr) == (f"trace             {trace_directory}\n", "")


def test_output_that_cannot_be_written_is_an_error(trace_directory):
    two_ranks(trace_directory)
    with open("/dev/full", "w") as full:
        run = subprocess.run([PROGRAM, "inspect", trace_directory], stdout=full, stderr=subprocess.PIPE, text=True)
    assert (run.returncode, run.stderr) == (
        2,
        "ttrace: error: standard output: can't be written; expected room for the listing\n",
    )


def test_control_characters_in_names_do_not_reach_the_terminal(trace_directory):
    recorder = Recorder(trace_directory)
    recorder.record("a\x1b[31mb", bytes(4), Dtype.FLOAT32, (1,))
    recorder.close()
    code, out, _ = run_inspect(trace_directory)
    assert code == 0 and "\x1b" not in out and r"a\x1b[31mb" in out
