"""Somebody who knows the formats wants a wrong candidate called the same. Each attempt ends as different or as
could-not-look, or the report says in words what was not compared, or by whose word it passed. The table of them is in
src/manual/security.md."""

import dataclasses
import json
import os
import re
import shutil
import subprocess

import numpy
import pytest
from conftest import CHECK, Project
from forged import change, training_run

from traces import PROGRAM, Tensor, edit_index, record_rank, record_run, seal_again

NAME = "layers.1.mlp"
GRID = numpy.arange(1, 33, dtype="float32").reshape(4, 8)


def is_wrong(tensor):
    return tensor.kind == "output" and tensor.name == NAME


RIGHT = training_run(9)
WRONG = change(RIGHT, lambda values: values * 1.5, kind="output", name=NAME)
LACKING = [tensor for tensor in WRONG if not is_wrong(tensor)]


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """A reference, and the tolerances that were measured of it."""
    project = Project(tmp_path_factory.mktemp("attacks"))
    project.record("reference", training_run())
    for seed in (1, 2, 3):
        project.record(f"p{seed}", training_run(seed), seed)
    project.record("again", training_run())
    project.estimate()
    return project


@pytest.fixture
def attack(base):
    """attack(tensors, **provenance) -> what a check says of such a candidate; `named` is what it says where it is the
    same."""

    def attack(tensors, named=None, words=("-t", "t.yaml"), **provenance):
        shutil.rmtree(base.directory / "candidate", ignore_errors=True)
        record_run(base.directory / "candidate", [tensors], provenance=json.dumps(provenance))
        return holds(base, *CHECK, *words, named=named)

    return attack


def holds(project, *words, named=None):
    """The output, which is not the same, or says `named`."""
    ended = subprocess.run([PROGRAM, *words], cwd=project.directory, capture_output=True, text=True, timeout=60)
    said = ended.stdout + ended.stderr
    assert ended.returncode in ((1, 2) if named is None else (0,)), said
    assert named is None or named in said, said
    return said


def test_without_an_attempt_the_wrong_candidate_differs_and_the_right_one_is_the_same(attack):
    assert attack(WRONG).startswith("different\nfirst wrong tensor: layers.1.mlp output, iteration 0, micro-batch 0\n")
    attack(RIGHT, named="63 compared: 61 pass")


def not_seen(**what):
    return {"not_seen": [{"reason": "it says so", "kinds": ["output"], "iterations": [0], **what}]}


LIGHT = {"asked": [1], "finished": [0], "light": [0]}
# By what the candidate's trace says of itself: its tensors, its statements, and what a check says that calls it same.
STATEMENTS = {
    "the wrong one is not seen, and there": (WRONG, not_seen(tensors=[NAME]), None),
    "the wrong one is not seen": (LACKING, not_seen(tensors=[NAME]), "not-seen: 2 not-seen-in-candidate"),
    "its module is left out by design": (
        LACKING,
        not_seen(modules=[NAME], by_design=True),
        "same, of what both traces hold\nthe candidate holds less by design (it says so)",
    ),
    "everything may be left out": (
        LACKING,
        {"not_seen": [{"reason": "it says so", "everything": True}]},
        "same, of what both traces hold\nthe candidate holds less by design (it says so)",
    ),
    "no output was seen": (
        [tensor for tensor in WRONG if tensor.kind != "output"],
        not_seen(modules=[f"layers.{i}.mlp" for i in range(4)]),
        None,
    ),
    "all was a rehearsal": (WRONG, {"rehearsals": {"chunks": [0], "microbatches": []}}, None),
    "a micro-batch was a rehearsal": (WRONG, {"rehearsals": {"chunks": [], "microbatches": [[0, 0, 1]]}}, None),
    "the iteration was not asked for": (WRONG, {"further": {"asked": [], "finished": [0]}}, None),
    "the iteration was not finished": (WRONG, {"further": {"asked": [], "finished": []}}, None),
    "the iteration is light": (WRONG, {"further": LIGHT}, None),
    "the light iteration was asked for": (WRONG, {"further": {"asked": [0], "finished": [], "light": [0]}}, None),
    "it was given the reference's values": (
        WRONG,
        {"rewritten": {"source": "reference", "activations": "recorded"}},
        None,
    ),
    "it is a perturbed run": (WRONG, {"perturb_seed": 1}, None),
    "its gradients may be narrower": (WRONG, {"parallelism": {"narrower": ["main_grad", "param_after"]}}, None),
    "its loss is scaled": (
        change(RIGHT, lambda values: values * 1.5, kind=("grad_output", "grad_input", "param_grad")),
        {"parallelism": {"loss_scale": 1.5}},
        None,
    ),
    "it is tied to the right one": (WRONG, {"parallelism": {"tied": {NAME: "layers.2.mlp"}}}, None),
}


