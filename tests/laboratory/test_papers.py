"""`tools/papers`: claims are held to their pages, prose to its numbers, and small runs of what is measured."""

import random
import re
from dataclasses import replace

import citations
import pytest
import torch
from citations import CITATIONS, Citation
from papers import (
    claims,
    e_max,
    extreme,
    faults,
    frequencies,
    gpu_norm,
    loosest_bound,
    models,
    near_infinity,
    node,
    recovery,
    restart,
    unhealthy,
)
from papers.__main__ import PAGE, PARTS
from papers.faulty_trace import FAULTS

from evaluations.trace_edits import Rank, Recorded
from evidence import ROOT
from ttrace_torch.library import Dtype, Kind, Pass, TensorId

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


def product_of_heads(dtype=torch.float32):
    draw = torch.Generator().manual_seed(1)
    a, b = (torch.randn(2, 4, *shape, generator=draw).to(dtype) for shape in ((24, 16), (16, 32)))
    return a, b, a @ b


def allowed(a, b):
    """What rounding may make of an element that was taken from the sum of its column."""
    return extreme.of_columns(a, b).allowed.max() * 2


@pytest.mark.parametrize("error", models.ERRORS)
def test_one_extreme_element_of_a_product_is_restored_to_within_rounding_and_the_others_to_the_bit(error):
    a, b, right = product_of_heads()
    struck = right.clone()
    models.ERRORS[error](struck.view(-1), 1234, random.Random(1))
    assert not extreme.is_right(struck, a, b)
    restored = extreme.corrected(struck, a, b)
    assert extreme.is_right(restored, a, b)
    assert (restored - right).abs().max() <= allowed(a, b)
    assert torch.equal(restored.view(-1)[:1234], right.view(-1)[:1234])
    assert torch.equal(restored.view(-1)[1235:], right.view(-1)[1235:])


@pytest.mark.parametrize("line", [(1, 2, 5), (1, 2, slice(None), 7)], ids=["row", "column"])
@pytest.mark.parametrize("value", [float("inf"), float("nan"), 1e30])
def test_a_whole_row_or_column_of_extreme_values_is_restored(line, value):
    a, b, right = product_of_heads()
    struck = right.clone()
    struck[line] = value
    assert (extreme.corrected(struck, a, b) - right).abs().max() <= allowed(a, b)


def test_an_error_that_is_not_extreme_is_placed_by_the_ratio_of_the_differences():
    a, b, right = product_of_heads()
    struck = right.clone()
    struck[1, 3, 20, 11] += 3
    assert (extreme.corrected(struck, a, b) - right).abs().max() <= allowed(a, b)


def test_a_right_product_is_left_as_it_is_and_what_is_beyond_one_line_too():
    for dtype in (torch.float32, torch.float64):
        a, b, right = product_of_heads(dtype)
        assert extreme.is_right(right, a, b) and torch.equal(extreme.corrected(right, a, b), right)
    assert extreme.is_right(1e-20 * a.float() @ (1e-21 * b.float()), 1e-20 * a.float(), 1e-21 * b.float()), "denormal"
    struck = right.clone()
    struck[0, 0, 3:5, 3:5] = float("nan")
    assert not extreme.is_right(extreme.corrected(struck, a, b), a, b)


class SelfAttention(torch.nn.Module):
    """Of one layer, as the classes of transformers have it, without their norm and softmax."""

    def __init__(self):
        super().__init__()
        for name in ("query", "key", "value"):
            setattr(self, name, torch.nn.Linear(models.WIDTH, models.WIDTH))

    def forward(self, x):
        query, key, value = (
            layer(x).view(2, 8, models.HEADS, -1).transpose(1, 2) for layer in (self.query, self.key, self.value)
        )
        return torch.matmul(torch.matmul(query, key.mT), value)


class OneLayer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.layer = torch.nn.ModuleDict({"attention": torch.nn.Module()})
        self.layer["attention"].self = SelfAttention()

    def forward(self, x):
        return self.layer["attention"].self(x)


