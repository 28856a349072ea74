"""Large tensors are recorded as sketches; a second run is the first again, or is named."""

import json

import pytest
from conftest import TTRACE, run

pytestmark = pytest.mark.usefixtures("warm_programs")

TRAIN = """
import sys
import torch
from torch import nn
class Activation(nn.GELU):
    def forward(self, x):
        return super().forward(x) * (1.01 if "wrong" in sys.argv else 1)
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(512, 1024), Activation(), nn.Linear(1024, 512), nn.LayerNorm(512))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
x = torch.randn(256, 512)
if "other" in sys.argv:
    x[0, 0] += 1
loss = model(x).square().mean()
loss.backward()
optimizer.step()
"""


@pytest.fixture
def sketched(collect, script):
    """sketched(options, arguments of the program) -> Collected"""

    def sketched(*options, program=(), code=0):
        collected = collect("--sketch", *options, command=script(TRAIN, *program))
        assert collected.code == code, collected
        return collected

    return sketched


def check(reference, candidate, *options, code):
    sides = ["--reference", reference.directory, "--candidate", candidate.directory]
    checked = run([TTRACE, "check", *sides, *options, "--json", "-"])
    assert checked.returncode == code, checked.stdout + checked.stderr
    return json.loads(checked.stdout)


def size_of(collected):
    return sum(path.stat().st_size for path in collected.directory.glob("rank-*.h5"))


def test_sketches_are_small_and_show_a_wrong_run(sketched, collect, script, tmp_path):
    small = sketched()
    whole = collect(command=script(TRAIN))
    assert size_of(small) < size_of(whole) / 20
    assert check(whole, small, "-t", "default", code=0)["sketched"]
    wrong = sketched(program=["wrong"])
    report = check(whole, wrong, "-t", "default", code=1)
    assert (report["root_cause"]["name"], report["root_cause"]["kind"]) == ("1", "output")


def test_a_second_run_records_modules_whole_and_is_the_first_again(sketched):
    first = sketched()
    closer = sketched("--whole", "0", "--again", first.directory)
    assert any("tensors have the bits of" in line for line in closer.messages)
    assert size_of(first) < size_of(closer)
    other = sketched("--again", first.directory, program=["other"], code=2)
    (message,) = [line for line in other.messages if "is not the run of" in line]
    assert "the first is" in message and "input" in message


def localize(reference, candidate, output, *command):
    sides = ["--reference", reference.directory, "--candidate", candidate.directory, "-t", "default"]
    return run([TTRACE, "localize", *sides, "-o", output, "--json", "-", *(["--", *command] if command else [])])


def test_localize_records_the_wrong_module_whole_and_sees_its_elements(sketched, tmp_path):
    reference, wrong = sketched(), sketched(program=["wrong"])
    before = check(reference, wrong, "-t", "default", code=1)["root_cause"]
    assert before["worst"] is None and before["diagnosis"] is None
    localized = localize(reference, wrong, tmp_path / "closer")
    assert localized.returncode == 1, localized.stderr
    after = json.loads(localized.stdout)["root_cause"]
    assert (after["name"], after["kind"], after["diagnosis"]) == ("1", "output", "uniform-factor")
    assert len(after["worst"]["index"]) == 2
    for side, trace in (("reference", reference), ("candidate", wrong)):
        assert f"have the bits of {trace.directory}" in localized.stderr
        listing = json.loads(run([TTRACE, "inspect", tmp_path / "closer" / side, "--json"]).stdout)
        whole = {tensor["name"] for tensor in listing["ranks"][0]["tensors"] if "sketch" not in tensor}
        assert "1" in whole and "0.weight" not in whole


def test_localize_refuses_a_run_that_is_not_the_first_again(sketched, script, tmp_path):
    reference, wrong = sketched(), sketched(program=["wrong"])
    localized = localize(reference, wrong, tmp_path / "closer", *script(TRAIN, "wrong", "other"))
    assert localized.returncode == 2
    assert f"is not the run of {wrong.directory} again" in localized.stderr


def test_localize_gives_a_sketched_candidate_the_values_of_a_reference_with_elements(
    sketched, collect, script, tmp_path
):
    reference, wrong = collect(command=script(TRAIN)), sketched(program=["wrong"])
    localized = localize(reference, wrong, tmp_path / "again")
    assert localized.returncode == 1, localized.stderr
    (root, *_) = json.loads(localized.stdout)["roots"]
    assert (root["name"], root["standing"]) == ("1", "confirmed")
