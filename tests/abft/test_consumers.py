"""`ttrace abft` on a model of which several modules and additions are given the same tensors, in bf16: what it adds up
is right, and a wrong term is found."""

import json
import os
import pathlib
import subprocess

from sweeps import warm

TTRACE = os.environ["TTRACE_PROGRAM"]
PROGRAM = pathlib.Path(__file__).parent / "programs" / "post_norm.py"


def checked(directory, *arguments):
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    collect = [TTRACE, "collect", "-o", str(directory / "trace"), "--iterations", "0-1", "--"]
    command = [*collect, *warm.command(PROGRAM, *arguments)]
    subprocess.run(command, check=True, capture_output=True, env=environment, timeout=300)
    abft = [TTRACE, "abft", str(directory / "trace"), "--json", str(directory / "json")]
    subprocess.run(abft, capture_output=True, timeout=300)
    return json.loads((directory / "json").read_text())


def test_residual_connections_and_gradients_added_up_in_bf16_are_right(tmp_path):
    report = checked(tmp_path)
    assert (report["verdict"], report["counts"]["fail"], report["counts"]["untrusted"]) == ("same", 0, 0)
    notes = "\n".join(report["notes"])
    assert "8 have that of a residual connection in them" in notes
    assert "of 2 attention modules scores, probabilities and context are not checked" in notes
    assert "layers.0.self_attn, layers.1.self_attn" in notes


def test_a_wrong_gradient_beside_a_residual_connection_is_found(tmp_path):
    report = checked(tmp_path, "fault")
    assert report["verdict"] == "different"
    cause = report["root_cause"]
    assert (cause["name"], cause["kind"]) == ("layers.0.linear1", "grad_input")
    assert (cause["iteration"], cause["microbatch"], cause["reason"]) == (1, 0, "product-differs")
    assert "in other calls of the module it is" in cause["message"]
    (root,) = report["roots"]
    assert (root["name"], root["module"]) == ("layers.0.linear1", "layers.0.linear1")
    assert cause["source"] == root["source"]
    forward = root["source"]["forward"]
    assert pathlib.Path(forward["file"]).name == PROGRAM.name
    assert PROGRAM.read_text().splitlines()[forward["line"] - 1] == "    def forward(self, x):"
