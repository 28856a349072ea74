"""What a command takes grows with the number of tensors, and not with its square."""

import os
import subprocess

import numpy
import pytest

from traces import PROGRAM, Tensor, record_run

FEW, MANY = 3_000, 24_000
REPORTS = ["--json", "r.json", "--junit", "r.xml", "--csv", "r.csv", "--sarif", "r.sarif", "--html", "r.html"]
SIDES = ["--reference", "reference", "--candidate"]
COMMANDS = {
    "export": ["export", "reference", "-o", "t.safetensors"],
    "export as npz": ["export", "reference", "-o", "t.npz"],
    "check": ["check", *SIDES, "same"],
    "check by the default": ["check", *SIDES, "same", "-t", "default"],
    "reports of what differs": ["check", *SIDES, "different", "-t", "default", "--all", *REPORTS],
    "inspect": ["inspect", "reference"],
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    values = numpy.arange(1, 5, dtype="float32")
    places = {}
    for count in (FEW, MANY):
        places[count] = tmp_path_factory.mktemp(f"tensors-{count}")
        for name in ("reference", "same", "different"):
            factors = [3 if name == "different" and i % 2 else 1 for i in range(count)]
            tensors = [Tensor(f"layers.{i}.mlp", values * factor) for i, factor in enumerate(factors)]
            record_run(places[count] / name, [tensors], run_id=name)
    return places


def seconds_of(directory, words):
    """Of a processor; the least of two."""
    least = []
    for _ in range(2):
        process = subprocess.Popen([PROGRAM, *words], cwd=directory, stdout=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        assert process.returncode < 2
        least.append(usage.ru_utime + usage.ru_stime)
    return min(least)


@pytest.mark.parametrize("name", COMMANDS)
def test_eight_times_the_tensors_take_no_64_times_as_long(runs, name):
    few, many = (seconds_of(runs[count], COMMANDS[name]) for count in (FEW, MANY))
    print(f"{name}: {few:.2f} s, {many:.2f} s")
    assert many < 25 * max(few, 0.03), (few, many)  # n log n, and what caches hold no longer
