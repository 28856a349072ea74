"""What the terminal shows: lines that fit, colours where they are wanted, as much as was asked for, hints."""

import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import termios

import numpy
import pytest
from conftest import CHECK, changed, model, shards
from program import Program

from traces import PROGRAM, Tensor, record_run

CODE = re.compile(r"\x1b\[[0-9;]*m")


@pytest.fixture
def run(tmp_path):
    """Runs the program with a terminal of so many columns as its stdout; returns what that shows."""
    program = Program(tmp_path)

    def run(*words, columns=80, **environment):
        program.fill_in_digests()
        master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        variables = {key: value for key, value in os.environ.items() if key not in ("NO_COLOR", "LC_ALL", "LANG")}
        variables |= {"TERM": "xterm", "LANG": "C.UTF-8", **environment}
        process = subprocess.Popen(
            [PROGRAM, *words], cwd=tmp_path, stdout=slave, stderr=subprocess.PIPE, env=variables, text=True
        )
        os.close(slave)
        shown = b""
        try:
            while part := os.read(master, 1 << 16):
                shown += part
        except OSError:  # the other side is closed
            pass
        os.close(master)
        assert process.communicate(timeout=60)[1] == ""
        return shown.decode().replace("\r\n", "\n")

    return run


@pytest.fixture
def layers(ttrace, tmp_path):
    """Twelve layers, of which from the fourth on every output is twice what it should be."""

    def outputs(factors):
        values = numpy.arange(32, dtype="float32").reshape(4, 8) % 7 + 1
        return [Tensor(f"decoder.layers.{i}.mlp.linear", values * factor) for i, factor in enumerate(factors)]

    record_run(tmp_path / "reference", [outputs([1] * 12)])
    wrong = outputs([1] * 3 + [2] * 9)
    record_run(tmp_path / "candidate", [wrong, wrong], axes="tp=2")
    tolerances = (tmp_path / "t.yaml").read_text()
    entry = re.search(r"    embedding: (.*)\n", tolerances).group(1)
    names = "".join(f"    decoder.layers.{i}.mlp.linear: {entry}\n" for i in range(12))
    (tmp_path / "t.yaml").write_text(tolerances.replace("  output:\n", "  output:\n" + names))
    (tmp_path / "a.yaml").write_text("decoder.layers.*.mlp.linear:\n  output: {}\n")
    return ttrace


def test_the_summary_has_one_line_for_what_one_cascade_made_wrong(layers):
    text = layers.reports(*CHECK, "-t", "t.yaml", code=1)
    (line,) = [line for line in text.splitlines() if line.endswith("output")]
    assert line.split() == ["9", "12", "33.3", "decoder.layers.3-11.mlp", "output"]
    assert "cause: decoder.layers.3.mlp.linear, output, micro-batch 0: every element is 2 times" in text
    assert text.splitlines()[-1] == "12 compared: 3 pass, 9 fail, 0 untrusted; 0 missing"
    assert len(text.splitlines()) < 16


def test_verbose_lists_ten_findings_and_all_lists_all(layers):
    verbose = layers.reports(*CHECK, "-t", "t.yaml", "-v", code=1)
    everything = layers.reports(*CHECK, "-t", "t.yaml", "--all", code=1)
    assert verbose.count("\n  fail ") == 9 == everything.count("\n  fail ")


def test_quiet_is_the_verdict_and_its_reason_in_one_line(layers):
    text = layers.reports(*CHECK, "-t", "t.yaml", "-q", code=1)
    assert text.startswith("different: decoder.layers.3.mlp.linear, output, micro-batch 0: every element is 2 times")
    assert text.count("\n") == 1
    same = layers.reports(
        "check", "--reference", "reference", "--candidate", "reference", "--allow-same-run", "-q", code=0
    )
    assert same == "same\n"


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_lines_fit_the_terminal_but_for_commands_to_copy(layers, run, columns):
    shown = CODE.sub("", run(*CHECK, "-t", "t.yaml", columns=columns))
    lines = [line for line in shown.splitlines() if not line.startswith("next: ttrace ")]
    assert max(map(len, lines)) <= columns
    assert len(lines) > 8


