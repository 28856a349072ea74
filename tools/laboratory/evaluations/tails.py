"""Quantiles, and the probability of what was not seen."""

import math

CONFIDENCE = 0.95


def quantile(values: list[float], q: float) -> float:
    """The smallest value that a share of at least `q` does not exceed."""
    return sorted(values)[max(0, math.ceil(q * len(values)) - 1)]


def false_alarms(largest: list[float], margin: float) -> dict[str, float]:
    """From the largest ratio of each correct configuration, the probability that another one has a ratio above
    `margin`. `observed` of all; `at_most` with 95 % confidence, whatever the distribution (Clopper-Pearson; 3 / n where
    none was observed); `fitted` by a Pareto tail over the upper half (Hill, 1975), whose log ratios above the median
    are exponential. Each must be an outcome of its own: one that was counted twice would make the bound too tight.
    Configurations that share a reference share its estimate, so that they are fewer than they look all the same."""
    exceeding, all_ = sum(ratio > margin for ratio in largest), len(largest)
    return {
        "configurations": all_,
        "exceeding": exceeding,
        "observed": exceeding / all_,
        "at_most": clopper_pearson(exceeding, all_),
        "fitted": pareto_tail(largest, margin),
    }


def clopper_pearson(successes: int, trials: int) -> float:
    """The upper confidence bound of a probability: where so few successes or fewer have a chance of 1 - CONFIDENCE."""
    if successes >= trials:
        return 1.0
    low, high = successes / trials, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        chance = sum(math.comb(trials, k) * middle**k * (1 - middle) ** (trials - k) for k in range(successes + 1))
        low, high = (middle, high) if chance > 1 - CONFIDENCE else (low, middle)
    return high


def pareto_tail(values: list[float], at: float) -> float:
    """P(value > at), from the tail over the median; nan at or below that, and for a tail of fewer than 5 values."""
    threshold = quantile(values, 0.5)
    tail = [value for value in values if value > threshold]
    if at <= threshold or len(tail) < 5:
        return math.nan
    mean_excess = sum(math.log(value / threshold) for value in tail) / len(tail)
    return len(tail) / len(values) * math.exp(-math.log(at / threshold) / mean_excess)