@pytest.mark.parametrize("place", models.PLACES)
@pytest.mark.parametrize("error", models.ERRORS)
def test_a_run_whose_fault_is_corrected_has_the_result_and_the_gradients_of_one_without(place, error):
    model, architecture, run = OneLayer(), models.ARCHITECTURES["Bert"], recovery.Run()
    x = torch.randn(2, 8, models.WIDTH, generator=torch.Generator().manual_seed(1))
    right = model(x)
    with (
        models.struck(model, architecture, place, models.ERRORS[error], 0, random.Random(1)),
        recovery.protected(model, architecture, run),
    ):
        result = model(x)
    assert (run.checked, run.detected, run.corrected) == (5, 1, 1)
    torch.testing.assert_close(result, right, rtol=1e-4, atol=1e-5)
    gradients = [torch.autograd.grad(value.sum(), list(model.parameters())) for value in (result, right)]
    torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-4)
    assert torch.equal(model(x), right), "hooks and products are what they were"


def test_queries_and_keys_become_larger_and_values_do_not():
    model = OneLayer()
    attention = model.layer["attention"].self
    weights = {name: getattr(attention, name).weight.clone() for name in ("query", "key", "value")}
    near_infinity.enlarge(model, "Bert", 4)
    for name, times in (("query", 4), ("key", 4), ("value", 1)):
        assert torch.equal(getattr(attention, name).weight, times * weights[name]), name


def test_the_layer_norm_of_a_gpu_is_pytorchs_but_where_a_variance_overflows():
    draw = torch.Generator().manual_seed(1)
    x, weight, bias, gradient = (torch.randn(*shape, generator=draw) for shape in ((8, 64), (64,), (64,), (8, 64)))
    operands = [tensor.requires_grad_() for tensor in (x, weight, bias)]
    theirs = torch.nn.functional.layer_norm(x, (64,), weight, bias)
    with gpu_norm.installed():
        ours = torch.nn.functional.layer_norm(x, (64,), weight, bias)
    torch.testing.assert_close(ours, theirs)
    grads = [torch.autograd.grad(result, operands, gradient) for result in (ours, theirs)]
    torch.testing.assert_close(*grads)
    huge = (x * 1e30).detach().requires_grad_()
    result = gpu_norm.layer_norm(huge, (64,), weight, bias)
    assert torch.equal(result, bias.expand(8, 64))
    assert not torch.autograd.grad(result, huge, gradient)[0].any()


def test_runs_are_apart_by_their_largest_difference_while_both_have_a_loss():
    healthy, struck = recovery.Run([1.0, 0.5, 0.25]), recovery.Run([1.0, 0.625, float("nan")])
    assert recovery.farthest(struck, healthy) == 0.125 and recovery.first_nan(struck) == "step 2"
    assert recovery.first_nan(healthy) == "never"


def test_a_restart_costs_saving_loading_and_the_step_again():
    cost = {"step": 2.0, "checks": 0.2, "correction": 0.02, "save": 0.25, "restore": 0.75}
    assert "| Bert | 2.00 s | 10.0 % | 1.0 % | 150.0 % | 150 times |" in restart.render({"Bert": cost})


def test_losses_of_a_step_are_the_sums_of_its_micro_batches(monkeypatch):
    def recorded(iteration, microbatch, value):
        tensor_id = TensorId(iteration, microbatch, 0, Pass.FORWARD, Kind.SCALAR, "loss")
        return Recorded(tensor_id, Dtype.FLOAT32, torch.tensor(value))

    tensors = [recorded(step, batch, step + batch / 2) for step in range(node.ITERATIONS) for batch in range(2)]
    monkeypatch.setattr(node, "read_trace", lambda trace: [Rank({}, tensors)])
    assert node.losses_of(ROOT) == [2 * step + 0.5 for step in range(node.ITERATIONS)]


def test_what_violates_a_fixed_bound_is_counted_by_kind():
    text = "\n".join(loosest_bound.render({"output": [(3, 1.0, 1e-3, 0.02), (0, 1.0, 1e-3, None)]}))
    assert "| output | 2 | 1 | 1 | 0.001 | 0.001 | 0.02 |" in text


def test_a_nan_in_each_linear_is_seen_by_all_and_a_right_run_by_none(tmp_path):
    counted = faults.count(tmp_path, groups=[("output",)], faults=["NaN"])["output", "NaN"]
    assert counted["struck"] == 32
    assert all(counted[way] == 32 for way in (*faults.WAYS, "sdc")), counted
    healthy = tmp_path / "healthy"
    assert faults.wrong_in(["abft", str(healthy), "--block", "16"], tmp_path / "report.csv") == set()
