"""A mistake in an annotation file is refused with file and line; one that only the traces can show is a finding or a
note."""

import json

import pytest
from conftest import CHECK, model, shards

from traces import Tensor, record_run

NOT_YAML = "expected YAML as in annotations/README.md"

REFUSED = {
    "an axis that the trace lacks": (
        "embedding:\n  output: {tq_dim: 1}\n",
        "a.yaml:2: 'embedding': output: axis 'tq' is not an axis of the trace [tp]",
    ),
    "a dim out of range": (
        "embedding:\n  output: {tp_dim: 2}\n",
        "a.yaml:2: 'embedding': output: dim 2 is out of range for embedding of shape [4, 8]; expected -2 to 1",
    ),
    "a negative dim out of range": (
        "# the vocabulary\nembedding:\n  output: {tp_dim: -3}\n",
        "a.yaml:3: 'embedding': output: dim -3 is out of range for embedding of shape [4, 8]; expected -2 to 1",
    ),
    "a dim that is no number": (
        "embedding:\n  output: {tp_dim: last}\n",
        "a.yaml:2: 'embedding': output: tp_dim: 'last'; expected a dimension from -8 to 7",
    ),
    "an unknown layout": (
        "embedding:\n  output: {tp: {dim: 1, layout: spiral}}\n",
        "a.yaml:2: 'embedding': output: tp: there is no layout 'spiral'; expected one of contiguous, halo, "
        "kv_heads, qkv_heads, stacked, striped, zigzag",
    ),
    "an unknown kind": (
        "embedding:\n  outptu: {tp_dim: 1}\n",
        "a.yaml:2: 'embedding': outptu: unknown key 'tp_dim'; expected dim and, if not contiguous, layout",
    ),
    "a pattern twice": (
        "embedding:\n  output: {tp_dim: 1}\nembedding:\n  output: {tp_dim: 0}\n",
        "a.yaml:3: 'embedding' appears twice; expected it once",
    ),
    "a list": ("- embedding\n", "a.yaml:1: not a mapping; expected patterns and their rules"),
    "a brace that is not closed": (
        "embedding:\n  output: {tp_dim: 1\nloss: 1\n",
        "a.yaml:3: end of map flow not found; " + NOT_YAML,
    ),
    "a tab": ("embedding:\n\toutput: {tp_dim: 1}\n", "a.yaml:2: illegal map value; " + NOT_YAML),
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_mistake_is_refused_with_its_line(ttrace, reference, candidate, tmp_path, what):
    text, message = REFUSED[what]
    (tmp_path / "a.yaml").write_text(text)
    candidate()
    assert ttrace.refuses(*CHECK) == message


@pytest.mark.parametrize(
    ("name", "what"), [("none.yaml", "No such file or directory"), ("reference", "not a regular file")]
)
def test_a_file_that_cannot_be_read_is_named(ttrace, reference, candidate, name, what):
    candidate()
    presets = "megatron_gpt, megatron_llama, megatron_mixtral, megatron_moe, torch_fsdp2_tp"
    assert ttrace.refuses(*CHECK[:-1], name) == (f"{name}: {what}; expected an annotation file or a preset: {presets}")


def test_a_pattern_that_places_nothing_is_noted_beside_what_the_shapes_say(ttrace, reference, candidate, tmp_path):
    (tmp_path / "a.yaml").write_text("embeding:\n  output: {tp_dim: 1}\nlayers.*.mlp.weight: {tp_dim: 0}\n")
    candidate()
    report = ttrace.reports(*CHECK, code=0)
    assert "note: candidate: a.yaml:1: 'embeding' places no tensor of the trace\n" in report
    assert "note: candidate: placed by their shapes, tp splits dimension 1: embedding output\n" in report
    assert report.endswith("4 compared: 4 pass, 0 fail, 0 untrusted; 0 missing\n")


def test_the_wrong_dim_is_a_finding(ttrace, reference, candidate, tmp_path):
    (tmp_path / "a.yaml").write_text("embedding:\n  output: {tp_dim: 0}\nlayers.*.mlp.weight: {tp_dim: 0}\n")
    candidate()
    assert ttrace.reports(*CHECK, code=1).startswith(
        "different\nfirst wrong tensor: embedding output, iteration 0, micro-batch 0\n"
        "  the reference has float32 [4, 8], the candidate float32 [8, 4]\n"
    )


def test_layers_that_do_not_divide_into_the_stages_are_refused(ttrace, tmp_path):
    def layer(number):
        return Tensor(f"layers.{number}", model()[0].values)

    record_run(tmp_path / "reference", [[layer(0), layer(1), layer(2)]])
    record_run(tmp_path / "candidate", [[layer(0), layer(1)], [layer(0)]], axes="pp=2")
    (tmp_path / "a.yaml").write_text("parallelism:\n  pipeline: {axis: pp, layers: layers}\n")
    assert ttrace.refuses(*CHECK) == (
        "a.yaml:2: 'parallelism': pipeline: 3 layers of layers do not divide into 2 stages; expected a multiple of 2, "
        "or first, last, embedding, head or per_stage"
    )


def test_axes_of_two_factorings_in_one_rule_are_refused(ttrace, tmp_path):
    record_run(tmp_path / "reference", [model()])
    record_run(tmp_path / "candidate", [model(), model()], axes="tp=2/ep=2")
    (tmp_path / "a.yaml").write_text("x:\n  output: {tp_dim: 0, ep_dim: 1}\n")
    assert ttrace.refuses(*CHECK) == (
        "a.yaml:2: 'x': output: 'tp' and 'ep' are axes of two factorings of the ranks, tp=2/ep=2; expected those of one"
    )


SPLIT = """\
parameters: {embedding_dim: 0}
embedding:
  output: {tp_dim: $embedding_dim}
layers.*.mlp.weight: {tp_dim: 0}
"""


def test_a_parameter_is_set_by_a_file_or_on_the_command_line(ttrace, reference, candidate, tmp_path):
    candidate()
    (tmp_path / "a.yaml").write_text(SPLIT)
    ttrace.reports(*CHECK, code=1)
    report = ttrace.reports(*CHECK, "--set", "embedding_dim=1", code=0)
    assert "note: parameters of the annotations: embedding_dim=1\n" in report
    (tmp_path / "mine.yaml").write_text("include: a.yaml\nparameters: {embedding_dim: 1}\n")
    ttrace.reports(*CHECK[:-1], "mine.yaml", code=0)
    ttrace.reports("abft", "candidate", "-a", "a.yaml", "--set", "embedding_dim=1", code=0)
    draft = ttrace.reports("annotate", "candidate", "-a", "a.yaml", "--set", "embedding_dim=1", code=0)
    assert draft.startswith(SPLIT)


def test_a_preset_goes_by_its_name(ttrace, reference, candidate):
    candidate()
    assert "megatron_gpt.yaml:" in ttrace.reports(*CHECK[:-1], "megatron_gpt", code=1)
    megatron_llama = (*CHECK[:-1], "megatron_llama")
    assert ttrace.refuses(*megatron_llama, "--set", "kv_head=2") == (
        "parameter kv_head=2: no value is $kv_head; expected one of cp_layout, cu_seqlens, cu_seqlens_padded, "
        "first_stage_layers, last_stage_layers, loss_scale, mlp_blocks, mtp_blocks, tied_to"
    )
    assert ttrace.refuses(*CHECK[:-2], "--set", "kv_heads=2") == (
        "parameter kv_heads=2: there are no annotations; expected some with it"
    )


def test_a_reference_on_several_ranks_may_have_annotations_of_its_own(ttrace, tmp_path):
    split = {"embedding": {"output": {"tp_dim": 1}}, "mlp.weight": {"tp_dim": 0}}
    (tmp_path / "split.yaml").write_text(json.dumps(split))
    (tmp_path / "whole.yaml").write_text(json.dumps({"embedding": {"output": {"tp": "replicate"}}}))
    record_run(tmp_path / "parallel", shards(model()), axes="tp=2", run_id="parallel")
    record_run(tmp_path / "candidate", [model()] * 2, axes="tp=2", run_id="candidate")
    check = ("check", "--reference", "parallel", "--candidate", "candidate", "-a", "whole.yaml")
    assert "same" in ttrace.reports(*check, "--reference-annotations", "split.yaml", code=0)
    assert "same" not in ttrace.reports(*check, code=1)
