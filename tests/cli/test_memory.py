"""What is read takes at most 64 MiB and four times its own size, whatever it says."""

import json
import subprocess
import sys

import pytest
from conftest import CHECK
from night import at_night

from traces import PROGRAM

MIB = 1 << 20
STATISTICS = ("scale", "row", "element")


# Linux counts what a process had before it became another program, so that it must be started by a small one.
MEASURE = """
import json, resource, subprocess, sys
result = subprocess.run(sys.argv[1:], capture_output=True, text=True)
print(json.dumps([result.returncode, result.stderr, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024]))
"""


def peak_of(words, directory):
    """Runs ttrace; returns its exit code, what it says on stderr, and the most memory that it had, in bytes."""
    command = [sys.executable, "-S", "-c", MEASURE, PROGRAM, *words]
    return json.loads(subprocess.run(command, cwd=directory, capture_output=True, check=True).stdout)


def tolerances(header="", tensors="tensors: {}\n"):
    return (
        "ttrace_tolerance: 3\nreference: r\ndigest: d\n"
        "perturbed: [{run: a, seed: 1}, {run: b, seed: 2}, {run: c, seed: 3}]\nrerun: null\n"
        f"compute_dtype: float32\nepsilon: 1.1920928955078125e-07\nmargin: 4\noverrides: []\n{header}{tensors}"
    )


def entries(count, statistics, sample):
    samples = f"samples: [{sample}, {sample}, {sample}], estimate: {sample}, "
    # The factor of a scale is a quantile; that of the others is twice the margin.
    others = "".join(
        f", {name}: {{{samples}responses: 3, floor: 0, allowed: {8 * float(sample)!r}}}" for name in statistics
    )
    entry = f"{{{samples}floor: 0, allowed: {4 * float(sample)!r}{others}}}"
    return "tensors:\n  output:\n" + "".join(f"    layers.{i}: {entry}\n" for i in range(count))


def keys(count):
    return "".join(f"k{i}: 1\n" for i in range(count))


TEXTS = {
    "tolerances": lambda: tolerances("notes: []\n", entries(50_000, STATISTICS[1:], "0.0001220703125")),
    "tolerances that say little": lambda: tolerances("notes: []\n", entries(300_000, (), "0")),
    "a list": lambda: tolerances("notes: [" + "1," * 5_000_000 + "]\n"),
    "lists": lambda: tolerances("notes: [" + "[1]," * 5_000_000 + "]\n"),
    "keys": lambda: tolerances("notes: []\n" + keys(2_000_000)),
    "keys of nothing": lambda: tolerances("notes: {" + "?," * 5_000_000 + "}\n"),
    "a word": lambda: tolerances("notes: [" + "x" * 20_000_000 + "]\n"),
    "lines": lambda: tolerances("notes:\n" + "-\n" * 5_000_000),
    "patterns": lambda: "".join(f"p{i}: {{output: {{tp_dim: 0}}}}\n" for i in range(500_000)),
    "axes": lambda: "a:\n" + "".join(f"  k{i}: replicate\n" for i in range(500_000)),
}


SLOWEST = ("keys", "tolerances that say little", "patterns")


@pytest.mark.parametrize("what", [*at_night(*SLOWEST), *(name for name in TEXTS if name not in SLOWEST)])
def test_a_text_takes_no_more_memory_than_is_promised(reference, candidate, tmp_path, what):
    candidate()
    file, text = tmp_path / "large", TEXTS[what]()
    file.write_text(text)
    option = "-a" if what in ("patterns", "axes") else "-t"
    code, stderr, peak = peak_of((*CHECK[: CHECK.index("-a")], option, file), tmp_path)
    assert code == 2 and stderr.startswith(f"ttrace: error: {file}:") and stderr.count("\n") == 1, stderr[:1000]
    print(what, peak / MIB, len(text) / MIB, stderr[:150])
    assert peak < 64 * MIB + 4 * len(text), (peak / MIB, len(text) / MIB, stderr[:200])
