"""ATTNChecker, section 4.5: how often each section of attention has to be checked, for a target of fault coverage.

Two ways: the paper's algorithm 1 with its formulas as they are printed, and the same problem solved. As printed, H, the
probability that an error does no harm, is f + (1 - f) phi, though phi is the probability that it does; and FCE, what
coverage gains with a section's time, has terms that do not depend on f. Solved: an error of one type in one operation
does harm where the section is not checked, (1 - f) phi; coverage is linear in each f, and the greedy order by
sum R phi / T is the best one."""

import math

from evaluations.markdown import table

TYPES = ("INF", "NaN", "nINF")
SECTIONS = {"AS": ("Q", "K", "AS"), "CL": ("V", "CL"), "O": ("O",)}
# Table 3, Bert; of O the paper has no row: an extreme value there is one in the output as it is in CL.
PHI = {
    "INF": {"Q": 1, "K": 1, "V": 1, "AS": 1, "CL": 1, "O": 1},
    "NaN": {"Q": 1, "K": 1, "V": 1, "AS": 1, "CL": 1, "O": 1},
    "nINF": {"Q": 0.459, "K": 0.434, "V": 0.063, "AS": 0.002, "CL": 0.006, "O": 0.006},
}
TARGET = 1 - 1e-11  # a failure in 1e11 executions
BATCH, SEQUENCE, WIDTH = 16, 128, 768  # of Bert on MRPC


def flops() -> dict[str, float]:
    linear, square = 2.0 * BATCH * SEQUENCE * WIDTH * WIDTH, 2.0 * BATCH * SEQUENCE * SEQUENCE * WIDTH
    return {"Q": linear, "K": linear, "V": linear, "AS": square, "CL": square, "O": linear}


def times() -> dict[str, float]:
    """What checks of a section take, relative to all of them: the elements that checksums are made of, twice."""
    rows, heads = BATCH * SEQUENCE, WIDTH // 64
    linear = rows * WIDTH * 2 + WIDTH * WIDTH
    scores = rows * WIDTH * 2 + heads * BATCH * SEQUENCE**2
    elements = {"AS": 2 * linear + scores, "CL": linear + scores, "O": linear}
    return {name: count / sum(elements.values()) for name, count in elements.items()}


def harm(rate: float) -> dict[str, float]:
    """Of each section the probability that an execution has one error, and that error does harm if nobody checks."""
    counts = flops()
    found = {}
    for name, operations in SECTIONS.items():
        expected = {(op, kind): rate * counts[op] for op in operations for kind in TYPES}
        free = math.exp(-sum(expected.values()))
        found[name] = free * sum(n * PHI[kind][op] for (op, kind), n in expected.items())
    return found


def solved(rate: float) -> dict[str, float]:
    left = harm(rate)
    allowed, cost = 1 - TARGET, times()
    frequency = dict.fromkeys(SECTIONS, 0.0)
    for name in sorted(SECTIONS, key=lambda name: left[name] / cost[name], reverse=True):
        excess = sum(left.values()) - allowed
        if excess <= 0:
            break
        frequency[name] = min(1.0, excess / left[name])
        left[name] *= 1 - frequency[name]
    return frequency


def as_printed(rate: float) -> dict[str, float]:
    """Algorithm 1, with FCE as printed; lines 5 and 6 turned round, which give a section all of its time where less
    would do."""
    counts, cost = flops(), times()
    efficiency = {}
    for name, operations in SECTIONS.items():
        expected = {(op, kind): rate * counts[op] for op in operations for kind in TYPES}
        free = math.exp(-sum(expected.values()))
        spared = sum(n * (1 - PHI[kind][op]) for (op, kind), n in expected.items())
        efficiency[name] = free * (1 + spared) / cost[name]
    coverage, frequency = 0.0, dict.fromkeys(SECTIONS, 0.0)
    for name in sorted(SECTIONS, key=efficiency.get, reverse=True):
        time = min(cost[name], max(TARGET - coverage, 0) / efficiency[name])
        coverage += efficiency[name] * time
        frequency[name] = time / cost[name]
    return frequency


def cell(frequency: dict[str, float]) -> list[str]:
    of_all = sum(frequency[name] * share for name, share in times().items())
    return [" / ".join(f"{frequency[name]:.2f}" for name in SECTIONS), f"{of_all:.0%}"]


def measure() -> list[str]:
    rows = []
    for errors in (1e-25, 13e-25, 20e-25, 1e-22, 2e-22, 5e-22, 1e-21, 5e-21):
        needed = sum(harm(errors).values())
        rows.append([f"{errors * 1e25:,.0f}", f"{needed:.1e}", *cell(solved(errors)), *cell(as_printed(errors))])
    header = ["errors in 1e25 flop, each type", "harm without checks", "solved: AS / CL / O", "of all checks"]
    header += ["as printed: AS / CL / O", "of all checks"]
    return [
        f"Attention of Bert's base size, batch {BATCH}, {SEQUENCE} tokens: {sum(flops().values()):.1e} flop in "
        "products. Target: one failure in 1e11 executions. phi is the paper's Table 3 for Bert; a section's time is "
        "what its checksums read. Frequencies of the sections AS, CL and O, and what is left of the time of checking "
        "always.",
        "",
        *table(header, rows),
        "",
        "At the paper's rates, 13 to 20 errors in 1e25 flop, one execution meets an error that does harm with a "
        "probability far below the target: nothing need be checked, which the paper's figure 10 shows as overhead 0 "
        "at its lowest rates. Its curve from 0 to 3.6 % of a step needs rates, or products, hundreds of times "
        "larger. As printed, algorithm 1 takes the probability that nothing happens for what checks gain: it asks "
        "for the checks of one section at any rate, be it too much or too little. `ttrace` takes no such numbers: "
        "`ttrace watch` and `collect --iterations` say which iterations are recorded, and `abft` checks all of them.",
    ]
