"""The rules by which others tell a wrong tensor from a right one, beside ttrace's.

A rule gets what ttrace's own check gets: the same tensors, put together from their shards by ttrace. The tools that the
rules come from leave that to their user."""

import math
import os
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from sweeps.runs import ROOT, RunError

from .bench import Run, identity, read_csv

BUILD = Path(os.environ.get("TTRACE_BUILD", ROOT / "build"))

# (atol, rtol) of TTrace's Table 3: none, PyTorch's defaults, and looser ones.
ALLCLOSE = [("0", "1e-5"), ("1e-8", "1e-5"), ("1e-5", "1e-2"), ("1e-2", "1e-1")]

EPSILON = {"bf16": 2.0**-7, "fp16": 2.0**-10, "fp32": 2.0**-23}
GRADIENTS = {"main_grad", "param_grad", "grad_output", "grad_input"}
FINDINGS = {"missing", "fail"}

# What a rule is applied to. Rounding decides the sign of a small gradient, and Adam's first step with it: no fixed
# bound allows for that, so that peers are also judged without the step.
STEP = {"param_delta", "param_after"}
SCOPES = {"all tensors": set(), "without the optimizer's step": STEP}  # kinds left out


def in_scope(tensors: set[tuple], scope: str) -> set[tuple]:
    return {tensor for tensor in tensors if tensor[1] not in SCOPES[scope]}


def epsilon_of(dtype: str) -> float:
    """Of what is between two linears: an fp8 recipe stores bf16 there (TTrace, Figure 8)."""
    return EPSILON.get(dtype, EPSILON["bf16"])


def megatron_bound(dtype: str) -> float:
    """k * C^(L + 1 - l) * eps, the constants fixed: Theorem 3 of TTrace as Megatron-LM's gradient test applies it."""
    k, c, layers, layer = 4.0, 1.03, 32, 0
    return k * c ** (layers + 1 - layer) * epsilon_of(dtype)


@dataclass(frozen=True)
class Rule:
    name: str
    violated: Callable[[dict, str], bool]  # of a line of compare_peers and the dtype


def relative_error(row: dict) -> float:
    """|x - y| / |y|; NaN where it is."""
    difference, reference = math.sqrt(float(row["difference_square"])), math.sqrt(float(row["reference_square"]))
    return difference / reference if reference else (math.inf if difference else 0.0)


def sglang_difference(row: dict) -> float:
    """1 - 2<x, y> / (|x|^2 + |y|^2), which is |x - y|^2 / (|x|^2 + |y|^2): this way no digits are lost."""
    total = float(row["reference_square"]) + float(row["candidate_square"])
    return float(row["difference_square"]) / total if total else 0.0


def _rules() -> list[Rule]:
    rules = [
        Rule(f"allclose atol {atol} rtol {rtol}", lambda row, dtype, i=i: int(row[f"outside_{i}"]) > 0)
        for i, (atol, rtol) in enumerate(ALLCLOSE)
    ]

    # NaN is no error that a bound allows.
    def exceeds_megatrons(row: dict, dtype: str) -> bool:
        return not relative_error(row) <= megatron_bound(dtype)

    def is_wrong_gradient(row: dict, dtype: str) -> bool:
        return row["kind"] in GRADIENTS and exceeds_megatrons(row, dtype)

    rules += [Rule("Megatron-LM bound", exceeds_megatrons), Rule("Megatron-LM bound, gradients", is_wrong_gradient)]
    rules += [
        Rule(f"SGLang {most:g}", lambda row, dtype, most=most: not sglang_difference(row) <= most)
        for most in (1e-3, 8.5e-3)
    ]
    return rules


RULES = _rules()
NAMES = [rule.name for rule in RULES]


def compare(reference: Path, candidate: Path) -> list[dict]:
    """A line for each tensor that both runs have, of directories with `trace` and `annotations.yaml`: compare_peers.cpp
    says what is in it. Throws RunError."""
    program = BUILD / "evaluations" / "compare_peers"
    bounds = [f"{atol}:{rtol}" for atol, rtol in ALLCLOSE]
    runs = [str(home / name) for home in (reference, candidate) for name in ("trace", "annotations.yaml")]
    command = [str(program), *runs, *bounds]
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode != 0:
        raise RunError(f"{' '.join(command)}\nexit code {result.returncode}\n{result.stderr}")
    return read_csv(result.stdout)


def violations(run: Run, report: dict) -> dict[str, set[tuple]]:
    """By rule, the tensors that violate it; under `ttrace` those that it calls wrong. What cannot be compared, because
    one side lacks it or has it in another shape, violates every rule: merging shows it."""
    rows = compare(run.reference, run.home)
    compared = {identity(row) for row in rows}
    wrong = {identity(f) for f in report["findings"] if f["verdict"] in FINDINGS}
    violating = {"ttrace": wrong}
    for rule in RULES:
        violating[rule.name] = (wrong - compared) | {
            identity(row) for row in rows if rule.violated(row, run.configuration.dtype)
        }
    return violating
