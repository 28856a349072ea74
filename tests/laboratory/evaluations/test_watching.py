"""What the page of watched jobs says follows from what was measured."""

from evaluations import watching


def row(job, at=None, seen=None, seconds=10.0, later=5.0, said=""):
    return watching.Row("ddp", job, at, seen, 11, 300, seconds, later, said)


RIGHT = [row("plain"), row("frugal", seconds=11.0, later=5.1), row("none", seconds=12.0, later=6.0)]


def test_a_fault_that_is_not_seen_and_a_right_job_that_is_called_wrong_are_counted():
    text = "\n".join(watching.render([*RIGHT, row("weight", 61, 84, said="3.weight: replicas-disagree")], "Made."))
    assert "1 of 1 faults are seen, the last 23 steps after it struck" in text and "**0 false alarms**" in text
    wrong = [*RIGHT[:2], row("none", seen=50, said="0.bias: step-differs"), row("weight", 61)]
    text = "\n".join(watching.render(wrong, "Made."))
    assert "0 of 1 faults are seen" in text and "**1 false alarms**" in text
    assert "| ddp | a bit in one rank's weight | 61 | no | 11 |  |" in text


def test_a_fault_is_not_seen_before_it_strikes():
    assert row("weight", 61, 84).is_right and not row("weight", 61, 50).is_right


def test_costs_are_of_the_whole_job_and_of_its_second_half():
    text = "\n".join(watching.render(RIGHT, "Made."))
    assert "| ddp | DistributedDataParallel | defaults | 10.0 | 11.0 | 1.100 | 1.020 | 11 |" in text