def test_colours_and_marks_are_for_terminals_that_have_them(layers, run):
    words = (*CHECK, "-t", "t.yaml")
    assert run(*words).startswith("\x1b[1m\x1b[31m\u2717 different\x1b[0m\n")
    for other in (
        run(*words, NO_COLOR="1"),
        run(*words, TERM="dumb"),
        run(*words, "--color", "never"),
        layers.reports(*words, code=1),
    ):
        assert not CODE.search(other)
    assert run(*words, LANG="C").startswith("\x1b[1m\x1b[31mdifferent\x1b[0m\n")
    assert CODE.search(run(*words, "--color", "always", NO_COLOR="1"))
    piped = layers.reports(*words, "--color", "always", code=1)
    assert piped.startswith("\x1b[1m\x1b[31mdifferent\x1b[0m\n")
    assert CODE.sub("", piped) == layers.reports(*words, code=1)


def test_the_text_of_files_does_not_know_the_terminal(layers):
    words = (*CHECK, "-t", "t.yaml")
    texts = {layers.reports(*words, "--threads", str(threads), code=1) for threads in (1, 2, 5)}
    assert len(texts) == 1
    (cause,) = [line for line in texts.pop().splitlines() if line.startswith("cause: ")]
    assert cause.endswith(" follow from it.")  # a line is a sentence, for programs that look for one


def test_errors_are_coloured_only_on_a_terminal(ttrace):
    assert ttrace.refuses("check", "--reference", "a", "--candidate", "b").startswith("a: ")


# Where in the source.

SOURCES = {"files": ["src/model.py"], "forwards": {}, "calls": {"embedding": [0, 17], "layers.#.mlp": [0, 106]}}


@pytest.fixture
def wrong(ttrace, tmp_path):
    def make(name, where, **facts):
        record_run(tmp_path / "reference", [model()])
        candidate = shards(changed(model(), name, where, 90))
        record_run(tmp_path / "candidate", candidate, axes="tp=2", provenance=json.dumps(facts))
        return ttrace

    return make


def test_a_root_names_its_line(wrong):
    ttrace = wrong("layers.0.mlp", (0, 7), sources=SOURCES)
    assert "\n  called at src/model.py:106\n" in ttrace.reports(*CHECK, "-t", "t.yaml", code=1)
    report = json.loads(ttrace.reports(*CHECK, "-t", "t.yaml", "--json", "-", code=1))
    line = {"file": "src/model.py", "line": 106}
    assert report["roots"][0]["source"] == {"forward": None, "call": line, "variable": None}


def test_the_module_of_a_gradient_is_its_parameters(wrong):
    ttrace = wrong("layers.0.mlp.weight", (0, 7), sources=SOURCES)
    assert "\n  called at src/model.py:106\n" in ttrace.reports(*CHECK, "-t", "t.yaml", code=1)


def test_a_trace_that_says_no_lines_names_none(wrong):
    text = wrong("layers.0.mlp", (0, 7)).reports(*CHECK, "-t", "t.yaml", code=1)
    assert ".py" not in text and "cause: layers.0.mlp" in text


def test_github_gets_an_annotation_at_the_line_behind_the_text(wrong):
    ttrace = wrong("layers.0.mlp", (0, 7), sources=SOURCES)
    text = ttrace.reports(*CHECK, "-t", "t.yaml", "--github", code=1)
    assert text.startswith("different\n")
    last = text.splitlines()[-1]
    assert last.startswith(
        "::error file=src/model.py,line=106,title=ttrace%3A candidate::layers.0.mlp, output, micro-batch 0: "
    )
    message = "--github, --json: both go to stdout; expected one"
    assert ttrace.refuses(*CHECK, "--github", "--json", "-") in (message, "--json, --github" + message[16:])


def test_sources_that_are_none_are_refused(wrong):
    ttrace = wrong("layers.0.mlp", (0, 7), sources=7)
    assert ttrace.refuses(*CHECK).endswith(
        "its provenance has 'sources' that are none; expected what `ttrace collect` writes"
    )


# Hints.


