"""Programs that say nothing of where their tensors lie: the shapes do. They compute with small integers, so that a
right one has every bit of the reference, and no tolerance is needed."""

import json

import pytest
from conftest import HERE, TTRACE, program, ranks, run

pytestmark = pytest.mark.usefixtures("warm_programs")

PROGRAM = HERE / "programs" / "shares.py"


@pytest.fixture(scope="module")
def checked(tmp_path_factory, warm_programs):
    """checked(axes, *arguments, annotations) -> the report on two ranks that run the program with these arguments"""
    directory = tmp_path_factory.mktemp("shapes")
    process = run([TTRACE, "collect", "-o", directory / "reference", "--", *program("shares")])
    assert process.returncode == 0, process.stderr

    def checked(axes, *arguments, annotations=""):
        name = "-".join(arguments).replace("--", "")
        collect = run([TTRACE, "collect", "-o", directory / name, "--axes", axes, "--", *ranks(2, PROGRAM, *arguments)])
        assert collect.returncode == 0, collect.stderr
        (directory / "annotations.yaml").write_text(annotations)
        check = [TTRACE, "check", "--reference", directory / "reference", "--candidate", directory / name]
        process = run([*check, "-a", directory / "annotations.yaml", "--json", "-"])
        assert process.returncode in (0, 1), process.stderr
        return json.loads(process.stdout)

    return checked


def wrong(report):
    return [(finding["name"], finding["kind"]) for finding in report["findings"] if finding["verdict"] != "untrusted"]


def test_layers_split_by_code_of_ones_own_need_no_annotation(checked):
    report = checked("tp=2", "--tp")
    assert (report["verdict"], wrong(report), report["coverage"]) == ("same", [], 1)
    # Of fc1 and fc2, what lies in parts: two weights and a bias, of five kinds; the hidden layer and its gradients.
    assert report["placed_by_shape"] >= 3 * 5 + 2 * 4
    assert "placed by their shapes, tp splits dimension 0" in "\n".join(report["notes"])


def test_a_gradient_that_nobody_sums_up_over_tp_fails_where_it_should_have_been(checked):
    report = checked("tp=2", "--tp", "--bug")
    assert report["verdict"] == "different"
    root = report["root_cause"]
    # One tensor, which both name.
    assert (root["name"], root["kind"]) in [("fc1", "grad_input"), ("embedding", "grad_output")]
    assert root["reason"] == "replicas-disagree"


@pytest.mark.parametrize("dealt_out", [[], ["--turns"]])
def test_slices_of_the_batch_under_ddp_are_the_batch(checked, dealt_out):
    report = checked("dp=2", "--ddp", *dealt_out, annotations="parallelism: {loss_scale: dp}")
    assert (report["verdict"], wrong(report), report["coverage"]) == ("same", [], 1)
    assert "the ranks along dp run slices" in "\n".join(report["notes"])


def test_gradients_that_ddp_never_averages_fail_as_main_gradients(checked):
    report = checked("dp=2", "--ddp", "--bug", annotations="parallelism: {loss_scale: dp}")
    assert report["verdict"] == "different"
    assert {kind for _, kind in wrong(report)} == {"main_grad", "param_delta", "param_after"}
    assert report["root_cause"]["kind"] == "main_grad"
