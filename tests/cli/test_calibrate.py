"""V-ABFT's e_max of this machine, from products of its PyTorch."""

import re
import subprocess
import sys

import pytest

from traces import PROGRAM

PRODUCTS = [sys.executable, "-m", "ttrace_torch.calibrate"]  # the module is found below ttrace alone
FEW = ["--trials", "128", "--sizes", "64", "--dtypes", "float32", "bfloat16"]


def calibrate(path, *command):
    return subprocess.run([PROGRAM, "calibrate", "-o", path, "--", *command], capture_output=True, text=True)


@pytest.fixture(scope="module")
def stream(tmp_path_factory):
    """What the module prints."""
    path = tmp_path_factory.mktemp("products") / "stream"
    calibrate(path.parent / "e_max.yaml", "sh", "-c", '"$@" > ' + str(path), "sh", *PRODUCTS, *FEW)
    assert path.read_bytes().endswith(b"end\n")
    return path.read_bytes()


def test_what_products_round_on_this_machine_is_within_a_few_roundings(tmp_path):
    result = calibrate(tmp_path / "e_max.yaml", *PRODUCTS, *FEW)
    assert (result.returncode, result.stderr) == (0, "")
    e_max = dict(re.findall(r"^  (\w+): (\S+)$", (tmp_path / "e_max.yaml").read_text(), re.MULTILINE))
    # At least the unit roundoff, as both sums are rounded: with less, right products of signed elements are wrong.
    assert 2**-24 < float(e_max["float32"]) < 2**-18
    assert 2**-8 < float(e_max["bfloat16"]) < 2**-6


def test_products_that_end_early_calibrate_nothing(stream, tmp_path):
    for part in (b"", stream[:1000], stream[:-4]):
        (tmp_path / "part").write_bytes(part)
        result = calibrate(tmp_path / "e_max.yaml", "cat", tmp_path / "part")
        assert result.returncode == 2
        assert "expected what `python -m ttrace_torch.calibrate` prints" in result.stderr
    assert not (tmp_path / "e_max.yaml").exists()


def test_a_command_that_is_not_there_calibrates_nothing(tmp_path):
    result = calibrate(tmp_path / "e_max.yaml", "no-such-program")
    assert result.returncode == 2
    assert "ttrace: error: no-such-program: no line of JSON with platform, trials and sizes; expected " in result.stderr


def test_a_calibration_is_for_v_abft_only(tmp_path):
    command = [PROGRAM, "abft", tmp_path, "--threshold", "sea", "--e-max", "e_max.yaml"]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 2
    assert result.stderr == "ttrace: error: --e-max: says nothing to --threshold sea; expected v-abft\n"
