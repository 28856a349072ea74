"""Runs the real program on real ranks: collect, estimate-tolerance, check, as a user types them."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))  # evaluations, sweeps
TTRACE = pathlib.Path(os.environ.get("TTRACE_PROGRAM", ROOT / "build" / "bin" / "ttrace"))
TRAIN = ROOT / "tools" / "tinygpt" / "train.py"
ANNOTATIONS = ROOT / "annotations" / "megatron_gpt.yaml"


def run(*command, expect=0):
    """Runs a command with one torch thread a process; its output is shown when the exit code is another."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    result = subprocess.run([str(word) for word in command], capture_output=True, text=True, env=environment, timeout=600)
    assert result.returncode == expect, f"exit code {result.returncode}\n{result.stdout}\n{result.stderr}"
    return result


class Reference:
    """The single-process run in one dtype, and the tolerances estimated from it."""

    def __init__(self, directory: pathlib.Path, dtype: str):
        self.dtype = dtype
        self.trace = directory / "reference"
        self.tolerance = directory / "tolerance.yaml"
        command = [sys.executable, TRAIN, "--dtype", dtype]
        run(TTRACE, "collect", "-o", self.trace, "--", *command)
        run(TTRACE, "estimate-tolerance", "--reference", self.trace, "-o", self.tolerance, "--", *command)


@pytest.fixture(scope="session")
def reference(tmp_path_factory):
    """reference("bf16") makes the reference of that dtype once and returns it."""
    made = {}

    def make(dtype: str) -> Reference:
        if dtype not in made:
            made[dtype] = Reference(tmp_path_factory.mktemp(f"reference-{dtype}"), dtype)
        return made[dtype]

    return make


@pytest.fixture
def check_candidate(reference, tmp_path):
    """Collects a candidate with these sizes and checks it; returns the report (JSON)."""

    def check(dtype: str, *arguments: str, tp=1, dp=1, pp=1, expect=0) -> dict:
        trusted = reference(dtype)
        axes = f"tp={tp},dp={dp},pp={pp}" + (",sp=tp" if "--sp" in arguments else "")
        train = [TRAIN, "--dtype", dtype, "--tp", tp, "--dp", dp, "--pp", pp, *arguments]
        launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", tp * dp * pp]
        run(TTRACE, "collect", "-o", tmp_path / "candidate", "--axes", axes, "--", *launch, *train)
        report = tmp_path / "report.json"
        run(TTRACE, "check", "--reference", trusted.trace, "--candidate", tmp_path / "candidate", "-a", ANNOTATIONS,
            "-t", trusted.tolerance, "--json", report, expect=expect)
        return json.loads(report.read_text())

    return check