@pytest.mark.parametrize("attempt", STATEMENTS)
def test_what_a_trace_says_of_itself_excuses_nothing_in_silence(attack, attempt):
    tensors, provenance, named = STATEMENTS[attempt]
    attack(tensors, named, **provenance)


def as_dtype(kind, name, convert):
    return [
        tensor.with_values(convert(tensor.values)) if (tensor.kind, tensor.name) == (kind, name) else tensor
        for tensor in RIGHT
    ]


def as_bool(values):
    return values != 0


BOOLS = {"output": NAME, "input": NAME, "grad_output": NAME, "scalar": "loss", "main_grad": f"{NAME}.weight"}


@pytest.mark.parametrize("kind", BOOLS)
def test_what_is_no_mask_does_not_pass_as_one(attack, kind):
    said = attack(as_dtype(kind, BOOLS[kind], as_bool))
    assert said.startswith(f"different\nfirst wrong tensor: {BOOLS[kind]} {kind}, iteration 0")
    assert "the reference has float32 " in said and "the candidate bool " in said


def test_nor_does_it_where_the_whole_run_is_of_such(attack):
    attack([tensor.with_values(as_bool(tensor.values)) for tensor in RIGHT])
    attack(as_dtype("output", NAME, lambda values: numpy.zeros(values.shape, bool)))


@pytest.mark.parametrize("hidden", [0, -10000, numpy.finfo("float32").min, -numpy.inf])
def test_a_mask_of_two_forms_is_left_to_what_is_computed_with_it(ttrace, tmp_path, hidden):
    mask = numpy.tri(4, dtype=bool)
    added = numpy.where(mask, numpy.float32(0), numpy.float32(hidden)) if hidden else mask.astype("float32")
    others = [Tensor(f"m{i}", GRID) for i in range(4)]
    record_run(tmp_path / "reference", [[Tensor("attention", added, kind="input"), *others]])
    record_run(tmp_path / "candidate", [[Tensor("attention", mask, kind="input"), *others]])
    assert ttrace(*CHECK, code=0)[0].startswith("same\n")


VALUES = {
    "as int64": lambda values: values.astype("int64"),
    "as fp16": lambda values: values.astype("float16"),
    "one NaN": lambda values: numpy.where(values == values.max(), numpy.float32(numpy.nan), values),
    "no elements": lambda values: values[:0],
    "half of the rows": lambda values: values[:2],
    "rows twice": lambda values: numpy.concatenate([values, values]),
    "another shape": lambda values: values.reshape(8, 4),
    "one dimension more": lambda values: values[None],
    "one element": lambda values: values[:1, 0].reshape(()),
    "rows in another order": lambda values: values[::-1],
    "in another order of memory": lambda values: values.T.reshape(values.shape),
}


@pytest.mark.parametrize("attempt", VALUES)
def test_values_in_another_form_are_seen(attack, attempt):
    attack(as_dtype("output", NAME, VALUES[attempt]))


ENDS_OF_RANGE = {
    "huge": (1e200, 1.5e200),
    "tiny": (1e-200, 1.5e-200),
    "tiny, of the other sign": (1e-300, -1e-300),
    "subnormal, and zero": (5e-324, 0.0),
    "largest": (1e308, 1.7e308),
    "infinite, of the other sign": (numpy.inf, -numpy.inf),
    "NaN, and infinite": (numpy.nan, numpy.inf),
}