def test_tolerances_of_the_candidate_are_a_sign_of_swapped_runs(ttrace, candidate, tmp_path):
    record_run(tmp_path / "reference", [model()])
    candidate()
    assert ttrace.refuses(
        "check", "--reference", "candidate", "--candidate", "reference", "-a", "a.yaml", "-t", "t.yaml"
    ) == (
        "t.yaml: estimated from the run of the candidate reference, not from that of the reference candidate; expected "
        "the other way round: are --reference and --candidate swapped?"
    )


def test_a_reference_of_more_ranks_is_a_sign_of_swapped_runs(ttrace, candidate, tmp_path):
    hint = "the reference has 2 ranks and the candidate one: are --reference and --candidate swapped?"
    record_run(tmp_path / "reference", [model()])
    candidate(changed(model(), "embedding", (0, 7), 90))
    swapped = ("check", "--reference", "candidate", "--candidate", "reference", "-a", "a.yaml", "--json", "-")
    assert hint in json.loads(ttrace.reports(*swapped, code=1))["notes"]
    assert hint not in json.loads(ttrace.reports(*CHECK, "--json", "-", code=1))["notes"]


def data_parallel(batch):
    """A model that is given and returns this batch, on each of two ranks its half."""
    rows = numpy.arange(batch * 8, dtype="float32").reshape(batch, 8) + 1
    whole = [
        Tensor("(model)", rows, kind="input"),
        Tensor("(model)", 2 * rows),
        Tensor("fc.weight", rows[:2], kind="main_grad", microbatch=-1),
    ]

    def part(rank):
        return [t if t.kind == "main_grad" else t.with_values(numpy.split(t.values, 2)[rank]) for t in whole]

    return whole, [part(0), part(1)]


@pytest.mark.parametrize("axis, is_hinted", [("data", True), ("dp", False)])
def test_inputs_that_are_split_along_an_axis_hint_at_data_parallelism(ttrace, tmp_path, axis, is_hinted):
    whole, parts = data_parallel(4)
    record_run(tmp_path / "reference", [whole])
    record_run(tmp_path / "candidate", parts, axes=f"{axis}=2")
    words = ("check", "--reference", "reference", "--candidate", "candidate")
    hint = (
        "candidate: data splits the model's inputs along their first dimension: where that is the batch, and data is "
        "data-parallel, write microbatches: {axis: data, order: slices}"
    )
    notes = json.loads(ttrace.reports(*words, "--json", "-", code=0))["notes"]
    assert (hint in notes) == is_hinted
    (tmp_path / "a.yaml").write_text("parallelism: {microbatches: {axis: data, order: slices}}\n")
    if is_hinted:  # what it says to write is right
        notes = json.loads(ttrace.reports(*words, "-a", "a.yaml", "--json", "-", code=0))["notes"]
        assert hint not in notes


def test_a_batch_of_the_reference_on_every_rank_is_answered_by_what_to_do(ttrace, tmp_path):
    whole, _ = data_parallel(4)
    record_run(tmp_path / "reference", [whole])
    record_run(tmp_path / "candidate", [whole, whole], axes="dp=2")
    words = ("check", "--reference", "reference", "--candidate", "candidate", "--json", "-")
    (note,) = [n for n in json.loads(ttrace.reports(*words, code=1))["notes"] if "micro-batch" in n]
    assert note == (
        "iteration 0: the reference ran 1 micro-batch, the candidate 2 in all; expected the same ones: a reference "
        "with 2, or a candidate whose ranks run 1 each, of slices of its samples (microbatches: {order: slices})"
    )


def test_no_tolerances_and_no_annotations_are_answered_by_a_command_to_copy(ttrace, candidate, tmp_path):
    record_run(tmp_path / "reference", [model()], provenance=json.dumps({"command": ["python", "a file.py"]}))
    candidate(changed(model(), "embedding", (0, 7), 90))
    assert ttrace.reports(*CHECK, code=1).splitlines()[-4] == (
        "next: ttrace estimate-tolerance -o tolerance.yaml --reference reference -- python 'a file.py'"
    )
    words = ("check", "--reference", "reference", "--candidate", "candidate")
    command = "ttrace annotate candidate --reference reference -o annotations.yaml"
    assert f"next: {command}\n" in ttrace.reports(*words, code=1)
    ttrace(*command.split()[1:], code=0)
