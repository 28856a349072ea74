"""What the evaluation of sketches counts."""

from evaluations import sketches
from evaluations.sketched_runs import of_report

CSV = """name,kind,iteration,microbatch,pass,rel_err,max_abs
embed,output,0,0,forward,0.5,
norm.weight,main_grad,0,,forward,0.2,0.1
tokens,input,0,0,forward,,
"""


def report_of(name, kind, microbatch):
    cause = {"name": name, "kind": kind, "iteration": 0, "microbatch": microbatch, "pass": "forward", "ratio": 9.0}
    counts = {"compared": 3, "not_seen": 0, "fail": 2, "missing": 0}
    return {"verdict": "different", "root_cause": cause, "counts": counts}


def test_a_comparison_of_a_sketch_has_no_largest_element():
    run = of_report(report_of("embed", "output", 0), CSV)
    assert (run["found"], run["found_by_sketch"]) == ("embed output, iteration 0, micro-batch 0", True)
    assert (run["sketched"], run["compared"], run["wrong"]) == (1, 3, 2)
    assert not of_report(report_of("norm.weight", "main_grad", None), CSV)["found_by_sketch"]


def test_a_correct_run_that_is_not_called_the_same_is_a_false_alarm():
    same, wrong = {"verdict": "same", "is_wrong": False}, {"verdict": "different", "right": True, "is_wrong": True}
    alarm, missed = {**same, "verdict": "could-not-look"}, {"verdict": "same", "right": False, "is_wrong": True}
    rows = [{"wrong": wrong, "twin": same}, {"wrong": missed, "twin": alarm}]
    totals = sketches.summary({"bugs": rows, "megatron": {"sketched": {"candidates": [same, wrong]}}})
    assert tuple(totals.values()) == (3, 2, 2, 3, 1)  # wrong ones, detected, right; correct ones, alarms
