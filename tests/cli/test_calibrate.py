"""V-ABFT's e_max of this machine, from products of its PyTorch."""

import pathlib
import re
import subprocess
import sys

import pytest

from traces import PROGRAM

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "src" / "python" / "ttrace_torch" / "calibrate.py"


@pytest.fixture(scope="module")
def stream():
    command = [sys.executable, SCRIPT, "--trials", "128", "--sizes", "64", "--dtypes", "float32", "bfloat16"]
    return subprocess.run(command, check=True, capture_output=True).stdout


def calibrate(stream, path):
    return subprocess.run([PROGRAM, "calibrate", "-o", path], input=stream, capture_output=True)


def test_what_products_round_on_this_machine_is_within_a_few_roundings(stream, tmp_path):
    assert calibrate(stream, tmp_path / "e_max.yaml").returncode == 0
    e_max = dict(re.findall(r"^  (\w+): (\S+)$", (tmp_path / "e_max.yaml").read_text(), re.MULTILINE))
    assert 2**-30 < float(e_max["float32"]) < 2**-20
    assert 2**-14 < float(e_max["bfloat16"]) < 2**-7


def test_a_stream_that_ends_early_calibrates_nothing(stream, tmp_path):
    for part in (b"", stream[:1000], stream[:-4]):
        result = calibrate(part, tmp_path / "e_max.yaml")
        assert result.returncode == 2 and b"expected what ttrace_torch/calibrate.py writes" in result.stderr
    assert not (tmp_path / "e_max.yaml").exists()


def test_a_calibration_is_for_v_abft_only(tmp_path):
    command = [PROGRAM, "abft", tmp_path, "--threshold", "sea", "--e-max", "e_max.yaml"]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 2
    assert result.stderr == "ttrace: error: --e-max: says nothing to --threshold sea; expected v-abft\n"
