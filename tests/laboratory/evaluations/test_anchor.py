"""What the page of anchors says follows from what was measured."""

from evaluations import anchor
from evaluations.corpus import CASES

CASE = CASES[0]
FIRST = (CASE.first.kind, CASE.first.name)


def measured(verdict, first, ratio, allowed):
    tensors = [FIRST, *(("output", f"layers.{i}") for i in range(20))]
    return {
        "verdict": verdict,
        "first": first,
        "failed": 7,
        "untrusted": 0,
        "ratios": {(*tensor, "0"): ratio for tensor in tensors},
        "allowed": dict.fromkeys(tensors, allowed),
    }


def test_a_bug_that_an_anchor_misses_is_counted_as_missed():
    first = f"{CASE.first.name} {CASE.first.kind}"
    found = {"perturbed": measured("different", first, 60, 0.01), "anchor": measured("same", "", 0.9, 0.6)}
    row = anchor.bug_row(CASE, found)
    assert row == [CASE.bug, "different at it", "same", 7, 7, "60", "0.9"]
    text = anchor.page([row], [], [], ["router-gradient (bf16)"], 61)
    assert "Of 1 bugs perturbed runs find 1 (1 at the right tensor), an anchor 0 (0)." in text
    assert "Not measured: router-gradient (bf16)." in text


def test_a_correct_twin_that_an_anchor_calls_different_is_a_false_alarm():
    found = {"perturbed": measured("same", "", 0.5, 0.01), "anchor": measured("different", "loss scalar", 2, 0.005)}
    row = anchor.twin_row(CASE, found)
    assert row == [CASE.twin.name, "same", "different", "0.5", "2", 0, 0, "0.5 / 0.5 / 0.5"]
    text = anchor.page([], [row], [["anchor", 3, 2, "a"]], [], 61)
    assert "Of 1 correct twins perturbed runs call 0 different, an anchor 1." in text
    assert "| anchor | 3 | 2 | a |" in text
