"""`tools/programs`: what its programs say of themselves, what is expected of ttrace, and the page made of rows."""

from dataclasses import replace

import pytest

from programs import runs, table
from programs.page import Judged, page
from programs.runs import Row, Verdict
from programs.table import KINDS, Program, kinds, outside, programs

PROGRAM = Program(
    name="mixup",
    path=KINDS / "sampler.py",
    arguments=(),
    package="PyTorch",
    idiom="Mixup.",
    parallel="DDP, 4 ranks",
    mistake="one bias is not reduced",
    mistake_name="wrong",
    shows=("fc.bias main_grad", "fc.* param_*"),
    hint="",
    iterations="",
    then=0,
    asks="",
)
SAME, ASKED = Verdict("same", compared=9, proved=8), Verdict("could-not-look", "fc output", ["fc output"], "why?")
FOUND = Verdict("different", "fc.bias main_grad", [], "never averaged", 9, 5)
ELSEWHERE = replace(FOUND, tensor="fc.weight main_grad")


def row(correct, wrong, then_correct=None, then_wrong=None):
    return Row("0123456789", 2.5, correct, wrong, ["--axes dp=2"] if then_correct else [], then_correct, then_wrong)


def test_every_program_says_what_it_is_and_makes_a_mistake_when_told():
    found = programs()
    assert len(found) >= 80
    assert len({(program.package, program.idiom) for program in found}) >= 40
    texts = {program.name: program.path.read_text() for program in found}
    assert [name for name, text in texts.items() if "MISTAKE" not in text and "scaled(" not in text] == []
    assert [program.name for program in found if program.ranks not in (2, 4) and not program.is_public] == []


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("sampler | DDP, 2 ranks | ahead | (model) input", "line 2: expected 5 cells"),
        ("sampler | DDP, 2 ranks | ahead | (model) input | --axes dp=2", "line 2: expected one of hint"),
        ("missing | DDP, 2 ranks | ahead | (model) input |", "line 2: no program tests/programs/kinds/missing.py"),
        ("sampler | DDP | ahead | (model) input |", "sampler: expected a number of ranks in 'DDP'"),
    ],
)
def test_a_line_of_the_kinds_that_says_no_program_is_named(line, what):
    with pytest.raises(ValueError, match=what.replace("(", r"\(")):
        kinds(f"# program\n{line}\n")


def test_mistakes_outside_the_first_step_share_a_correct_program_and_are_recorded_lightly():
    first, second = outside(
        "later | DDP, 2 ranks | moments-lost: averages are zero | * param_delta |\n"
        "later | DDP, 2 ranks | schedule-twice: it steps twice | * param_delta |\n"
    )
    assert (first.name, first.mistake_name, first.mistake) == (
        "outside/later-moments-lost",
        "moments-lost",
        "averages are zero",
    )
    assert first.then == second.then == 2
    assert first.correct_name == second.correct_name == "outside/later"


@pytest.mark.parametrize(
    ("words", "what"),
    [
        ("package: P\nparallel: 2 ranks\nmistake: m\n", "does not say: shows"),
        ("package: P\nparallel: 2 ranks\nmistake: m\nshows: s\nhints: h\n", "nobody reads: hints"),
    ],
)
def test_a_program_that_says_too_little_or_what_nobody_reads_is_named(tmp_path, monkeypatch, words, what):
    monkeypatch.setattr(table, "ROOT", tmp_path)
    monkeypatch.setattr(table, "COLLECTION", tmp_path)
    (tmp_path / "some.py").write_text(f'"""An idiom.\n\n{words}"""\n')
    with pytest.raises(ValueError, match=f"some.py: .*{what}"):
        programs()


def test_brackets_in_the_name_of_a_tensor_are_no_set_of_characters():
    (program,) = kinds("sampler | DDP, 2 ranks | ahead | fc[0].weight param_*, loss scalar |")
    assert program.shows_in("fc[0].weight param_after")
    assert not program.shows_in("fc0.weight param_after")
    assert program.shows_in("loss scalar")


