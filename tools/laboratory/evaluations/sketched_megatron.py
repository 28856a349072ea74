"""Megatron-core, recorded whole and with `collect --sketch`: correct runs, and runs with a mistake put in."""

import json
import shutil
from dataclasses import dataclass
from pathlib import Path

from sweeps.runs import TTRACE, run

from .bench import Bench
from .corpus import First
from .cost import timed
from .sketched_runs import KINDS, of_report, of_trace

ROOT = Path(__file__).resolve().parents[3]
FOLDER = ROOT / "tools" / "frameworks" / "megatron"
PYTHON = ROOT / ".venv-megatron" / "bin" / "python"
SIZES = "--bf16 --zero-biases --hidden 1024 --sequence 256 --vocabulary 1024 --micro-batches 2"


@dataclass(frozen=True)
class Candidate:
    name: str
    arguments: str  # of train.py
    wrong: str = ""  # a mistake of mistakes.py
    first: First | None = None  # the tensor where that is made


CANDIDATES = [
    Candidate("tp2 sp", "--tp 2 --sp"),
    Candidate(
        "tp2 sp, attention-scale",
        "--tp 2 --sp",
        "attention-scale",
        # The scores, which are scaled as they are made.
        First("decoder.layers.0.self_attention.core_attention.scale_mask_softmax:0", "input", 0),
    ),
    Candidate("dp2", "--overlap-gradients"),
    Candidate(
        "dp2, gradient-sum",
        "--overlap-gradients",
        "gradient-sum",
        First("embedding.word_embeddings.weight", "main_grad", None),
    ),
]


def measure(bench: Bench) -> dict:
    """One run after the other, whole and sketched in turn, so that their times may be compared."""
    requirements = FOLDER / "requirements.txt"
    run([str(ROOT / "tools" / "venv"), str(PYTHON.parents[1]), str(requirements), str(ROOT / ".venv")])
    homes = {kind: bench.directory / "megatron" / kind for kind in KINDS}
    measured = {
        kind: {"reference": _reference(homes[kind], options), "candidates": []} for kind, options in KINDS.items()
    }
    for candidate in CANDIDATES:
        for kind, options in KINDS.items():
            measured[kind]["candidates"].append(_candidate(homes[kind], candidate, options))
    return measured


def _reference(home: Path, options: list[str]) -> dict:
    home.mkdir(parents=True)
    reference = home / "reference"
    command = [str(PYTHON), str(FOLDER / "train.py"), *SIZES.split()]
    _, collect_seconds = timed(lambda: run([TTRACE, "collect", "-o", str(reference), *options, "--", *command]))
    words = ["--reference", str(reference), "-a", "megatron_gpt", "-o", str(home / "tolerance.yaml")]
    _, estimate_seconds = timed(lambda: run([TTRACE, "estimate-tolerance", *words, "--", *command]))
    shutil.rmtree(home / "tolerance.runs")
    return {**of_trace(reference), "collect_seconds": collect_seconds, "estimate_seconds": estimate_seconds}


def _candidate(home: Path, candidate: Candidate, options: list[str]) -> dict:
    trace, report, measured = home / "candidate", home / "report.json", home / "measured.csv"
    shutil.rmtree(trace, ignore_errors=True)
    program = ["mistakes.py", "--wrong", candidate.wrong] if candidate.wrong else ["train.py"]
    launch = [str(PYTHON), "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command = [*launch, str(FOLDER / program[0]), *program[1:], *SIZES.split(), *candidate.arguments.split()]
    _, collect_seconds = timed(lambda: run([TTRACE, "collect", "-o", str(trace), *options, "--", *command]))
    check = [TTRACE, "check", "--reference", str(home / "reference"), "--candidate", str(trace), "-a", "megatron_gpt"]
    check += ["-t", str(home / "tolerance.yaml"), "--json", str(report), "--csv", str(measured)]
    _, check_seconds = timed(lambda: run(check, allowed=(0, 1)))
    result = of_report(json.loads(report.read_text()), measured.read_text())
    expected = candidate.first and str(candidate.first)
    return {
        "name": candidate.name,
        "is_wrong": bool(candidate.wrong),
        **result,
        "right": result["found"] == expected,
        **of_trace(trace),
        "collect_seconds": collect_seconds,
        "check_seconds": check_seconds,
    }
