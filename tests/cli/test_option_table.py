"""An option of `check` and of `collect` is written once: what is printed to be typed makes the same check again."""

import json
import re
import shlex
import shutil

import numpy
import pytest
from conftest import CHECK

from models import changed, model
from traces import Tensor, record_run

# By what sets it, each option of `check` that decides what is found.
OPTIONS = {
    "--set": ["--set", "dim=1"],
    "--axes": ["--axes", "tp=2"],
    "--reference-annotations": ["--reference-annotations", "a.yaml"],
    "--reference-set": ["--reference-annotations", "set.yaml", "--reference-set", "dim=0"],
    "--tolerance": [],
    "--accept-overrides": ["--accept-overrides"],
    "--bits": ["--bits"],
    "--sequences": ["--bits", "--sequences", "tokens"],
    "--only": ["--only", "layers.0.**"],
    "--iterations": ["--iterations", "0"],
    "--reference-iterations": ["--reference-iterations", "0", "--candidate-iterations", "0"],
    "--candidate-iterations": ["--reference-iterations", "0", "--candidate-iterations", "0"],
    "--strict": ["--strict"],
    "--no-checksums": ["--no-checksums"],
    "--allow-same-run": ["--allow-same-run"],
}


def wrong():
    return changed(model(), "layers.0.mlp", ..., 7)


@pytest.mark.parametrize("option", OPTIONS)
def test_the_command_that_a_check_prints_is_the_same_check(ttrace, reference, candidate, tmp_path, option):
    tokens = [Tensor("tokens", numpy.arange(4), kind="input")] if option == "--sequences" else []
    if tokens:
        shutil.rmtree(reference)
        record_run(reference, [[*tokens, *model()]])
    candidate([*tokens, *wrong()])
    (tmp_path / "set.yaml").write_text("parameters: {dim: 1}\nembedding:\n  output: {tp_dim: $dim}\n")
    check = list(CHECK)
    if option == "--set":
        (tmp_path / "b.yaml").write_text("parameters: {dim: 0}\n" + ANNOTATIONS_WITH_DIM)
        check[-1] = "b.yaml"
    tolerance = [] if "--bits" in OPTIONS[option] else ["-t", "t.yaml"]
    words = [*check, *tolerance, *OPTIONS[option]]
    first = command_after(ttrace, words)
    assert set(OPTIONS[option]) <= set(shlex.split(first)), first
    assert command_after(ttrace, shlex.split(first)) == first


ANNOTATIONS_WITH_DIM = """\
embedding:
  output: {tp_dim: $dim}
layers.*.mlp:
  output: {}
layers.*.mlp.weight:
  tp_dim: 0
"""


def command_after(ttrace, words):
    stdout, _ = ttrace(*words, code=1)
    return re.search(r"^next: ttrace (check .*) --html report.html$", stdout, re.MULTILINE)[1]


def test_all_options_of_check_are_here(ttrace):
    shown = set(re.findall(r"^  (?:-\w,)?(--[\w-]+)", ttrace("check", "--help", code=0)[0], re.MULTILINE))
    elsewhere = {"--help", "--reference", "--candidate", "--annotations", "--correspondence", "--threads", "--python"}
    elsewhere |= {"--rounded-to"}  # of a candidate of that dtype: tests/imports/test_rounding.py
    elsewhere |= {"--json", "--junit", "--csv", "--html", "--sarif", "--github", "--all", "--history"}  # reports
    elsewhere |= {"--follow", "--timeout", "--keep", "--color", "--quiet", "--verbose"}
    assert shown - elsewhere == set(OPTIONS)


@pytest.mark.parametrize("words", [["--only", "layers.0.**"], ["--allow-same-run"], ["--no-checksums"]])
def test_localize_takes_what_check_takes(ttrace, reference, candidate, words):
    candidate(wrong())
    ttrace.takes(["localize", *CHECK[1:], *words])


def test_what_a_candidate_collects_beside_others_is_what_was_asked_for(ttrace, tmp_path):
    (tmp_path / "here").mkdir()
    collect = [
        "collect",
        "-o",
        "trace",
        "--iterations",
        "0,2",
        "--only",
        "layers.0",
        "--sketch",
        "--whole",
        "layers.0.mlp",
    ]
    asked = [*collect, "--directory", "here", "--perturb", "3", "--perturb-at", "modules", "--", "sh", "-c"]
    ttrace(*asked, 'echo "$TTRACE_CONFIG" > config; exit 9', code=9)
    config = json.loads((tmp_path / "here" / "config").read_text())
    assert config["iterations"] == [0, 2] and config["perturb"] == 3 and config["perturb_at"] == "modules"
    assert config["selection"]["whole"] == ["layers.0.mlp"] and config["selection"]["depth"] is None
    assert config["provenance"]["directory"] == str(tmp_path / "here")
