"""The adapter to Megatron-core, with the package itself: programs of tools/frameworks/megatron, where
`tools/frameworks/run` has installed it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tests" / "collect"))
from rank_file import RankFile  # noqa: E402

from sweeps import warm  # noqa: E402

PYTHON = ROOT / ".venv-megatron" / "bin" / "python"
PROGRAM = ROOT / "tools" / "frameworks" / "megatron" / "train.py"
TTRACE = os.environ.get("TTRACE_PROGRAM", str(ROOT / "build" / "bin" / "ttrace"))
SMALL = ["--layers", "2", "--micro-batches", "2"]

pytestmark = pytest.mark.skipif(
    not PYTHON.exists(), reason="megatron-core is not installed; tools/frameworks/run --only megatron does it"
)


@pytest.fixture(scope="module", autouse=True)
def warm_programs():
    with warm.server(PYTHON):
        yield


def ttrace(*arguments):
    environment = dict(os.environ, OMP_NUM_THREADS="1")
    command = [TTRACE, *map(str, arguments)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, cwd=ROOT)


def collect(directory, ranks, *arguments, program=PROGRAM, options=()):
    command = warm.command(program, *SMALL, *arguments, ranks=ranks, python=PYTHON)
    result = ttrace("collect", "-o", directory, *options, "--", *command)
    assert result.returncode == 0, result.stderr
    return [RankFile(directory / f"rank-{rank:05}.h5") for rank in range(ranks)]


def test_recomputed_layers_have_all_that_they_have_without_recomputation(tmp_path):
    collect(tmp_path / "kept", 1)
    collect(tmp_path / "again", 1, "--recompute", "full")
    result = ttrace("check", "--reference", tmp_path / "kept", "--candidate", tmp_path / "again")
    assert result.returncode == 0 and ", 0 fail, 0 untrusted; 0 missing" in result.stdout, result.stdout


@pytest.mark.parametrize("arguments, aliases", [(["--tp", "2"], "{}"), (["--tp", "2", "--sp"], '{"sp":"tp"}')])
def test_sequence_parallelism_is_what_the_models_configuration_says(tmp_path, arguments, aliases):
    for rank in collect(tmp_path / "trace", 2, *arguments):
        assert rank.attributes["axes"] == '[["tp",2],["cp",1],["dp",1],["pp",1]]'
        assert rank.attributes["aliases"] == aliases


def test_a_data_parallel_run_needs_no_annotations(tmp_path):
    collect(tmp_path / "reference", 1, "--zero-biases")
    collect(tmp_path / "trace", 2, "--zero-biases")
    sides = ("--reference", tmp_path / "reference", "--candidate", tmp_path / "trace")
    result = ttrace("check", *sides, "--all")
    assert 'as the program says: loss_scale: "dp"' in result.stdout
    # Each rank's own gradients are scaled, to the bit; only what is summed over ranks is rounded in another order.
    assert "output_layer grad_output" not in result.stdout


# With grouped queries, gates and rope, and with learned positions; the layers are not divided evenly.
@pytest.mark.parametrize("model", [["--model", "llama"], ["--zero-biases"]])
def test_neither_sequence_parallelism_nor_a_pipeline_needs_annotations(tmp_path, model):
    collect(tmp_path / "reference", 1, *model, "--layers", "3")
    parallel = ["--tp", "2", "--sp", "--pp", "2", "--layers", "3", "--first-stage-layers", "1"]
    collect(tmp_path / "trace", 4, *model, *parallel)
    sides = ("--reference", tmp_path / "reference", "--candidate", tmp_path / "trace")
    result = ttrace("check", *sides, "-t", "default")
    assert result.returncode == 0 and result.stdout.startswith("same, within tolerances"), result.stdout


def test_the_preset_of_another_model_is_not_taken_for_its_own(tmp_path):
    """With a parameter of the preset that does not fit the model, the linear that it is about is called wrong."""
    collect(tmp_path / "reference", 1, "--model", "llama")
    collect(tmp_path / "trace", 2, "--model", "llama", "--tp", "2")
    sides = ("--reference", tmp_path / "reference", "--candidate", tmp_path / "trace")
    result = ttrace("check", *sides, "-t", "default", "--set", "mlp_blocks=[1]")
    assert result.returncode == 1
    assert "first wrong tensor: decoder.layers.0.mlp.linear_fc1.weight param" in result.stdout


def test_stages_after_the_first_call_the_mask_by_the_same_name(tmp_path):
    first, last = collect(tmp_path / "trace", 2, "--pp", "2")
    assert "decoder:attention_mask" in first.names("input") and "decoder:attention_mask" in last.names("input")
    assert last.attributes["coordinates"] == '{"cp":0,"dp":0,"edp":0,"ep":0,"etp":0,"pp":1,"tp":0}'
    assert [identity[5] for identity in last.all if identity[5] == "loss"] == ["loss"] * 2


# A wrong program: after a step the ranks never learn what others have made of their parameters.
NEVER_GATHERS = f"""
import runpy, sys
sys.path.insert(0, {str(PROGRAM.parent)!r})
import cuda_stand_in
from megatron.core.distributed.param_and_grad_buffer import _ParamAndGradBucketGroup
_ParamAndGradBucketGroup.start_param_sync = _ParamAndGradBucketGroup.finish_param_sync = lambda *_, **__: None
runpy.run_path({str(PROGRAM)!r}, run_name="__main__")
"""


@pytest.mark.parametrize("wrong", [False, True])
def test_parameters_are_read_once_they_are_gathered_and_stale_ones_fail(tmp_path, wrong):
    program = PROGRAM
    if wrong:
        program = tmp_path / "program.py"
        program.write_text(NEVER_GATHERS)
    arguments = ["--steps", "2", "--zero-biases", "--distributed-optimizer", "--overlap-gather"]
    trace = tmp_path / "trace"
    ranks = collect(trace, 2, *arguments, program=program, options=["--iterations", "0-1"])
    places = [place for identity, place in ranks[0].mappings.items() if identity[4] == "param_after"]
    assert places and all("fragment" in place for place in places)  # what each rank has made, not what it waits for
    result = ttrace(
        "check", "--reference", trace, "--candidate", trace, "-a", "megatron_gpt", "--all", "--allow-same-run"
    )
    assert result.returncode == (1 if wrong else 0), result.stdout
    assert ("replicas-disagree" in result.stdout) == wrong