@pytest.mark.parametrize("attempt", ENDS_OF_RANGE)
def test_numbers_whose_squares_have_no_value_are_compared(ttrace, tmp_path, attempt):
    others = [Tensor(f"m{i}", GRID) for i in range(4)]
    for name, value in zip(("reference", "candidate"), ENDS_OF_RANGE[attempt], strict=True):
        alone, beside = numpy.full(16, value), numpy.append(numpy.full(16, value), numpy.ones(4))
        record_run(tmp_path / name, [[Tensor("alone", alone), Tensor("beside", beside), *others]])
    assert holds(ttrace, *CHECK).startswith("different")
    holds(ttrace, *CHECK, "-t", "default")
    assert holds(ttrace, *CHECK, "--only", "beside").startswith("different")


def renamed(tensors, name):
    return [dataclasses.replace(tensor, name=name) for tensor in tensors if is_wrong(tensor)]


WAIVED = "waived: 2 "
NAMES = {  # what is recorded beside the right run, or in its place
    "a wrapper's, beside": (WRONG + renamed(RIGHT, f"module.{NAME}"), None),
    "a wrapper's, in its place": (LACKING + renamed(RIGHT, f"_orig_mod.{NAME}") + renamed(WRONG, "other"), None),
    "a further call": (RIGHT + renamed(WRONG, f"{NAME}#1"), None),
    "a first member": (RIGHT + renamed(WRONG, f"{NAME}:0"), None),
    "a second member": (RIGHT + renamed(WRONG, f"{NAME}:1"), WAIVED + "values that modules return on one side alone"),
    "a leading zero": (LACKING + renamed(RIGHT, "layers.01.mlp"), None),
    "a blank": (LACKING + renamed(RIGHT, NAME + " "), None),
    "a capital": (LACKING + renamed(RIGHT, "Layers.1.mlp"), None),
    "no width": (RIGHT + renamed(WRONG, NAME + "\u200b"), "in the modules after them: layers.#.mlp\\xe2"),
    "of another iteration": (LACKING + [dataclasses.replace(t, iteration=1) for t in WRONG if is_wrong(t)], None),
    "of an iteration more": (RIGHT + [dataclasses.replace(t, iteration=1) for t in WRONG], None),
}


@pytest.mark.parametrize("attempt", NAMES)
def test_another_name_hides_nothing_in_silence(attack, attempt):
    tensors, named = NAMES[attempt]
    attack(tensors, named)


def tp(placement, **more):
    return {"axis": "tp", "size": 2, "placement": placement, **more}


def on_axes(*axes):
    return json.dumps({"axes": axes})


def part(start, size, rows=0):
    """A fragment: `size` rows of what was recorded, from `rows` on, are those from `start` on."""
    slices = [{"local": [rows, 0], "start": [start, 0], "size": [size, 8]}]
    return json.dumps({"axes": [], "fragment": {"whole": [4, 8], "slices": slices}})


def flat(begin, end):
    return json.dumps({"fragment": {"whole": [4, 8], "range": [begin, end]}})


ROWS, COPIES, TERMS = on_axes(tp("shard", dim=0)), on_axes(tp("replicate")), on_axes(tp("partial"))
NAN, OTHER_NAN = GRID.copy(), GRID.copy()
NAN[0, 0] = numpy.nan
OTHER_NAN.view("uint32")[0, 0] = 0x7FC00ABC
PLACES = {  # what two ranks hold of a tensor, and where they say it lies
    "parts of each other": ((GRID[2:], ROWS), (GRID[:2], ROWS)),
    "copies that differ": ((GRID, COPIES), (GRID * 3, COPIES)),
    "a copy that is not there": ((GRID, COPIES), None),
    "a part without elements": ((GRID * 2, ROWS), (GRID[:0], ROWS)),
    "parts without elements": ((GRID[:0], ROWS), (GRID[:0], ROWS)),
    "a row that nobody has": ((GRID[:2], part(0, 2)), (GRID[2:3], part(2, 1))),
    "a row that two have": ((GRID[:3], part(0, 3)), (GRID[2:] * numpy.float32([[9], [1]]), part(2, 2))),
    "an element that nobody has": ((GRID.ravel()[:16], flat(0, 16)), (GRID.ravel()[17:], flat(17, 32))),
    "elements that two have": ((GRID.ravel()[:20], flat(0, 20)), (3 * GRID.ravel()[16:], flat(16, 32))),
    "an axis of another size": ((GRID, on_axes(tp("replicate", size=1) | {"size": 1})), (GRID * 9, COPIES)),
    "an axis that is not there": ((GRID, on_axes(tp("replicate") | {"axis": "zz"})), (GRID * 9, COPIES)),
    "NaN in one copy": ((GRID, COPIES), (NAN, COPIES)),
}


