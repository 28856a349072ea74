"""`ttrace.compare`: dicts of arrays, files and traces held against each other; the exception's text is the report."""

import pathlib
import tempfile

import numpy
import pytest

import ttrace
from traces import Tensor, record_run


def weights():
    generator = numpy.random.default_rng(0)
    names = [f"layers.{i}.{name}" for i in range(3) for name in ("k", "v")]
    return {name: generator.standard_normal((6, 4)).astype("float32") for name in names}


def wrong():
    arrays = weights()
    return arrays | {"layers.1.k": arrays["layers.1.v"]}


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    yield tmp_path
    assert not list((tmp_path / "temporary").iterdir())


def test_the_report_of_what_is_the_same_is_returned(home):
    report = ttrace.compare(weights(), weights())
    assert report.same and report.counts.passed == 6


def test_the_text_of_the_exception_is_the_report(home):
    with pytest.raises(ttrace.NotSame) as raised:
        ttrace.compare(weights(), wrong())
    text = str(raised.value)
    assert text.startswith("different\nfirst wrong tensor: layers.1.k param, iteration 0\n")
    assert "cause: layers.1.k, param: it holds the values of layers.1.v.\n" in text
    assert "6 compared: 5 pass, 1 fail" in text and "next:" not in text
    assert raised.value.report.roots[0].diagnosis == "other-tensor"


def test_what_one_side_lacks_is_missing_and_what_is_nested_has_dots(home):
    less = weights()
    del less["layers.2.v"]
    with pytest.raises(ttrace.NotSame, match="first missing tensor: layers.2.v"):
        ttrace.compare(weights(), less)
    nested = {"layers": {str(i): {"k": weights()[f"layers.{i}.k"], "v": weights()[f"layers.{i}.v"]} for i in range(3)}}
    assert ttrace.compare(nested, weights()).same


def test_a_dict_is_compared_with_a_file_and_two_files_are(home):
    numpy.savez("saved.npz", **weights())
    numpy.savez("other.npz", **wrong())
    assert ttrace.compare(weights(), "saved.npz").same
    assert ttrace.compare(pathlib.Path("saved.npz"), weights()).same
    with pytest.raises(ttrace.NotSame, match="first wrong tensor: layers.1.k"):
        ttrace.compare("saved.npz", wrong())
    with pytest.raises(ttrace.NotSame, match="next: ttrace check --reference saved.npz --candidate other.npz"):
        ttrace.compare("saved.npz", "other.npz")


def test_a_dict_is_compared_with_the_parameters_of_a_trace(home):
    arrays = weights()
    recorded = [Tensor(name, values, kind="param", microbatch=-1) for name, values in arrays.items()]
    record_run(home / "trace", [[*recorded, Tensor("layers.0", arrays["layers.0.k"])]])
    for trace in ("trace", ttrace.open("trace")):
        report = ttrace.compare(trace, arrays)
        assert report.same and "arrays in memory" in str(report)
        with pytest.raises(ttrace.NotSame, match="first wrong tensor: layers.1.k"):
            ttrace.compare(trace, wrong())


def test_two_arrays_are_compared(home):
    assert ttrace.compare(numpy.ones(3), numpy.ones(3)).same
    with pytest.raises(ttrace.NotSame):
        ttrace.compare(numpy.ones(3), numpy.zeros(3))


def test_options_are_those_of_check(home):
    arrays = {name: values.astype("float64") / 3 for name, values in weights().items()}
    narrow = {name: values.astype("float32") for name, values in arrays.items()}
    with pytest.raises(ttrace.NotSame, match="rounded to float32, every element"):
        ttrace.compare(arrays, narrow)
    assert ttrace.compare(arrays, narrow, rounded_to="fp32").same


def test_what_cannot_be_looked_at_is_one_line(home):
    for reference, message in (
        ({}, "reference: an empty dict; expected arrays by name"),
        ({"a": 3}, "reference: a: is a int; expected an array, a dict of arrays, or a path"),
        ({"a": numpy.ones(2, "complex64")}, "reference: a: a tensor of dtype complex64"),
    ):
        with pytest.raises(ttrace.InputError) as raised:
            ttrace.compare(reference, weights())
        assert str(raised.value) == message


def test_tensors_of_torch_are_taken_in_their_own_dtypes(home):
    torch = pytest.importorskip("torch")
    state = {name: torch.from_numpy(values).bfloat16().requires_grad_() for name, values in weights().items()}
    assert ttrace.compare(state, {name: values.detach().clone() for name, values in state.items()}).same
    with pytest.raises(ttrace.NotSame, match="rounded to bfloat16, every element"):
        ttrace.compare(weights(), state)
    assert ttrace.compare(weights(), state, rounded_to="bf16").same


def test_a_saved_file_is_opened_as_a_trace(home):
    numpy.savez("saved.npz", **weights())
    tensor = ttrace.open("saved.npz").tensor("layers.1.k")
    assert (tensor.numpy() == weights()["layers.1.k"]).all()
