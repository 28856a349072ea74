"""`ttrace abft` of right products, as PyTorch computes them, and of fp32 with TF32's operands."""

import json
import os
import pathlib
import subprocess

import pytest
from night import at_night

from evaluations import right_products
from sweeps import warm

TTRACE = os.environ["TTRACE_PROGRAM"]
PROGRAM = pathlib.Path(__file__).parent / "programs" / "tf32_linear.py"


@pytest.mark.parametrize("dtype", ["tf32", *at_night("float64", "float32")])
def test_no_right_product_is_called_wrong(dtype):
    counts = right_products.count(dtype, 1)
    assert right_products.of(counts, "fail") == 0 and right_products.of(counts, "pass") > 250, counts


def checked(directory, *arguments):
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    collect = [TTRACE, "collect", "-o", str(directory / "trace"), "--", *warm.command(PROGRAM, *arguments)]
    subprocess.run(collect, check=True, capture_output=True, env=environment, timeout=300)
    checks = [TTRACE, "abft", str(directory / "trace"), "--json", str(directory / "json")]
    subprocess.run(checks, capture_output=True, timeout=300)
    return json.loads((directory / "json").read_text())


def test_products_of_a_program_that_asks_for_tf32_are_right(tmp_path):
    assert checked(tmp_path, "high")["verdict"] == "same"


def test_operands_that_nobody_asked_to_round_are_wrong_and_so_is_a_wrong_element_beside_tf32(tmp_path):
    (tmp_path / "unasked").mkdir(), (tmp_path / "wrong").mkdir()
    assert checked(tmp_path / "unasked", "highest")["root_cause"]["reason"] == "product-differs"
    report = checked(tmp_path / "wrong", "high", "--wrong")
    assert report["root_cause"]["name"] == "0" and "row 3, column 7 is" in report["root_cause"]["message"]
