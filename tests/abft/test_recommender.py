"""`ttrace abft` on real bags of embeddings and integer products."""

import json
import os
import pathlib
import subprocess

import pytest

from sweeps import warm

TTRACE = os.environ["TTRACE_PROGRAM"]
PROGRAM = pathlib.Path(__file__).parent / "programs" / "recommender.py"


def checked(directory, fault):
    """The report, and the lines of its CSV."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    collect = [TTRACE, "collect", "-o", str(directory / "trace"), "--", *warm.command(PROGRAM, fault)]
    subprocess.run(collect, check=True, capture_output=True, env=environment, timeout=300)
    outputs = ["--json", str(directory / "json"), "--csv", str(directory / "csv")]
    subprocess.run([TTRACE, "abft", str(directory / "trace"), *outputs], capture_output=True, timeout=300)
    return json.loads((directory / "json").read_text()), (directory / "csv").read_text()


def test_bags_in_every_mode_and_integer_products_are_verified(tmp_path):
    report, lines = checked(tmp_path, "none")
    assert report["verdict"] == "same", report["root_cause"]
    assert report["counts"]["untrusted"] == 0
    passed = [line for line in lines.splitlines() if ",pass," in line]
    for name in ("sums", "means", "largest", "weighted", "integers"):
        assert any(line.startswith(f"{name},output,") for line in passed), f"{name}\n{lines}"


@pytest.mark.parametrize(
    "fault, name, reason, told",
    [
        (
            "bag",
            "means",
            "lookup-differs",
            "1 of 8 bags are not the mean of its weight's rows without row 7; the first is bag 3, whose column ",
        ),
        ("integer", "integers", "product-differs", "is not its input times its weight: row 3, column 2 is "),
    ],
)
def test_a_wrong_element_is_found(tmp_path, fault, name, reason, told):
    report, _ = checked(tmp_path, fault)
    cause = report["root_cause"]
    assert (cause["name"], cause["kind"], cause["reason"]) == (name, "output", reason)
    assert told in cause["message"]
