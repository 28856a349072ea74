"""A program whose sums have one order has the same bits on any ranks, and `--bits` says so; one whose sums have another
order has not, and `--bits` says where it begins, and that a sum is to blame."""

import json

import pytest
from commands import DIFFERENT, HERE, SAME, TTRACE, run

from sweeps import warm

PROGRAM = HERE / "kinds" / "fixed_order.py"


@pytest.fixture(scope="module")
def check(tmp_path_factory):
    """check(tp, dp, mistake) -> exit code, output, report of those ranks against one process"""
    directory = tmp_path_factory.mktemp("bits")

    def collected(tp, dp, mistake=""):
        trace = directory / f"tp{tp}-dp{dp}-{mistake}"
        if not trace.exists():
            program = [PROGRAM, "--tp", tp, "--dp", dp]
            command = warm.command(*program, ranks=tp * dp)
            axes = ["--axes", f"tp={tp},dp={dp}"] if tp * dp > 1 else []
            process = run(TTRACE, "collect", "-o", trace, "--iterations", "0,1", *axes, "--", *command, mistake=mistake)
            assert process.returncode == 0, process.stderr
        return trace

    def check(tp, dp, mistake=""):
        reference, candidate = collected(1, 1), collected(tp, dp, mistake)
        report = directory / "report.json"
        words = ["--reference", reference, "--candidate", candidate, "--json", report]
        process = run(TTRACE, "check", "--bits", *words)
        return process.returncode, process.stdout + process.stderr, json.loads(report.read_text())

    return check


@pytest.mark.parametrize(("tp", "dp"), [(2, 1), (4, 1), (1, 2), (2, 2)])
def test_sums_of_one_order_have_the_same_bits_on_any_ranks(check, tp, dp):
    code, text, report = check(tp, dp)
    assert (code, report["verdict"]) == (SAME, "same"), text
    assert report["counts"]["pass"] > 150, text


@pytest.mark.parametrize(
    ("tp", "dp", "mistake", "first"),
    [(2, 1, "reduced_by_chunks", "down output"), (1, 2, "reduced_gradients", "norm.weight main_grad")],
)
def test_a_sum_in_another_order_is_to_blame_where_it_is_made(check, tp, dp, mistake, first):
    code, text, report = check(tp, dp, mistake)
    assert code == DIFFERENT, text
    assert f"{report['first_wrong']['name']} {report['first_wrong']['kind']}" == first, text
    for words in ("in the last place of float32", "what it is computed from has equal bits", "a sum in another order"):
        assert words in report["roots"][0]["sentence"], text


def test_what_is_no_rounding_is_not_blamed_on_the_order_of_a_sum(check):
    code, text, report = check(2, 1, "half")
    assert code == DIFFERENT, text
    assert report["first_wrong"]["name"] == "down", text
    assert "another order" not in text, text