@pytest.mark.parametrize(
    ("of", "correct", "wrong", "expected"),
    [
        (row(SAME, FOUND), "same", "different at the right tensor", True),
        (row(SAME, ELSEWHERE), "same", "different at another tensor", False),
        (row(SAME, SAME), "same", "same", False),
        (row(FOUND, FOUND), "different", "different at the right tensor", False),
        (row(ASKED, FOUND, SAME, FOUND), "could-not-look, then same", "different at the right tensor", True),
        (row(ASKED, FOUND), "could-not-look", "different at the right tensor", False),
        (row(ASKED, ASKED, FOUND, FOUND), "could-not-look, then different", None, False),
        (row(ASKED, ASKED, SAME, FOUND), None, "could-not-look, then different at the right tensor", True),
        (row(ASKED, ASKED, SAME, ELSEWHERE), None, "could-not-look, then different at another tensor", False),
        (row(ASKED, ASKED, SAME, SAME), None, "could-not-look, then same", False),
        (
            row(SAME, replace(ASKED, asked=["a b", "fc.bias main_grad"])),
            None,
            "could-not-look, naming the right tensor",
            True,
        ),
    ],
)
def test_what_is_expected_of_a_program(of, correct, wrong, expected):
    judged = Judged(PROGRAM, of)
    assert correct in (None, judged.correct)
    assert wrong in (None, judged.wrong)
    assert judged.expected() == expected
    assert Row.from_json(of.to_json()) == of


def test_what_cannot_be_compared_must_be_asked_about_with_the_right_words():
    asking = replace(PROGRAM, asks="why?")
    assert Judged(asking, row(ASKED, FOUND)).correct == "could-not-look, with what makes it comparable"
    assert Judged(asking, row(ASKED, FOUND)).expected()
    assert not Judged(asking, row(replace(ASKED, sentence="where?"), FOUND)).expected()
    assert Judged(asking, row(SAME, FOUND)).expected()


def test_verdicts_after_two_hints_are_counted_by_themselves():
    judged = Judged(PROGRAM, replace(row(ASKED, ASKED, SAME, SAME), hints=["--axes tp=2", "annotate"]))
    assert judged.correct == "could-not-look, then same after 2 hints"
    assert judged.wrong == "could-not-look, then same after 2 hints"
    assert not judged.expected()


def test_the_page_counts_first_verdicts_and_says_what_is_wrong_and_what_was_not_run():
    every = [replace(PROGRAM, name=name) for name in ("a", "b", "c", "d")]
    failed = Verdict("not run", sentence="collect of reference: no_module")
    rows = {"a": row(SAME, FOUND), "b": row(FOUND, SAME), "c": row(failed, failed)}
    text = page(every, rows)
    assert "4 programs and idioms, packages: 1; 2 were run." in text
    assert "Correct programs:\n\n- 1 different\n- 1 same\n" in text
    assert "Wrong twins:\n\n- 1 different at the right tensor\n- 1 same\n" in text
    assert "| b | PyTorch | DDP, 4 ranks | **different** |  | **same** |" in text
    assert "- b, correct: different: never averaged" in text
    assert "- b, wrong (fc.bias main\\_grad, fc.\\* param\\_\\*): same:" in text
    assert "- a: one bias is not reduced: never averaged" in text
    assert "## Could not be run\n\n- c: collect of reference: no\\_module" in text
    assert "Not run yet: d." in text
    assert "Measured by `tools/programs` in 8 s, at commit 0123456789" in text


@pytest.mark.parametrize(
    ("stderr", "word"),
    [
        (
            "Traceback:\n  a line\n[rank1]: ImportError: cannot import 'log'\nttrace: error: exit code 1\n",
            "[rank1]: ImportError: cannot import 'log'",
        ),
        ("torch.cuda.OutOfMemoryError: 3 GiB\nttrace: error: code 1\n", "torch.cuda.OutOfMemoryError: 3 GiB"),
        ("a word\nttrace: error: no such file\n", "ttrace: error: no such file"),
        ("", "no word"),
    ],
)
def test_a_program_that_could_not_be_run_is_quoted_with_its_own_error(stderr, word):
    assert runs._last_word(stderr) == word


def test_a_row_is_kept_beside_those_of_other_programs(tmp_path, monkeypatch):
    monkeypatch.setattr(runs, "ROWS", tmp_path / "rows.json")
    assert runs.kept() == {}
    for name in ("b", "a", "b"):
        runs._keep(name, row(ASKED, FOUND, SAME, FOUND))
    assert list(runs.kept()) == ["a", "b"]
    assert runs.kept()["a"] == row(ASKED, FOUND, SAME, FOUND)
    assert len(runs.ROWS.read_text().splitlines()) == 4
