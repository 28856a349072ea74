"""Mutants of real frameworks' runs: traces and tolerances of these, changed in known ways."""

import subprocess
from pathlib import Path

from sweeps.runs import RunError

from . import mutants
from .bench import Bench
from .peers import BUILD

TITLE = "Mutants of real frameworks' runs"

FRAMEWORKS = Path(__file__).resolve().parents[2] / "frameworks"

# Trial of tools/frameworks, candidate, annotations.
BEDS = [
    ("pytorch/bf16", "fsdp2-tp2", None),
    ("transformers/gpt2", "ddp", None),
    ("megatron/moe-bf16", "tp2-sp-ep2-alltoall", "megatron_moe"),
    ("deepspeed/zero-bf16", "zero2", None),
]


def measure(bench: Bench) -> list[dict]:
    rows: list[dict] = []
    for trial, candidate, annotations in BEDS[: 1 if bench.quick else None]:
        result = subprocess.run([FRAMEWORKS / "run", "--only", trial], capture_output=True, text=True)
        if result.returncode != 0:
            raise RunError(f"tools/frameworks/run --only {trial}: exit code {result.returncode}\n{result.stderr}")
        artifacts = BUILD / "frameworks" / trial
        check = mutants.Check(
            artifacts / "reference" / "trace",
            artifacts / "candidates" / candidate / "trace",
            annotations,
            artifacts / "tolerance" / "tolerance.yaml",
        )
        bed = mutants.Bed(check)
        rows += mutants.judged(bench, f"{trial}: {candidate}", bed, mutants.of_traces(bed))
    return rows


def render(rows: list[dict]) -> list[str]:
    return mutants.render(rows)
