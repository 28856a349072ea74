"""The first verdict on programs that nobody has tuned ttrace for, with nothing said: right, or an honest question. Each
correct program has a wrong twin, by one small mistake that its users make."""

import json

import pytest
from commands import COULD_NOT_LOOK, DIFFERENT, HERE, SAME, TTRACE, run

from sweeps import warm

# What only their authors know: how the ranks are arranged.
AXES = {
    "adjoint": ["--axes", "dp=2"],
    "cached": ["--axes", "cp=2"],
    "clipped": ["--axes", "tp=2"],
    "halo": ["--axes", "cp=2"],
    "local_experts": ["--axes", "tp=2"],
    "local_experts dealt": ["--axes", "dp=2"],
    "sequence": ["--axes", "cp=2"],
    "stacked_members": ["--axes", "dp=2"],
}
RANKS = {"pipelined_copies": 4, "squares": 4}
ITERATIONS = {
    "accumulated": ["--iterations", "1"],
    "computed_rate": ["--iterations", "0-1"],
    "evaluated_otherwise": ["--iterations", "1"],
    "kept_gradients": ["--iterations", "0", "--then", "2"],
    "kept_samples": ["--iterations", "0", "--then", "2"],
    "rewrapped": ["--iterations", "1"],
    "targets": ["--iterations", "0", "--then", "2"],
}


class Verdict:
    def __init__(self, process, report):
        self.code, self.text, self.report = process.returncode, process.stdout + process.stderr, report

    def __repr__(self):
        return f"exit code {self.code}\n{self.text}"

    @property
    def first(self):
        return f"{self.report['first_wrong']['name']} {self.report['first_wrong']['kind']}"


@pytest.fixture(scope="module")
def first_verdict(tmp_path_factory):
    """first_verdict(program, *arguments, mistake="") -> Verdict on two ranks of it, or as many as RANKS says, against
    one; with `measured` tolerances, those of perturbed runs"""
    directory = tmp_path_factory.mktemp("programs")

    def collected(name, program, *, ranks=1, mistake=""):
        trace = directory / name
        if not trace.exists():
            path, *arguments = program
            command = warm.command(HERE / "kinds" / f"{path}.py", *arguments, ranks=ranks)
            axes = AXES.get(" ".join(program), AXES.get(path, [])) if ranks > 1 else []
            options = [*axes, *ITERATIONS.get(path, [])]
            process = run(TTRACE, "collect", "-o", trace, *options, "--", *command, mistake=mistake)
            assert process.returncode == 0, process.stderr
        return trace

    def tolerances(reference, program):
        path = reference.with_suffix(".yaml")
        if not path.exists():
            command = warm.command(HERE / "kinds" / f"{program[0]}.py", *program[1:])
            process = run(TTRACE, "estimate-tolerance", "-o", path, "--reference", reference, "--", *command)
            assert process.returncode == 0, process.stderr
        return path

    def first_verdict(*program, mistake="", measured=False):
        name = "-".join(program)
        reference = collected(name, program)
        candidate = collected(f"{name}-{mistake or 'right'}", program, ranks=RANKS.get(program[0], 2), mistake=mistake)
        report = directory / "report.json"
        allowed = tolerances(reference, program) if measured else "default"
        check = [TTRACE, "check", "--reference", reference, "--candidate", candidate, "-t", allowed, "--json", report]
        report.unlink(missing_ok=True)
        process = run(*check)
        return Verdict(process, json.loads(report.read_text()) if report.exists() else None)

    return first_verdict


def answers(verdict):
    return verdict.code, verdict.report["verdict"]


