"""The section on steps of unknown optimizers counts what it should."""

from evaluations import unknown_steps


def row(fault, verdict, reason=None, **more):
    judged = {"regressed": 50, "unknown": 52, "worst": 0.25, "iteration": 1 if reason else None, "why": "a sentence"}
    same = {"optimizer": "lion", "dtype": "bf16", "layout": "dp2", "fault": fault, "verdict": verdict, "reason": reason}
    return {**same, **judged, **more}


def test_a_false_alarm_is_counted_and_told():
    rows = [row("none", "same"), row("none", "different", "step-differs")]
    assert unknown_steps.summary(rows) == (2, 1, 0, 0)
    text = "\n".join(unknown_steps.render(rows))
    assert "2 correct runs, 1 with a false alarm" in text
    assert "- lion bf16 dp2: a sentence" in text


def test_what_could_not_be_judged_is_no_success():
    judged = {"optimizer": "lion", "dtype": "bf16", "layout": "dp2", "verdict": "not judged", "why": "no proof"}
    rows = [{"fault": fault, **judged} for fault in ("none", *unknown_steps.FAULTS)]
    assert unknown_steps.summary(rows) == (1, 1, 5, 0)
    text = "\n".join(unknown_steps.render(rows))
    assert "- lion bf16 dp2: no proof" in text and "| lion | bf16 | not judged | not judged |" in text


def test_a_fault_counts_where_it_is_blamed_on_the_step():
    verdicts = [("same", None), ("different", "exceeds-tolerance"), ("different", "step-differs")]
    rows = [row(fault, *verdict) for fault, verdict in zip(unknown_steps.FAULTS, verdicts, strict=False)]
    rows += [row(fault, "different", "options-differ", iteration=0) for fault in unknown_steps.FAULTS[3:]]
    assert unknown_steps.summary(rows) == (0, 0, 5, 3)
    line = "| lion | bf16 | **not seen** | [1: exceeds-tolerance] | 1 | 0 | 0 |"
    assert line in unknown_steps._fault_table(rows)
