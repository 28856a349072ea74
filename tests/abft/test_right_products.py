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


def checked(directory, *arguments, program=PROGRAM):
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    collect = [TTRACE, "collect", "-o", str(directory / "trace"), "--", *warm.command(program, *arguments)]
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


BY_HAND = """
import sys
import torch
from torch import nn

net = nn.Sequential(nn.Embedding(8, 8), nn.Linear(8, 4))
if sys.argv[1] == "wrong":
    net[1].forward = lambda x: nn.functional.linear(x, net[1].weight, net[1].bias) + (torch.arange(4) == 2)
for _ in range(3):
    gradients = torch.autograd.grad(net(torch.arange(8)).square().mean(), list(net.parameters()))
    with torch.no_grad():
        for parameter, gradient in zip(net.parameters(), gradients, strict=True):
            parameter -= 0.5 * gradient
"""


def test_products_of_weights_that_a_program_steps_unseen_are_checked_before_they_move(tmp_path):
    program = tmp_path / "by_hand.py"
    program.write_text(BY_HAND)
    (tmp_path / "right").mkdir(), (tmp_path / "wrong").mkdir()
    right = checked(tmp_path / "right", "right", program=program)
    assert right["verdict"] == "same" and "between micro-batches" in right["notes"][0]
    root = checked(tmp_path / "wrong", "wrong", program=program)["root_cause"]
    assert (root["name"], root["kind"], root["microbatch"]) == ("1", "output", 0)