@pytest.mark.parametrize("attempt", PLACES)
def test_no_placement_hides_elements(ttrace, tmp_path, attempt):
    others = [Tensor(f"m{i}", GRID) for i in range(4)]
    record_run(tmp_path / "reference", [[Tensor("placed", GRID), *others]])
    copies = [dataclasses.replace(other, mapping=COPIES) for other in others]
    placed = [[Tensor("placed", held[0], mapping=held[1])] if held else [] for held in PLACES[attempt]]
    ranks = [held + copies for held in placed]
    record_run(tmp_path / "candidate", ranks, axes="tp=2")
    holds(ttrace, *CHECK)


@pytest.mark.parametrize("kind", ["main_grad", "param_after", "param_delta"])
def test_a_sum_that_nobody_makes_is_named(ttrace, tmp_path, kind):
    others = [Tensor(f"m{i}", GRID) for i in range(4)]
    record_run(tmp_path / "reference", [[Tensor("m0.weight", GRID, kind=kind, microbatch=-1), *others]])
    copies = [dataclasses.replace(other, mapping=COPIES) for other in others]
    terms = [[Tensor("m0.weight", GRID * f, kind=kind, microbatch=-1, mapping=TERMS), *copies] for f in (3, -2)]
    record_run(tmp_path / "candidate", terms, axes="tp=2")
    holds(
        ttrace,
        *CHECK,
        named=f"candidate: its ranks record terms of a sum of 1 tensor ({kind}), such as m0.weight, which each rank's "
        "optimizer uses as it holds them: a forgotten all-reduce looks the same",
    )


INDEX = {
    "a checksum": {"checksum": 0},
    "another iteration": {"iteration": 1},
    "another micro-batch": {"microbatch": 7},
    "another chunk": {"chunk": 3},
    "a buffer": {"kind": 18},
    "an optimizer's state": {"kind": 16},
    "a recomputation": {"pass": 2},
    "a scalar": {"ndim": 0, "bytes": 4},
    "a dtype that is none": {"dtype": 64 | 3},
    "the bytes of another": {"offset": 4096 + 128, "checksum": 1},
}


@pytest.fixture
def wrong_file(tmp_path):
    """The file of a candidate whose first tensor is wrong."""
    record_run(tmp_path / "reference", [[Tensor(f"m{i}", GRID + i) for i in range(4)]])
    record_run(tmp_path / "candidate", [[Tensor(f"m{i}", (GRID + i) * (1 if i else 5)) for i in range(4)]])
    return tmp_path / "candidate" / "rank-00000.h5"


@pytest.mark.parametrize("attempt", INDEX)
@pytest.mark.parametrize("words", [(), ("--no-checksums",)], ids=["", "without checksums"])
def test_an_index_that_lies_is_not_believed(ttrace, wrong_file, attempt, words):
    edit_index(wrong_file, 0, **INDEX[attempt])
    seal_again(wrong_file)
    holds(ttrace, *CHECK, *words)