@pytest.mark.parametrize(
    "program",
    [
        ("sampler",),
        ("sampler", "shuffle"),
        ("views",),
        ("crops",),
        ("crops", "turns"),
        ("auxiliary",),
        ("auxiliary", "two"),
        ("two_models",),
        ("parts",),
        ("rehearsal",),
        ("rehearsal", "look"),
        ("temperature",),
        ("wrapped_optimizer",),
        ("regions",),
        ("squares",),
        ("pipelined_copies",),
        ("parts_alone",),
        ("parts_alone", "whole"),
        ("fused",),
        ("interleaved",),
        ("stage_slices",),
        ("buffers", "codebook"),
        ("buffers", "sums"),
        ("buffers", "table"),
        ("buffers", "average"),
        ("buffers", "averages"),
        ("buffers", "main-average"),
        ("buffers", "listed"),
        ("buffers", "shadow"),
        ("buffers", "eval-norm"),
        ("buffers", "criterion"),
        ("accumulated",),
        ("padded",),
        ("padded", "positions"),
        ("padded", "shifted"),
        ("speech",),
        ("adjoint",),
        ("padded", "criterion"),
        ("zero_by_hand",),
        ("flat_masters",),
        ("flat_masters", "summed"),
        ("physics",),
        ("scaler",),
        ("constants",),
        ("graphs",),
        ("graphs", "loops"),
        ("graphs", "pairs"),
        ("owned",),
        ("sharded_head",),
        ("copied_inputs",),
        ("tensor_samples",),
        ("averaged",),
        ("samples_by_hand",),
        ("balanced",),
        ("owned", "towers"),
        ("owned", "towers", "wrapped"),
        ("clipped",),
        ("owned", "ids"),
        ("frozen", "filtered"),
        ("frozen", "shared"),
        ("packed",),
        ("packed", "given"),
        ("after_step", "sharpness"),
        ("parametrized",),
        ("token_mean",),
        ("sparse_rows",),
        ("penalty",),
        ("configured",),
        ("spectral",),
        ("forces",),
        ("whole_graph",),
        ("no_module",),
        ("no_module", "held"),
        ("no_module", "judged"),
        ("padded_vocabulary",),
        ("by_hand",),
        ("halo",),
        ("stretches",),
        ("factors",),
        ("dealt_experts",),
        ("masked",),
        ("rewrapped",),
        ("meta",),
        ("clones",),
        ("clones", "classes"),
        ("clipped_once",),
        ("own_numbers", "frozen"),
        ("sharded_average",),
        ("sharded_average", "list"),
        ("fisher",),
        ("vmapped",),
        ("branches",),
        ("transformed", "0"),
        ("transformed", "1"),
        ("local_experts",),
        ("local_experts", "dealt"),
        ("stages",),
        ("wrapped", "loss"),
        ("wrapped", "model"),
        ("wrapped", "layers"),
        ("wrapped", "calls"),
        ("step_order",),
        ("step_order", "optimizers"),
        ("bare_call",),
        ("called_before",),
        ("made_late",),
        ("own_call",),
        ("recalibrated",),
        ("fetched",),
        ("cached_gradients",),
        ("mined",),
        ("own_divisor",),
        ("attacked",),
        ("actor_critic",),
        ("adapters",),
        ("multi_query",),
        ("jagged",),
        ("jagged", "dealt"),
        ("words",),
        ("words", "packed"),
        ("words", "picked"),
        ("physics", "corner"),
        ("surgery",),
        ("tracked_layers",),
        ("clipped_once", "by-hand"),
        ("summed_backward",),
        ("cut_otherwise",),
        ("cut_otherwise", "striped"),
        ("cut_otherwise", "uneven"),
        ("cut_otherwise", "sum"),
        ("cut_otherwise", "tokens"),
        ("cut_otherwise", "reference"),
        ("cut_otherwise", "counted"),
        ("cut_otherwise", "mixed"),
        ("cached",),
        ("two_losses",),
        ("drifting",),
        ("by_forward",),
        ("counted",),
        ("matched",),
        ("matched", "stretches"),
        ("detection",),
        ("detection", "by-hand"),
        ("packed", "list"),
        ("gathered",),
        ("gathered", "plain"),
        ("gathered", "lone", "first", "memory"),
        ("gathered_proxies",),
    ],
    ids="-".join,
)
def test_a_correct_program_is_same_with_nothing_said(first_verdict, program):
    verdict = first_verdict(*program)
    assert answers(verdict) == (SAME, "same"), verdict
    assert "configured_otherwise" not in verdict.report, verdict


