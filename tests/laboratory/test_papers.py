"""`tools/papers`: claims are held to their pages, prose to its numbers, and small runs of what is measured."""

import random
import re
from dataclasses import replace

import citations
import pytest
import torch
from citations import CITATIONS, Citation
from papers import claims, e_max, faults, frequencies, loosest_bound, node, unhealthy
from papers.__main__ import PAGE, PARTS
from papers.faulty_trace import FAULTS

from evidence import ROOT

CLAIM = claims.Claim("Paper", "table 1", "that it works", "yes", "it does", "tests/laboratory/test_papers.py", {})


def test_every_claim_has_its_reason_or_number_and_what_it_cites_is_on_its_page():
    assert claims.gone() == []


def test_the_page_of_claims_is_what_claims_yaml_says():
    on_page = (ROOT / "tools/laboratory/papers/CLAIMS.md").read_text()
    assert on_page.startswith("\n".join(claims.render())), "`tools/papers claims` makes it again"


@pytest.mark.parametrize(
    "changed, problem",
    [
        ({"state": "no", "here": " "}, "it is not said what is here"),
        ({"state": "partly", "here": "somewhat"}, "partly, without a number"),
        ({"shows": ""}, "nothing shows it"),
        ({"shows": "tests/no/such/test.py"}, "there is no tests/no/such/test.py"),
        ({"state": "perhaps"}, "'perhaps' is no state"),
        ({"cites": {"README.md": ["a number that no page has"]}}, "README.md: a number that no page has"),
    ],
)
def test_a_claim_without_reason_number_or_page_is_refused(changed, problem):
    assert claims.gone([CLAIM]) == []
    found = claims.gone([replace(CLAIM, **changed)])
    assert len(found) == 1 and found[0].endswith(problem), found


def test_numbers_in_prose_are_those_of_the_pages_that_they_come_from():
    assert citations.stale() == []


def test_prose_whose_page_has_another_number_by_now_is_stale(tmp_path, monkeypatch):
    monkeypatch.setattr(citations, "ROOT", tmp_path)
    (tmp_path / "prose.md").write_text("Of 23\nruns none\nis wrong.")
    (tmp_path / "page.md").write_text("| x |\n\n38 runs,   0 wrong")
    citation = Citation("prose.md", "Of {runs} runs none", "page.md", "{runs} runs, 0 wrong")
    assert citations.stale([citation]) == ["prose.md says runs 23, and page.md 38"]
    assert citations.stale([replace(citation, says="In {runs} runs")]) == ["prose.md no longer says: In {runs} runs"]
    assert citations.stale([replace(citation, shows="{runs} runs, 1 wrong")])[0].startswith("page.md no longer says")
    (tmp_path / "prose.md").write_text("Of 38 runs none is wrong.")
    assert citations.stale([citation]) == [] and len(CITATIONS) >= 4


def test_the_page_has_a_section_for_each_part():
    titles = re.findall(r"^## (.*)", PAGE.read_text(), re.M)
    assert titles == [title for _, title in PARTS.values()]


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_changes_an_aligned_group_and_nothing_else(name):
    value = torch.arange(1, 257, dtype=torch.float32).to(torch.bfloat16).view(4, 64)
    struck = value.clone()
    FAULTS[name](struck.view(-1), 43, random.Random(1))
    changed = (struck.view(torch.int16) != value.view(torch.int16)).view(-1).nonzero().flatten().tolist()
    group = int(next(iter(re.findall(r"(8|32) (?:other )?elements", name)), 1))
    begin = 43 // group * group
    assert changed and set(changed) <= set(range(begin, begin + group))


def test_fp8_rounds_as_its_output_of_16_bits_does():
    torch.manual_seed(1)
    for dtype in ("float8_e4m3fn", "float8_e5m2", "float16"):
        found = max(e_max.error_of(dtype, 128) for _ in range(4)) / e_max.UNIT["float16"]
        assert 0.5 < found < 2.5, (dtype, found)


def test_nothing_need_be_checked_where_harm_is_below_the_target_and_all_where_it_is_far_above():
    assert sum(frequencies.solved(20e-25).values()) == 0
    assert sum(frequencies.solved(1e-19).values()) > 2.9
    rates = [sum(frequencies.solved(rate).values()) for rate in (1e-22, 1e-21, 1e-20)]
    assert rates == sorted(rates)


def test_equations_of_the_study_count_mismatches_over_all_ranks_and_take_the_worst_severity():
    ranks = [(256, 2, 0.5), (256, 0, 0.0)]
    steps = {("fwd/attn", 0, 0, 0): ranks, ("fwd/attn", 1, 0, 0): [(256, 0, 0.0)] * 2}
    assert node.frequency(ranks) == 2 / 512 and node.severity(ranks) == 0.5
    assert node.mean_frequency(steps, "fwd/attn") == 1 / 512 and node.mean_frequency(steps, "fwd/attn", 1) == 0
    assert node.worst_severity(steps, "fwd/attn") == 0.5 and node.hit(steps, "fwd/attn") == (1, 1)


@pytest.mark.parametrize("name", unhealthy.NODES)
def test_a_simulated_node_is_wrong_now_and_then_and_again_in_the_same_places(name):
    def run():
        unit = unhealthy.NODES[name](random.Random(3))
        values = [
            torch.full((16, 16), 1.5, dtype=torch.bfloat16) + 0.25 * (torch.arange(256) % 3).view(16, 16)
            for _ in range(80)
        ]
        values = [value.to(torch.bfloat16) for value in values]
        struck = [value.clone() for value in values]
        for value in struck:
            unit.damage(value)
        return [not torch.equal(a.view(torch.int16), b.view(torch.int16)) for a, b in zip(values, struck, strict=True)]

    first = run()
    assert sum(first) > 0 and first == run()


def test_what_violates_a_fixed_bound_is_counted_by_kind():
    text = "\n".join(loosest_bound.render({"output": [(3, 1.0, 1e-3, 0.02), (0, 1.0, 1e-3, None)]}))
    assert "| output | 2 | 1 | 1 | 0.001 | 0.001 | 0.02 |" in text


def test_a_nan_in_each_linear_is_seen_by_all_and_a_right_run_by_none(tmp_path):
    counted = faults.count(tmp_path, groups=[("output",)], faults=["NaN"])["output", "NaN"]
    assert counted["struck"] == 32
    assert all(counted[way] == 32 for way in (*faults.WAYS, "sdc")), counted
    healthy = tmp_path / "healthy"
    assert faults.wrong_in(["abft", str(healthy), "--block", "16"], tmp_path / "report.csv") == set()
