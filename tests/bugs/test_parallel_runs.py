"""The first promise: a correct parallel program is the same, a wrong vocabulary mask is found where it is."""

import pytest

LAYOUTS = {
    "tp2-sp": dict(tp=2, flags=["--sp"]),
    "dp2": dict(dp=2, flags=[]),
    "pp2": dict(pp=2, flags=[]),
    "tp2-pp2-dp2": dict(tp=2, dp=2, pp=2, flags=["--sp"]),
}
RECOMPUTE = {"plain": [], "recompute": ["--recompute", "non-reentrant"]}


def run_layout(check_candidate, dtype, layout, recompute, *flags, expect=0):
    sizes = dict(LAYOUTS[layout])
    return check_candidate(dtype, *sizes.pop("flags"), *RECOMPUTE[recompute], *flags, **sizes, expect=expect)


@pytest.mark.parametrize("dtype, recompute", [("bf16", "plain"), ("fp32", "recompute")])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_correct_run_is_the_same(check_candidate, layout, dtype, recompute):
    report = run_layout(check_candidate, dtype, layout, recompute)
    counts = report["counts"]
    assert report["verdict"] == "pass" and report["root_cause"] is None
    assert counts["fail"] == counts["missing"] == 0
    assert counts["pass"] > 500
    assert counts["compared"] == counts["pass"] + counts["untrusted"]
    # What is waved through is little, and named.
    assert counts["untrusted"] <= 0.02 * counts["compared"]


@pytest.mark.parametrize("dtype, recompute", [("bf16", "recompute"), ("fp32", "plain")])
@pytest.mark.parametrize("layout", [name for name, sizes in LAYOUTS.items() if sizes.get("tp", 1) > 1])
def test_a_wrong_vocabulary_mask_is_found_at_the_word_embedding(check_candidate, layout, dtype, recompute):
    report = run_layout(check_candidate, dtype, layout, recompute, "--bug", "embedding-mask", expect=1)
    root = report["root_cause"]
    assert report["verdict"] == "fail"
    assert (root["name"], root["kind"]) == ("embedding.word_embeddings", "output")
    assert (root["iteration"], root["microbatch"]) == (0, 0)
    # Nothing before the embedding's output is accused: the parameters and the token ids agree.
    assert report["findings"][0]["name"] == root["name"]
    assert root["ratio"] > 10
