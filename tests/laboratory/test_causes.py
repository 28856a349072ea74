"""`tools/causes`: the list of wrong programs, and when a cause is right, wrong or none."""

import pytest
from causes.page import NONE, RIGHT, WRONG, Row, counts, judged
from causes.table import wrong_programs


def test_every_line_is_a_program_with_a_mistake_that_its_text_knows():
    found = wrong_programs()
    assert len(found) >= 60
    assert len({wrong.name for wrong in found}) == len(found)
    for wrong in found:
        mistake, text = wrong.program.mistake_name, wrong.program.path.read_text()
        assert mistake == "wrong" or f'"{mistake}"' in text or "scaled(" in text, wrong.name


def test_a_line_that_is_no_program_is_named():
    with pytest.raises(ValueError, match="causes.txt, line 2: no program missing"):
        wrong_programs("# program\nmissing | loss scalar | a cause | words\n")


@pytest.mark.parametrize(
    ("diagnosis", "sentence", "cause"),
    [
        ("other-norm", "grad_norm, scalar: the norm lacks the gradients of tokens; 8 follow from it.", RIGHT),
        ("other-norm", "grad_norm, scalar: the norm lacks the gradients of head.", WRONG),
        ("", "grad_norm, scalar: nothing known explains the error.", NONE),
        ("region", "grad_norm, scalar: wrong in the copy of rank 1 only.", NONE),
    ],
)
def test_a_cause_is_right_where_it_says_all_the_words(diagnosis, sentence, cause):
    (wrong,) = (each for each in wrong_programs() if each.name == "trainer-norm-lacks-embeddings")
    one = judged(wrong, Row(wrong.name, "0123456789", "same", "different", "grad_norm scalar", diagnosis, sentence))
    assert one.is_first and one.cause == cause
    assert f"{cause} of 1" in counts([one])


def test_a_word_is_said_from_where_it_begins():
    (wrong,) = (each for each in wrong_programs() if each.name == "outside/kept-router-own-samples")
    assert wrong.is_named_by("each rank's own load")
    assert not wrong.is_named_by("nothing known explains the error")


def test_when_a_tensor_is_wrong_is_no_cause():
    (wrong,) = (each for each in wrong_programs() if each.name == "outside/averages-target-copied-late")
    assert wrong.is_named_by("w, buffer_after, iteration 1: it is the value of iteration 0.")
    assert not wrong.is_named_by(
        "w, buffer_after, iteration 1: it is wrong; the same in 2 more micro-batches or iterations."
    )
