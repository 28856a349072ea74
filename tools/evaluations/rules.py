"""TTrace's Table 3 on this corpus: fixed rules beside ttrace's measured tolerances."""

import shutil
from typing import Dict, List

from .bench import Bench, identity
from .bugs import chosen
from .corpus import Case
from .markdown import table
from .peers import NAMES, megatron_bound, violations

TITLE = "Fixed rules beside measured tolerances"


def measure(bench: Bench) -> List[dict]:
    cases = chosen(bench)
    bench.prepare((case.configuration.model, case.configuration.dtype) for case in cases)
    return bench.map("rules", lambda case: row_of(bench, case), cases, lambda case: case.bug)


def row_of(bench: Bench, case: Case) -> dict:
    wrong, correct = violations_of(bench, case, "--bug", case.bug), violations_of(bench, case)
    first = case.first
    where = (first.name, first.kind, first.iteration, first.microbatch)
    return {
        "number": case.number,
        "bug": case.bug,
        "rules": {
            rule: {
                "wrong": len(wrong[rule]),  # tensors
                "at_the_bug": any(tensor[:4] == where for tensor in wrong[rule]),
                "correct": len(correct[rule]),
            }
            for rule in wrong
        },
    }


def violations_of(bench: Bench, case: Case, *arguments: str) -> Dict[str, set]:
    run = bench.run(case.configuration, *arguments)
    violating = violations(run, run.report(next(iter(run.tolerances))))
    shutil.rmtree(run.home)
    return violating


def render(rows: List[dict], configurations: List[dict]) -> List[str]:
    """`configurations`: the rows of false_alarms."""
    bugs = len(rows)
    correct = len(configurations)
    lines = [
        "TTrace's Table 3 holds `torch.allclose` at four pairs of bounds against measured tolerances. Here also the constant "
        "bound of the gradient test that Megatron-LM and BioNeMo use, `k * C^(L+1-l) * eps` with k 4, C 1.03, L 32, l 0 (for "
        f"bf16 {megatron_bound('bf16'):.3g}, held against the relative error; once on gradients, which it was made for, once "
        "on all tensors), and the relative difference of SGLang's comparator, `1 - 2<x,y> / (|x|^2 + |y|^2)`.",
        "",
        "The rules get ttrace's merge for free: the same logical tensors, put together from the same shards, each copy held "
        "against the reference, in fp64, declared loss scales divided out. A tensor that is missing or has another shape "
        "violates every rule. In allclose, *other* is the reference.",
        "",
        "How it is counted. The paper does not say; with rtol 1e-5 rounding alone violates a rule somewhere in every run, so "
        "that a false negative can only be one at a tensor. *false positives*: correct runs in which any tensor violates "
        f"the rule, of the {correct} correct configurations. *bugs missed*: wrong runs in which no tensor does. *missed at "
        "the tensor*: bugs whose first wrong tensor does not violate it: a report by this rule points elsewhere. *told "
        "apart*: bugs for which the wrong run violates the rule and its correct twin does not: what a test needs.",
        "",
    ]

    def cells(rule: str) -> List:
        of_bugs = [row["rules"][rule] for row in rows]
        alarms = sum(row["violating"][rule] > 0 for row in configurations)
        return [
            f"{alarms} of {correct}" if correct else "-",
            f"{sum(bug['wrong'] == 0 for bug in of_bugs)} of {bugs}",
            f"{sum(not bug['at_the_bug'] for bug in of_bugs)} of {bugs}",
            f"{sum(bug['wrong'] > 0 and bug['correct'] == 0 for bug in of_bugs)} of {bugs}",
        ]

    names = [*NAMES, "ttrace"]
    lines += table(["rule", "false positives", "bugs missed", "missed at the tensor", "told apart"],
                   [[f"**{name}**" if name == "ttrace" else name, *cells(name)] for name in names])  # fmt: skip
    lines += ["", "By bug: tensors of the wrong run that violate the rule / of its correct twin.", ""]

    def counts(bug: dict) -> str:
        return f"{bug['wrong']} / {bug['correct']}" + ("" if bug["at_the_bug"] else ", not at the bug")

    return lines + table(["bug", *names], [[row["bug"], *(counts(row["rules"][name]) for name in names)] for row in rows])