@pytest.mark.parametrize(
    ("program", "question"),
    [
        (("own_numbers", "batch-norm"), "BatchNorm1d takes the statistics of each rank's own samples"),
        (("own_numbers", "dropout"), "Dropout draws random numbers"),
        (("drawn", "dropout"), "block.second input, iteration 0, micro-batch 0: what calls it draws random numbers"),
        (("drawn", "noise"), "block.second input, iteration 0, micro-batch 0: what calls it draws random numbers"),
        (("drawn", "gumbel"), "block.second input, iteration 0, micro-batch 0: what calls it draws random numbers"),
        (("drawn", "attention"), "block.second input, iteration 0, micro-batch 0: what calls it draws random numbers"),
        (("drawn", "recomputed"), "block.inner.second input, iteration 0, micro-batch 0: what calls it draws"),
        (("drawn", "drop-path"), "block output, iteration 0, micro-batch 0: Block draws random numbers"),
        (("matched", "untold"), "run each rank's samples as a micro-batch of the reference"),
        (("renamed",), "a file for --correspondence"),
        (("cut_otherwise", "balance"), "in 1 micro-batch of 8 samples, the candidate in 4 micro-batches of 2 samples"),
        (("cut_otherwise", "crossing"), "the candidate's hold other samples of it than the reference's"),
        (("repeated_calls",), "the reference calls its model 4 times, and the candidate "),
        (("shared_part",), "each rank has a part of it whole, as what comes back of it shows, and a term of the rest"),
        (("fitted_start",), "it begins with the reference's value but for rounding"),
        (("divided_later",), "the program steps with other tensors, and what it gives them of the gradient is not"),
        (("handed",), "so it is with the state in which each rank leaves its part, and hands it on"),
        (("step_order", "alike"), "it has the values of the reference's (optimizer).1"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, tuple) else "",
)
def test_a_correct_program_that_leaves_a_question_open_is_asked_about_it(first_verdict, program, question):
    verdict = first_verdict(*program)
    assert answers(verdict) == (COULD_NOT_LOOK, "could-not-look"), verdict
    assert "configured_otherwise" not in verdict.report, verdict
    assert question in verdict.report["questions"][0]["sentence"], verdict
    # A draft would be empty where no line can say what is not known.
    assert "micro-batch of the reference" not in question or verdict.report["next"] is None, verdict


@pytest.mark.parametrize(
    ("program", "mistake"),
    [
        (("handed",), "scale"),
        (("sampler",), "labels"),
        (("sampler",), "scale"),
        (("shared_part",), "unreduced"),
        (("shared_part",), "scale"),
        (("sampler", "shuffle"), "scale"),
        (("views",), "views"),
        (("repeated_calls",), "scale"),
        (("views",), "scale"),
        (("crops",), "crops"),
        (("crops", "turns"), "crops"),
        (("crops", "turns"), "scale"),
        (("auxiliary",), "auxiliary"),
        (("auxiliary", "two"), "auxiliary"),
        (("auxiliary",), "scale"),
        (("two_models",), "critic"),
        (("bare_call",), "judge"),
        (("called_before",), "sample"),
        (("made_late",), "sample"),
        (("made_late",), "scale"),
        (("made_late",), "unreduced"),
        (("counted",), "count"),
        (("by_forward",), "scale"),
        (("two_models",), "scale"),
        (("parts",), "scale"),
        (("rehearsal",), "scale"),
        (("rehearsal", "look"), "scale"),
        (("temperature",), "scale"),
        (("wrapped_optimizer",), "scale"),
        (("padded",), "scale"),
        (("padded", "positions"), "scale"),
        (("padded", "criterion"), "scale"),
        (("scaler",), "scale"),
        (("own_numbers", "dropout"), "unreduced"),
        (("graphs",), "edges"),
        (("graphs",), "scale"),
        (("graphs", "loops"), "edges"),
        (("graphs", "pairs"), "scale"),
        (("owned",), "sum"),
        (("owned",), "scale"),
        (("owned", "towers"), "sum"),
        (("owned", "ids"), "sum"),
        (("packed", "given"), "scale"),
        (("detection", "by-hand"), "targets"),
        (("detection",), "scale"),
        (("matched",), "targets"),
        (("matched",), "last"),
        (("by_hand",), "gradient"),
        (("averaged",), "ranks"),
        (("averaged",), "scale"),
        (("samples_by_hand",), "samples"),
        (("samples_by_hand",), "scale"),
        (("samples_by_hand",), "unreduced"),
        (("samples_by_hand",), "divisor"),
        (("balanced",), "mean"),
        (("sequence",), "gather"),
        (("sequence",), "scale"),
        (("after_step", "sharpness"), "scale"),
        (("parametrized",), "scale"),
        (("token_mean",), "ranks"),
        (("whole_graph",), "edges"),
        (("whole_graph",), "nodes"),
        (("penalty",), "weight"),
        (("penalty",), "scale"),
        (("token_mean",), "scale"),
        (("buffers", "codebook"), "no-all-reduce"),
        (("buffers", "codebook"), "rank-0"),
        (("buffers", "codebook"), "twice"),
        (("buffers", "sums"), "no-all-reduce"),
        (("buffers", "table"), "counts-twice"),
        (("buffers", "average"), "decay"),
        (("buffers", "average"), "decay-of-rank-1"),
        (("buffers", "main-average"), "decay"),
        (("buffers", "listed"), "decay"),
        (("buffers", "shadow"), "decay"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, tuple) else value,
)
def test_its_wrong_twin_is_different(first_verdict, program, mistake):
    verdict = first_verdict(*program, mistake=mistake)
    assert answers(verdict) == (DIFFERENT, "different"), verdict


@pytest.mark.parametrize(
    ("program", "mistake"),
    [
        (("buffers", "normalized"), "no-all-reduce"),
        (("buffers", "average"), "forgotten"),
        (("buffers", "listed"), "forgotten-on-rank-1"),
        (("buffers", "shadow"), "forgotten-on-rank-1"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, tuple) else value,
)
def test_a_buffer_that_may_be_each_ranks_own_is_asked_about(first_verdict, program, mistake):
    verdict = first_verdict(*program, mistake=mistake)
    assert answers(verdict) == (COULD_NOT_LOOK, "could-not-look"), verdict


@pytest.mark.parametrize(
    ("program", "mistake", "first", "cause"),
    [
        (("drawn", "dropout"), "early", "block input", ""),
        (("drawn", "attention"), "early", "block input", ""),
        (("drawn", "dropout"), "unreduced", "embed.weight main_grad", ""),
        (("drawn", "noise"), "unreduced", "embed.weight main_grad", ""),
        (("drawn", "dropout"), "none-drawn", "block.second input", "in the reference random numbers are drawn"),
        (("drawn", "drop-path"), "none-drawn", "block output", "in the reference random numbers are drawn"),
        (("drawn", "recomputed"), "redrawn", "block.inner.second input", "other random numbers than its forward drew"),
        (("padded", "shifted"), "scale", "loss scalar", ""),
        (("padded",), "truncated", "(model) input", "rank 1 is given the beginnings of its samples alone"),
        (("padded", "criterion"), "truncated", "(model) input", "rank 1 is given the beginnings of its samples alone"),
        (("padded",), "cut", "(model) input", "rank 1 is given the beginnings of its samples alone"),
        (("padded", "criterion"), "cut", "(model) input", "rank 1 is given the beginnings of its samples alone"),
        (("sharded_average", "list"), "rank", "averages.inner.0.weight buffer_after", "in the part of rank 1 only"),
        (("sharded_average",), "rank", "Encoder.inner.0.weight buffer_after", "in the part of rank 1 only"),
        (("fisher",), "unreduced", "loss scalar", ""),
        (("transformed", "0"), "mean", "(model) input", ""),
        (("transformed", "1"), "mean", "(model) input", ""),
        (("vmapped",), "unreduced", "Anchors.fisher_0 buffer_after", "unsummed partial values"),
        (("branches",), "overwritten", "(model) grad_output", "is the value of iteration 0, micro-batch 1"),
        (("own_numbers", "frozen"), "trains", "1 output", "configured otherwise: training True, reference False"),
        (("by_forward",), "mean", "(model) grad_output", "0.5 times the reference's, one over the size of dp"),
        (("summed_backward",), "own", "(model) output", ""),
        (("summed_backward",), "scale", "loss scalar", ""),
        (("fitted_start",), "other", "2.weight param", ""),
        (("fitted_start",), "scale", "loss scalar", ""),
        (("evaluated_otherwise",), "scale", "0.weight param", ""),
        (("evaluated_otherwise",), "sent", "0.weight param_delta", ""),
        (("mined",), "own", "Miner output", ""),
        (("mined",), "scale", "loss scalar", ""),
        (("cached_gradients",), "scale", "(model) grad_output", ""),
        (("cached_gradients",), "first", "(model) grad_output", ""),
        (("cut_otherwise",), "divisor", "loss scalar", "2 times the reference's"),
        (("cut_otherwise",), "scale", "loss scalar", ""),
        (("cut_otherwise",), "dropped", "(model) input", ""),
        (("cut_otherwise",), "samples", "(model) input", ""),
        (("cut_otherwise",), "labels", "CrossEntropyLoss:1 input", ""),
        (("cut_otherwise",), "weight", "0.weight param_delta", ""),
        (("cut_otherwise", "striped"), "scale", "loss scalar", ""),
        (("cut_otherwise", "uneven"), "scale", "loss scalar", ""),
        (("cut_otherwise", "sum"), "scale", "loss scalar", ""),
        (("cut_otherwise", "balance"), "scale", "loss scalar", ""),
        (("cut_otherwise", "crossing"), "weight", "0.weight param_delta", ""),
        (
            ("cut_otherwise", "counted"),
            "alike",
            "loss scalar",
            "the loss of each micro-batch is divided by a number of its own",
        ),
        (
            ("cut_otherwise", "mixed"),
            "mixed",
            "0.weight main_grad",
            "8 of the 8 samples that its model is given ((model)) have the bits of none",
        ),
        (("adapters",), "own", "0.norm.weight main_grad", ""),
        (("multi_query",), "unreduced", "layers.1.key.weight main_grad", "hold unsummed partial values"),
        (("actor_critic",), "scale", "loss scalar", "1.02 on rank 1, beside a loss scale of 2"),
        (("attacked",), "kept", "0.weight main_grad", "the gradient of micro-batch 0 is still in it"),
        (("own_divisor",), "own", "loss scalar", "0.6562 on rank 1; one over these numbers averages 1"),
        (
            ("clipped_once", "by-hand"),
            "by-rank",
            "0.weight main_grad",
            "were not averaged when each rank clipped its own",
        ),
        (("clipped_once", "by-hand", "warmup"), "bias", "2.bias main_grad", "hold values that were never averaged"),
        (("surgery",), "own", "parts.trunk.0.weight main_grad", ""),
        (("physics", "corner"), "averaged", "loss scalar", ""),
        (("tracked_layers",), "scale", "loss scalar", ""),
        (("jagged",), "scale", "loss scalar", ""),
        (("cut_otherwise", "reference"), "samples", "(model) input", ""),
        (("cut_otherwise", "reference"), "scale", "loss scalar", ""),
        (("cut_otherwise", "reference"), "weight", "0.weight param_delta", ""),
        (("cut_otherwise", "tokens"), "scale", "loss scalar", ""),
        (("cut_otherwise", "tokens"), "divisor", "loss scalar", "2 times the reference's"),
        (("cut_otherwise", "tokens"), "weight", "embed.weight param_delta", ""),
        (("meta",), "first-order", "2.bias param_grad", "the reference has no such tensor"),
        (("meta",), "task", "loss scalar", ""),
        (("meta",), "scale", "2.weight main_grad", "1.01 times"),
        (("clones",), "unreduced", "2.weight main_grad", "unsummed partial values"),
        (("clones",), "rate", "0 output", ""),
        (("clones", "classes"), "unreduced", "2.weight main_grad", "unsummed partial values"),
        (("clones", "classes"), "rate", "0 output", ""),
        (("wrapped_optimizer",), "schedule", "0.weight param_delta", "learning rate 0.0002, reference 0.0001"),
        (("clipped_once",), "each", "0.weight main_grad", "clipped 2 times in the iteration, in the reference once"),
        (("sampler",), "forgotten", "(model) input", "what micro-batch 0 was given, bit for bit"),
        (("recalibrated",), "unreduced", "Sequential.1.running_mean buffer_after", "never averaged"),
        (("drifting",), "unreduced", "(optimizer).0 main_grad", "is the reference's but for rounding"),
        (("own_call",), "unreduced", "layers.0.bias main_grad", "never averaged"),
        (("own_call",), "scale", "loss scalar", ""),
        (("flat_masters",), "schedule", "0.weight param_delta", "for the next step lr 0.1, reference 0.05"),
        (("flat_masters", "summed"), "schedule", "0.weight param_delta", "for the next step lr 0.05, reference 0.025"),
        (("flat_masters",), "scale", "loss scalar", ""),
        (("fetched",), "late", "4.weight param_after", ""),
        (("fetched",), "scale", "loss scalar", ""),
        (("divided_later",), "kept", "2.bias param_delta", ""),
        (("divided_later",), "scale", "loss scalar", ""),
        (("cached",), "early", "(model):1 input", ""),
        (("two_losses",), "own", "Overlap output", ""),
        (("two_losses",), "scale", "loss scalar", ""),
        (("zero_by_hand",), "own-start", "2.weight param", "in the copy of rank 1 only"),
        (("zero_by_hand",), "rate", "0.bias param_delta", "learning rate 0.002, reference 0.001"),
        (("zero_by_hand",), "unreduced", "2.weight main_grad", "lacks the gradient of rank 1"),
        (("zero_by_hand",), "kept", "2.bias param_after", ""),
        (("constants",), "start", "positions buffer", ""),
        (("constants",), "scale", "loss scalar", ""),
        (("sharded_head",), "own", "model1.(model):0 grad_input", ""),
        (("sharded_head",), "scale", "model1.loss scalar", ""),
        (("copied_inputs",), "twice", "loss scalar", "one over the size of dp"),
        (("copied_inputs",), "scale", "loss scalar", ""),
        (("jagged", "dealt"), "ends", "head input", "wrong at 1, 3 of dimension 0 only"),
        (("words",), "own", "loss scalar", "on rank 1"),
        (("words", "packed"), "shifted", "loss scalar", "other labels than the reference's, all on rank 1"),
        (("words", "picked"), "own", "loss scalar", "on rank 1"),
        (("interleaved",), "twice", "2.norm.weight main_grad", "one over the number of micro-batches"),
        (("stage_slices",), "sent", "layers.1 grad_output", "every element is 1.01 times the reference's"),
        (("fused",), "rows", "1.qkv.weight param", "rank 1"),
        (("fused",), "scale", "1.proj input", "wrong in the part of rank 1 only"),
        (("parts_alone",), "scale", "head.0 input", ""),
        (("parts_alone", "whole"), "scale", "head.1 input", ""),
        (("pipelined_copies",), "all", "first.weight main_grad", "every element is 0.5 times the reference's"),
        (("edges",), "unreduced", "weight main_grad", "their sum is the reference's"),
        (("regions",), "unreduced", "last.bias main_grad", "never averaged"),
        (("regions",), "box", "(model):1 input", "of dimension 1 only"),
        (("squares",), "unreduced", "2.weight main_grad", "never averaged"),
        (("tensor_samples",), "order", "(model) input", "in reverse"),
        (("tensor_samples",), "samples", "2.bias param_grad", "the ranks along tp were given other samples each"),
        (("sparse_rows",), "unreduced", "center.weight main_grad", "never averaged"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, tuple) else value.split(" ")[0],
)
def test_a_mistake_beside_what_ranks_have_of_their_own_is_different_at_its_tensor(
    first_verdict, program, mistake, first, cause
):
    verdict = first_verdict(*program, mistake=mistake)
    assert answers(verdict) == (DIFFERENT, "different"), verdict
    assert verdict.first == first, verdict
    assert cause in verdict.report["first_wrong"]["sentence"], verdict


def test_a_constant_that_nothing_shows_is_named(first_verdict):
    verdict = first_verdict("constants", mistake="unused")
    assert answers(verdict) == (SAME, "same"), verdict
    assert "fills in part): first_row, unused" in verdict.text, verdict


def test_a_buffer_that_was_never_reduced_is_named(first_verdict):
    verdict = first_verdict("buffers", "codebook", mistake="no-all-reduce")
    assert verdict.first == "2.codebook buffer_after", verdict
    assert "never averaged" in verdict.text, verdict


@pytest.mark.parametrize(
    ("program", "mistake", "first"),
    [
        (("packed",), "scale", "loss scalar"),
        (("spectral",), "scale", "loss scalar"),
        (("buffers", "criterion"), "no-all-reduce", "Centred.centre buffer_after"),
        (("physics",), "weight", "loss scalar"),
        (("spectral",), "phase", "mixing.weight main_grad"),
        (("spectral",), "imaginary", "mixing.weight param_delta"),
        (("packed",), "rows", "rnn:0.0 input"),
        (("owned", "towers"), "scale", "loss scalar"),
        (("owned", "towers", "wrapped"), "scale", "loss scalar"),
        (("owned", "ids"), "ids", "(model):1.table_2 input"),
        (("frozen", "filtered"), "thawed", "0.gain param_after"),
        (("frozen", "shared"), "kept", "1.weight param_after"),
        (("halo",), "halo", "2 grad_input"),
        (("stretches",), "halo", "4 grad_input"),
        (("stretches",), "scale", "loss scalar"),
        (("factors",), "ridge", "loss scalar"),
        (("dealt_experts",), "gather", "2.experts.experts.3 grad_output"),
        (("masked",), "first", "(model):1 input"),
        (("handed",), "state", "layers.1.given grad_output"),
        (("rewrapped",), "kept", "0.weight main_grad"),
        (("halo",), "scale", "loss scalar"),
        (("forces",), "weight", "loss scalar"),
        (("whole_graph",), "scale", "loss scalar"),
        (("no_module",), "unreduced", "(optimizer).0 main_grad"),
        (("no_module",), "scale", "(optimizer).0 main_grad"),
        (("no_module", "held"), "unreduced", "(optimizer).0 main_grad"),
        (("no_module", "judged"), "unreduced", "(optimizer).0 main_grad"),
        (("detection",), "targets", "(model):1.4.boxes input"),
        (("packed", "list"), "scale", "loss scalar"),
        (("matched",), "labels", "Criterion:1.1.labels input"),
        (("matched",), "matcher", "Criterion.matcher:1.0 output"),
        (("matched",), "samples", "backbone input"),
        (("matched",), "scale", "loss scalar"),
        (("matched", "stretches"), "labels", "Criterion:1.2.labels input"),
        (("padded_vocabulary",), "mask", "loss output"),
        (("padded_vocabulary",), "rows", "embedding.weight param"),
        (("local_experts",), "offset", "1.moe.experts.0 input"),
        (("local_experts",), "start", "1.moe.experts.2.0.weight param"),
        (("local_experts", "dealt"), "offset", "1.moe.experts.0 input"),
        (("local_experts", "dealt"), "scale", "loss scalar"),
        (("stages",), "untied", "embedding.weight main_grad"),
        (("stages",), "scale", "layers.1 grad_output"),
        (("wrapped", "loss"), "proxies", "model1.proxies main_grad"),
        (("wrapped", "model"), "scale", "model1.loss scalar"),
        (("wrapped", "model"), "lacks", "0.wide.bias param"),
        (("wrapped", "layers"), "scale", "model1.loss scalar"),
        (("wrapped", "layers"), "lacks", "0.wide.bias param"),
        (("wrapped", "calls"), "scale", "loss scalar"),
        (("renamed",), "scale", "loss scalar"),
        (("step_order",), "first", "(optimizer).0 main_grad"),
        (("step_order", "optimizers"), "last", "(optimizer).1 main_grad"),
        (("step_order", "alike"), "first", "(optimizer).1 main_grad"),
        (("gathered",), "twice", "loss scalar"),
        (("gathered",), "unscaled", "Gathered:0 grad_input"),
        (("gathered",), "stale", "Gathered.loss:0 input"),
        (("gathered", "plain"), "twice", "loss scalar"),
        (("gathered", "lone", "first", "memory"), "twice", "loss scalar"),
        (("gathered", "lone", "first", "memory"), "stale", "Contrast:0 input"),
        (("gathered_proxies",), "twice", "model1.loss scalar"),
        (("gathered_proxies",), "proxies", "model1.proxies main_grad"),
        (("speech",), "frame", "rnn input"),
        (("speech",), "scale", "loss scalar"),
        (("adjoint",), "bias", "0.bias main_grad"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, tuple) else value.split()[0],
)
def test_its_wrong_twin_is_different_at_the_right_tensor(first_verdict, program, mistake, first):
    verdict = first_verdict(*program, mistake=mistake)
    assert answers(verdict) == (DIFFERENT, "different"), verdict
    assert verdict.first == first, verdict


def test_experts_that_all_begin_alike_ask_for_the_line_that_says_whose_they_are(first_verdict):
    verdict = first_verdict("local_experts", "upcycled")
    assert (verdict.code, verdict.report) == (COULD_NOT_LOOK, None), verdict
    assert "`parallelism: {experts: {axis: tp, layers: moe.experts}}`" in verdict.text, verdict


def test_a_model_of_which_no_call_is_seen_is_named(first_verdict):
    verdict = first_verdict("adjoint")
    (note,) = (each for each in verdict.report["notes"] if "was not recorded, and is not compared" in each)
    assert "the model takes, returns and gets back" in note and "the backward of a torch.autograd.Function" in note


def test_gradients_that_each_rank_clips_by_its_own_norm_have_one_cause(first_verdict):
    verdict = first_verdict("clipped", mistake="own-norm")
    assert answers(verdict) == (DIFFERENT, "different"), verdict
    assert verdict.first == "0.weight main_grad", verdict
    sentence = verdict.report["first_wrong"]["sentence"]
    assert "clipped by each rank's own norm; the same in" in sentence, verdict
    assert "also wrong" not in verdict.text, verdict


@pytest.mark.parametrize("program", [("sampler",), ("sampler", "shuffle")], ids="-".join)
def test_a_rank_that_reads_other_samples_is_the_only_one_to_blame(first_verdict, program):
    verdict = first_verdict(*program, mistake="ahead")
    assert answers(verdict) == (DIFFERENT, "different"), verdict
    assert verdict.first == "(model) input", verdict
    assert verdict.report["first_wrong"]["ranks"] == [1], verdict


@pytest.mark.parametrize("kind", ["mask", "unit", "slow"])
def test_weights_that_a_program_changes_after_the_step_are_held_against_the_references(first_verdict, kind):
    verdict = first_verdict("after_step", kind, measured=True)
    assert answers(verdict) == (SAME, "same"), verdict
    assert "in either run" in verdict.text, verdict
    for mistake in ("rank", "all"):
        verdict = first_verdict("after_step", kind, mistake=mistake, measured=True)
        assert answers(verdict) == (DIFFERENT, "different"), verdict
        assert verdict.first.split()[0] == "2.weight", verdict


@pytest.mark.parametrize(
    ("kind", "mistake"), [("mask", ""), ("unit", ""), ("unit", "all"), ("slow", ""), ("slow", "all")]
)
def test_weights_that_a_program_changes_after_the_step_prove_nothing_without_measured_tolerances(
    first_verdict, kind, mistake
):
    verdict = first_verdict("after_step", kind, mistake=mistake)
    assert answers(verdict) == (COULD_NOT_LOOK, "could-not-look"), verdict
    assert {"#.weight", "2.weight"} & set(verdict.report["unproved_steps"]), verdict
    assert verdict.report["next"].startswith("ttrace estimate-tolerance"), verdict


def test_parameters_that_ranks_average_after_their_steps_are_the_references(first_verdict):
    verdict = first_verdict("averaged_after", measured=True)
    assert answers(verdict) == (SAME, "same"), verdict
    assert "changed once more behind the step" in verdict.text, verdict
    unmeasured = first_verdict("averaged_after")
    assert answers(unmeasured) == (COULD_NOT_LOOK, "could-not-look"), unmeasured
    assert "average parameters in place of gradients" in unmeasured.text, unmeasured
    for mistake, first in (("kept", "2.weight param_delta"), ("scale", "loss scalar")):
        verdict = first_verdict("averaged_after", mistake=mistake, measured=True)
        assert answers(verdict) == (DIFFERENT, "different"), verdict
        assert verdict.first == first, verdict


def test_copies_of_weights_that_differ_after_the_step_are_different_without_measured_tolerances(first_verdict):
    verdict = first_verdict("after_step", "unit", mistake="rank")
    assert answers(verdict) == (DIFFERENT, "different"), verdict
    assert verdict.first.split()[0] == "2.weight", verdict


def test_terms_that_a_program_sums_behind_its_backward_are_proved_by_their_sum(first_verdict):
    verdict = first_verdict("sequence", measured=True)
    assert answers(verdict) == (SAME, "same"), verdict
    assert "these add up to the reference's" in verdict.text, verdict
    assert verdict.report["questions"] == [], verdict


def test_masters_that_a_program_keeps_by_hand_are_no_parameters_beside_the_model(first_verdict):
    verdict = first_verdict("no_module", "masters", measured=True)
    assert answers(verdict) == (SAME, "same"), verdict
    assert "(optimizer)" not in verdict.text, verdict


@pytest.mark.parametrize("where", ["", "meta", "dealt"])
def test_what_an_optimizer_trains_in_the_place_of_a_skeletons_parameters_is_checked(first_verdict, where):
    program = ("stacked_members", where) if where else ("stacked_members",)
    verdict = first_verdict(*program)
    assert answers(verdict) == (SAME, "same"), verdict
    for mistake, first in (("samples", "(optimizer).0 main_grad"), ("scale", "(optimizer).2 main_grad")):
        verdict = first_verdict(*program, mistake=mistake)
        assert answers(verdict) == (DIFFERENT, "different"), verdict
        assert verdict.first == first, verdict


def test_weights_that_an_evaluation_alone_has_are_no_part_of_training(first_verdict):
    verdict = first_verdict("evaluated_otherwise", measured=True)
    assert answers(verdict) == (SAME, "same"), verdict


@pytest.mark.parametrize("measured", [True, False])
def test_steps_with_other_tensors_than_the_models_are_held_by_what_they_make(first_verdict, measured):
    verdict = first_verdict("flat_gradients", measured=measured)
    assert answers(verdict) == (SAME, "same"), verdict
    assert "the program steps with other tensors than the model's" in verdict.text, verdict
    for mistake, first in (("last", "4.bias param_"), ("rate", "2.weight param_after"), ("scale", "loss scalar")):
        verdict = first_verdict("flat_gradients", mistake=mistake, measured=measured)
        assert answers(verdict) == (DIFFERENT, "different"), verdict
        assert verdict.first.startswith(first), verdict


@pytest.mark.parametrize(
    ("kind", "first", "cause"),
    [
        ("queue", "place buffer_after", "0.5 times the reference's, one over the size of dp"),
        ("codes", "codes buffer_after", "the copy of rank 1"),
    ],
)
def test_samples_that_a_module_keeps_are_everybodys_where_they_were_before(first_verdict, kind, first, cause):
    verdict = first_verdict("kept_samples", kind, measured=True)
    assert answers(verdict) == (SAME, "same"), verdict
    verdict = first_verdict("kept_samples", kind, mistake="own", measured=True)
    assert answers(verdict) == (DIFFERENT, "different"), verdict
    assert verdict.first == first and cause in verdict.report["root_cause"]["sentence"], verdict


def test_a_choice_that_rounding_decides_hides_no_mistake(first_verdict):
    """One of three perturbed runs chooses other tokens, and some of seven."""
    verdict = first_verdict("tied_scores", measured=True)
    assert answers(verdict) == (SAME, "same"), verdict
    verdict = first_verdict("tied_scores", mistake="own", measured=True)
    assert answers(verdict) == (COULD_NOT_LOOK, "could-not-look"), verdict
    assert "too little is proved" in verdict.text, verdict


def test_a_learning_rate_that_a_program_computes_may_differ_as_it_does_from_run_to_run(first_verdict):
    verdict = first_verdict("computed_rate", measured=True)
    assert answers(verdict) == (SAME, "same"), verdict
    for mistake in ("own", "scale"):
        verdict = first_verdict("computed_rate", mistake=mistake, measured=True)
        assert answers(verdict) == (DIFFERENT, "different"), verdict
        assert "for the next step lr" in verdict.report["first_wrong"]["sentence"], verdict


@pytest.mark.parametrize("mistake", ["", "rate"])
def test_steps_with_other_tensors_prove_nothing_where_rounding_hides_them(first_verdict, mistake):
    verdict = first_verdict("flat_gradients", "coarse", mistake=mistake, measured=True)
    assert answers(verdict) == (COULD_NOT_LOOK, "could-not-look"), verdict
    assert verdict.report["unproved_steps"] == ["#.bias", "#.weight"], verdict
    assert "expected a wider dtype, or steps that change them by more" in verdict.text, verdict


def test_an_iteration_is_a_step_of_an_optimizer_that_the_program_writes_itself(first_verdict):
    verdict = first_verdict("own_optimizer")
    assert answers(verdict) == (SAME, "same"), verdict
    assert "46 compared" in verdict.text, verdict  # of six micro-batches, those of the first step
    assert "in no optimizer: the program steps them by itself" in verdict.text, verdict
    for mistake, first in (("rate", "0.weight param_after"), ("unreduced", "2.bias param_after")):
        verdict = first_verdict("own_optimizer", mistake=mistake)
        assert answers(verdict) == (DIFFERENT, "different"), verdict
        assert verdict.first == first, verdict


@pytest.mark.parametrize("measured", [True, False])
def test_updates_that_a_program_writes_itself_are_held_by_what_they_make(first_verdict, measured):
    verdict = first_verdict("own_steps", measured=measured)
    assert answers(verdict) == (SAME, "same"), verdict
    assert "in no optimizer: the program steps them by itself" in verdict.text, verdict
    for mistake, first in (("rate", "0.weight param_after"), ("unreduced", "2.weight param_after")):
        verdict = first_verdict("own_steps", mistake=mistake, measured=measured)
        assert answers(verdict) == (DIFFERENT, "different"), verdict
        assert verdict.first == first, verdict


@pytest.mark.parametrize("mistake", ["", "rate"])
def test_updates_that_a_program_writes_itself_prove_nothing_where_rounding_hides_them(first_verdict, mistake):
    verdict = first_verdict("own_steps", "coarse", mistake=mistake, measured=True)
    assert answers(verdict) == (COULD_NOT_LOOK, "could-not-look"), verdict
    assert verdict.report["unproved_steps"] == ["#.bias", "#.weight"], verdict


def test_weights_that_are_not_put_back_where_they_were_are_named(first_verdict):
    verdict = first_verdict("after_step", "sharpness", mistake="back")
    assert answers(verdict) == (DIFFERENT, "different"), verdict
    assert verdict.first.endswith("param_after"), verdict


@pytest.mark.parametrize(
    ("program", "mistake", "first", "cause"),
    [
        (
            ("kept_gradients", "iterations"),
            "kept",
            "0.weight main_grad",
            "times the gradient of iteration 0 is still in it, beside",
        ),
        (
            ("kept_gradients", "climb"),
            "kept",
            "0.weight main_grad",
            "the gradient of micro-batch 0 is still in it, which the reference leaves out (is there a zero_grad before "
            "the backward of micro-batch 1?); the same in 3 more tensors",
        ),
        (
            ("targets", "teacher"),
            "before",
            "Sequential.0.weight buffer_after",
            "not updated by the candidate; the reference updates it; the same in 3 more tensors",
        ),
        (
            ("targets", "critics"),
            "second",
            "Sequential1.0.weight buffer_after",
            "not updated by the candidate in any iteration, or not there; the reference updates it",
        ),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, tuple) else value.split(" ")[0],
)
def test_what_is_not_zeroed_or_not_updated_is_said_so_in_one_sentence(first_verdict, program, mistake, first, cause):
    verdict = first_verdict(*program, measured=True)
    assert answers(verdict) == (SAME, "same"), verdict
    verdict = first_verdict(*program, mistake=mistake, measured=True)
    assert answers(verdict) == (DIFFERENT, "different"), verdict
    assert verdict.first == first, verdict
    assert cause in verdict.report["first_wrong"]["sentence"], verdict
    assert "also wrong" not in verdict.text, verdict


def test_an_average_that_one_rank_forgets_to_update_is_named(first_verdict):
    verdict = first_verdict("buffers", "averages", mistake="second-on-rank-1")
    assert answers(verdict) == (DIFFERENT, "different"), verdict
    assert verdict.first.startswith("Sequential1."), verdict


def test_a_backward_that_is_forgotten_after_a_step_is_no_rehearsal(first_verdict):
    verdict = first_verdict("accumulated", mistake="backward")
    assert answers(verdict) == (DIFFERENT, "different"), verdict
    assert "first missing tensor: loss scalar, iteration 1, micro-batch 0" in verdict.text, verdict
    assert "left out" not in verdict.text, verdict


@pytest.mark.parametrize(
    ("mistake", "first"), [("samples", "(model) input"), ("unreduced", "2.bias main_grad"), ("scale", "loss scalar")]
)
def test_what_is_wrong_first_is_named_where_nothing_says_that_ranks_are_data_parallel(first_verdict, mistake, first):
    assert first_verdict("samples_by_hand", mistake=mistake).first == first


@pytest.mark.parametrize(
    ("mistake", "first", "cause"),
    [
        ("eps", "0.norm output", "eps 0.01, reference 1e-05"),
        ("scale-of-block", "0 output", "scale 0.7, reference 0.5"),
        ("smoothing", "CrossEntropyLoss output", "label_smoothing 0.2, reference 0.1"),
    ],
)
def test_a_module_that_is_configured_otherwise_is_the_cause(first_verdict, mistake, first, cause):
    verdict = first_verdict("configured", mistake=mistake)
    assert answers(verdict) == (DIFFERENT, "different"), verdict
    assert verdict.first == first, verdict
    assert f"its module is configured otherwise: {cause}" in verdict.report["first_wrong"]["sentence"], verdict


def test_what_is_configured_otherwise_and_differs_in_no_tensor_is_a_remark(first_verdict):
    verdict = first_verdict("configured", mistake="dropout")
    assert answers(verdict) == (SAME, "same"), verdict
    (other,) = verdict.report["configured_otherwise"]
    facts = {"attribute": "p", "reference": "0.1", "candidate": "0.3", "module": "0.dropout", "modules": 3}
    assert other.items() >= facts.items(), verdict
    assert "same, with modules that are configured otherwise" in verdict.text, verdict
    assert "configured otherwise: 0.dropout, and 2 more: p 0.3, reference 0.1" in verdict.text, verdict


@pytest.mark.parametrize(
    ("kind", "mistake", "cause", "words"),
    [
        ("standardised", "own", "own-samples", "standardised by itself, in each of the 16 channels"),
        ("weighted", "own", "mean-of-means", "each rank divides by the sum of its own weights"),
        ("dice", "own", "own-samples", "a ratio of sums (Dice, IoU, F1) where each rank takes the sums over its own"),
        ("taught", "train", "configured-otherwise", "Sequential, and 4 more: training True, reference False"),
    ],
)
def test_what_ranks_take_of_their_own_samples_alone_is_named(first_verdict, kind, mistake, cause, words):
    right = first_verdict("whole_batch", kind)
    assert answers(right) == (SAME, "same"), right
    wrong = first_verdict("whole_batch", kind, mistake=mistake)
    assert answers(wrong) == (DIFFERENT, "different"), wrong
    (root, *_) = wrong.report["roots"]
    assert root["diagnosis"] == cause and words in root["sentence"], wrong


def test_an_average_of_parameters_that_ranks_made_unequal_follows_and_is_not_asked_about(first_verdict):
    verdict = first_verdict("buffers", "average", mistake="own-gradient")
    assert answers(verdict) == (DIFFERENT, "different"), verdict
    assert verdict.first == "0.bias main_grad" and not verdict.report["questions"], verdict
    averages = [each for each in verdict.report["findings"] if each["kind"] == "buffer_after"]
    assert averages and {each["verdict"] for each in averages} == {"fail"}, verdict


def test_numbers_of_which_nothing_says_how_they_were_dealt_out_are_asked_about_all_at_once(first_verdict):
    verdict = first_verdict("edges")
    assert answers(verdict) == (COULD_NOT_LOOK, "could-not-look"), verdict
    (question,) = verdict.report["questions"]
    assert "(model):1: {input: local}, and so of (model):2" in question["sentence"], verdict
