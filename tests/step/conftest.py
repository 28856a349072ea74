"""Runs of the real program, right and with faults that leave no trace in most tensors."""

import json
import os
import pathlib
import subprocess

import pytest

from sweeps import warm

ROOT = pathlib.Path(__file__).resolve().parents[2]
TTRACE = os.environ["TTRACE_PROGRAM"]


class Runs:
    program = TTRACE

    def __init__(self, directory):
        self._directory = directory

    def collect(self, fault, ranks=1, *options, optimizer=None):
        """The trace of two small iterations of tinygpt with a fault in its step; made when first asked for. Without
        `optimizer`, that is tinygpt's own."""
        trace = self._directory / f"{optimizer}-{fault}-{ranks}{''.join(map(str, options))}"
        if not trace.exists():
            collect = [TTRACE, "collect", "-o", trace, "--iterations", "0,1", "--"]
            self.run(0, *collect, *warm.command(*self._program(fault, optimizer), *options, ranks=ranks))
        return trace

    def estimate(self, optimizer):
        """Reference and tolerances of an optimizer; made when first asked for."""
        reference, tolerance = self._directory / f"{optimizer}-reference", self._directory / f"{optimizer}.yaml"
        if not tolerance.exists():
            estimate = [TTRACE, "estimate-tolerance", "-o", tolerance, "--reference", reference, "--iterations", "0,1"]
            self.run(0, *estimate, "--", *warm.command(*self._program("none", optimizer)))
        return reference, tolerance

    @staticmethod
    def _program(fault, optimizer):
        program = ["unknown_step.py", optimizer, fault] if optimizer else ["faulty_step.py", fault]
        return [
            ROOT / "tools/laboratory/evaluations" / program[0],
            *program[1:],
            "--layers",
            1,
            "--steps",
            2,
            "--micro-batches",
            2,
        ]

    def check(self, candidate, reference, *options, expect):
        return self._report(expect, "check", "--reference", reference, "--candidate", candidate, *options)

    def abft(self, trace, *options, expect):
        return self._report(expect, "abft", trace, *options)

    def _report(self, expect, *words):
        output = self._directory / "report.json"
        self.run(expect, TTRACE, *words, "--json", output)
        return json.loads(output.read_text())

    def run(self, expect, *words):
        result = subprocess.run(
            [str(word) for word in words],
            capture_output=True,
            text=True,
            timeout=400,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        assert result.returncode == expect, f"exit code {result.returncode}\n{result.stdout}\n{result.stderr}"


@pytest.fixture(scope="session")
def runs(tmp_path_factory):
    with warm.server():
        yield Runs(tmp_path_factory.mktemp("runs"))