def test_the_reference_is_not_its_own_candidate(ttrace, wrong_file, tmp_path):
    candidate, trusted = wrong_file.parent, tmp_path / "reference" / wrong_file.name

    def try_file(make):
        wrong_file.unlink()
        make()
        return holds(ttrace, *CHECK)

    assert "holds the same run" in try_file(lambda: shutil.copy(trusted, wrong_file))
    assert "holds the same run" in try_file(lambda: os.link(trusted, wrong_file))
    assert "a symbolic link" in try_file(lambda: wrong_file.symlink_to(trusted))
    assert "not a regular file" in try_file(lambda: os.mkfifo(wrong_file))
    shutil.rmtree(candidate)
    candidate.symlink_to("reference")
    assert "holds the same run" in holds(ttrace, *CHECK)


def test_files_of_ranks_that_are_too_few_or_too_many_are_no_whole_run(ttrace, wrong_file, tmp_path):
    record_rank(tmp_path / "more", [Tensor("m0", GRID)], rank=0, world_size=2, axes="dp=2", run_id="more")
    words = ("check", "--reference", "reference", "--candidate", "more")
    assert holds(ttrace, *words).startswith("could-not-look: the candidate is not whole")
    shutil.copy(wrong_file, wrong_file.with_name("rank-00001.h5"))
    holds(ttrace, *CHECK)


def unsealed(text):
    return re.sub(r"seal: .*\n", "", text)


def widened(text, largest):
    """With made-up samples of the wrong tensor, and all that follows from them."""
    begin = text.index(f"    {NAME}: ", text.index("  output:\n"))
    end = text.index("\n", begin)
    entry = text[begin:end]
    numbers = r"\{samples: .*?, estimate: (.*?), (responses: .*?, )?floor: (.*?), allowed: (.*?)(?=[,}])"
    for statistic in ("", "scale: ", "row: ", "element: "):
        found = re.search(statistic + numbers, entry)
        if found is None:
            continue
        estimate, responses, floor, allowed = found.groups()
        value = largest if statistic in ("", "scale: ") else 4 * largest
        now = float(allowed) / max(float(estimate), float(floor)) * value
        made = f"{{samples: {[value] * 3}, estimate: {value}, {responses or ''}floor: {floor}, allowed: {now}"
        entry = entry.replace(found[0], statistic + made)
    return text[:begin] + entry + text[end:]


def test_tolerances_that_somebody_made_up_are_named(base, attack):
    path = base.directory / "made-up.yaml"
    path.write_text(widened((base.directory / "t.yaml").read_text(), 0.3))
    assert "the seal is" in attack(WRONG, words=("-t", "made-up.yaml"))
    path.write_text(unsealed(path.read_text()))
    attack(WRONG, words=("-t", "made-up.yaml"), named="note: made-up.yaml: has no seal: nothing says that what it")
    assert "has no seal" not in attack(RIGHT, named="same\n")


def test_a_margin_that_was_not_measured_by_is_refused_or_named(base, attack):
    text = unsealed((base.directory / "t.yaml").read_text())
    (base.directory / "margin.yaml").write_text(text.replace("margin: 3", "margin: 300000"))
    assert "margin * max(estimate, floor)" in attack(WRONG, words=("-t", "margin.yaml"))


def test_no_file_lets_more_pass_for_a_rounding_of_zero_than_what_is_no_zero(tmp_path):
    project = Project(tmp_path)

    def with_second(run, value):
        """In the second micro-batch the output is zero in the reference."""

        def of(tensor):
            is_it = is_wrong(tensor) and tensor.microbatch == 1
            return tensor.with_values(numpy.full_like(tensor.values, value)) if is_it else tensor

        return list(map(of, training_run(run)))

    project.record("reference", with_second(0, 0))
    for seed in (1, 2, 3):
        project.record(f"p{seed}", with_second(seed, 0), seed)
    project.record("again", with_second(0, 0))
    text = unsealed(project.estimate()).splitlines()
    begin = text.index("  output:")
    place = next(i for i in range(begin, len(text)) if text[i].startswith(f"    {NAME}: "))
    text[place] = text[place].removesuffix("}") + ", of_zero: 1e9}"
    (tmp_path / "made-up.yaml").write_text("\n".join(text) + "\n")
    project.record("candidate", with_second(9, 1e4))
    assert holds(project, *CHECK, "-t", "made-up.yaml").startswith("different\n")
