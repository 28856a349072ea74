"""A draft must not learn a bug: what one layer holds otherwise than its sisters is no rule, and the check that follows
finds it. The right twins draft rules of all."""

import json

import pytest
import torch
from safetensors.torch import save_file

HIDDEN, HEADS, GROUPS, SIZE, EXPERTS = 32, 4, 2, 8, 3


def model(layers=4):
    """As Hugging Face names it."""
    generator = torch.Generator().manual_seed(0)

    def drawn(*shape):
        return torch.randn(*shape, generator=generator)

    tensors = {"model.embed.weight": drawn(50, HIDDEN)}
    for i in range(layers):
        at = f"model.layers.{i}"
        tensors[f"{at}.attn.q_proj.weight"] = drawn(HEADS * SIZE, HIDDEN)
        tensors[f"{at}.attn.k_proj.weight"] = drawn(GROUPS * SIZE, HIDDEN)
        tensors[f"{at}.attn.v_proj.weight"] = drawn(GROUPS * SIZE, HIDDEN)
        for e in range(EXPERTS):
            tensors[f"{at}.experts.{e}.weight"] = drawn(24, HIDDEN)
        tensors[f"{at}.norm.weight"] = torch.ones(HIDDEN)
    return tensors


def fused(tensors):
    """As Megatron holds it, q, k and v by groups of heads."""
    converted = {"embedding.table.weight": tensors["model.embed.weight"]}
    for name, value in tensors.items():
        if name.endswith("q_proj.weight"):
            parts = [tensors[name.replace("q_proj", f"{part}_proj")] for part in "qkv"]
            rows = [part.view(GROUPS, -1, HIDDEN) for part in parts]
            other = name.replace("model.layers", "decoder.blocks").replace("attn.q_proj", "mixer.qkv")
            converted[other] = torch.cat(rows, 1).reshape(-1, HIDDEN)
        elif "experts" in name:
            converted[name.replace("model.layers", "decoder.blocks").replace("experts", "moe")] = value
        elif "norm" in name:
            converted[name.replace("model.layers", "decoder.blocks")] = value
    return converted


def renamed(tensors):
    """As an engine names it, tensor by tensor."""
    words = {"model.layers": "blocks", "model.embed": "table"} | {f"attn.{part}_proj": part for part in "qkv"}
    converted = {}
    for name, value in tensors.items():
        for old, new in words.items():
            name = name.replace(old, new)
        converted[name.replace("experts", "moe")] = value
    return converted


def exchanged(tensors, a, b):
    return tensors | {a: tensors[b], b: tensors[a]}


def keys_and_values(tensors, layer=1):
    at = f"model.layers.{layer}.attn"
    return exchanged(tensors, f"{at}.k_proj.weight", f"{at}.v_proj.weight")


def experts(tensors):
    return exchanged(tensors, "model.layers.2.experts.0.weight", "model.layers.2.experts.1.weight")


def layers(tensors):
    for name in list(tensors):
        if name.startswith("model.layers.1."):
            tensors = exchanged(tensors, name, name.replace("layers.1", "layers.2"))
    return tensors


def copied(tensors):
    at = "model.layers.1.attn"
    return tensors | {f"{at}.k_proj.weight": tensors[f"{at}.v_proj.weight"]}


def drafted(ttrace, reference, candidate):
    save_file({name: value.contiguous() for name, value in reference.items()}, ttrace.directory / "a.safetensors")
    save_file({name: value.clone() for name, value in candidate.items()}, ttrace.directory / "b.safetensors")
    ttrace.reports("annotate", "b.safetensors", "--reference", "a.safetensors", "-o", "c.yaml", code=0)
    return (ttrace.directory / "c.yaml").read_text()


def checked(ttrace, code):
    return ttrace.reports("check", "a.safetensors", "b.safetensors", "--correspondence", "c.yaml", code=code)


WRONG = {
    keys_and_values: ("model.layers.1.attn.k_proj.weight", "model.layers.1.attn.v_proj.weight"),
    experts: ("model.layers.2.experts.0.weight", "model.layers.2.experts.1.weight"),
    layers: ("model.layers.1.attn.q_proj.weight", "model.layers.2.attn.q_proj.weight"),
    copied: ("model.layers.1.attn.k_proj.weight", "model.layers.1.attn.v_proj.weight"),
}


@pytest.mark.parametrize("convert", [fused, renamed])
@pytest.mark.parametrize("make_wrong", WRONG)
def test_a_swap_in_one_layer_is_no_rule_and_is_found(ttrace, convert, make_wrong):
    draft = drafted(ttrace, model(), convert(make_wrong(model())))
    rules = [line for line in draft.splitlines() if line and not line.startswith("#")]
    assert not any("layers.1" in line or "layers.2" in line for line in rules), draft
    # Of a fused tensor that holds v twice no order is found: there is no line to leave out.
    assert "\n#? model.layers." in draft or (make_wrong, convert) == (copied, fused)
    text = checked(ttrace, code=1)
    name, holds = WRONG[make_wrong]
    assert f"{name}, param: it holds the values of {holds}" in text, text


@pytest.mark.parametrize("convert", [fused, renamed])
def test_of_a_right_conversion_all_layers_have_rules_and_nothing_is_odd(ttrace, convert):
    draft = drafted(ttrace, model(), convert(model()))
    assert "#?" not in draft and "sisters" not in draft
    assert checked(ttrace, code=0).startswith("same\n")


def test_of_two_layers_the_one_in_the_order_of_the_reference_is_the_rule(ttrace):
    draft = drafted(ttrace, model(2), fused(keys_and_values(model(2))))
    assert "model.layers.{i}.attn.{q_proj,k_proj,v_proj}:" in draft
    assert "#? model.layers.1.attn.{q_proj,v_proj,k_proj}.weight: " in draft and "in 1 of 2 layers" in draft
    text = checked(ttrace, code=1)
    assert "model.layers.1.attn.k_proj.weight, param: it holds the values of model.layers.1.attn.v_proj.weight" in text


def test_two_layers_that_trade_places_are_no_rule(ttrace):
    tensors = model(2)
    for name in list(tensors):
        if name.startswith("model.layers.0."):
            tensors = exchanged(tensors, name, name.replace("layers.0", "layers.1"))
    draft = drafted(ttrace, model(2), renamed(tensors))
    assert not any("layers.0" in line for line in draft.splitlines() if not line.startswith("#"))
    assert not checked(ttrace, code=2).startswith("same")


def first_layer_of_its_own(tensors):
    """Right: the engine keeps its first layer elsewhere."""
    return {name.replace("blocks.0.", "first."): value for name, value in renamed(tensors).items()}


def from_one(tensors):
    """Right: the engine counts layers from 1."""
    converted = {}
    for name, value in renamed(tensors).items():
        head, dot, rest = name.partition("blocks.")
        number, _, tail = rest.partition(".")
        converted[f"blocks.{int(number) + 1}.{tail}" if dot else head] = value
    return converted


@pytest.mark.parametrize("convert", [first_layer_of_its_own, from_one])
def test_what_a_right_engine_does_otherwise_is_a_rule(ttrace, convert):
    assert "#?" not in drafted(ttrace, model(), convert(model()))
    assert checked(ttrace, code=0).startswith("same\n")


def test_numbers_of_a_sequence_need_not_be_those_of_the_other(ttrace):
    generator = torch.Generator().manual_seed(0)
    values = [torch.randn(8, 8, generator=generator) for _ in range(3)]
    draft = drafted(
        ttrace,
        {f"net.{2 * i}.weight": value for i, value in enumerate(values)},
        {f"layers.{i}.fc.weight": value for i, value in enumerate(values)},
    )
    assert "#?" not in draft
    assert checked(ttrace, code=0).startswith("same\n")


def llama(layers=2):
    """Checkpoints of Hugging Face's and Megatron-core's Llama."""
    generator = torch.Generator().manual_seed(1)

    def drawn(*shape):
        return torch.randn(*shape, generator=generator)

    hf = {"model.embed_tokens.weight": drawn(50, HIDDEN), "model.norm.weight": drawn(HIDDEN)}
    hf["lm_head.weight"] = drawn(50, HIDDEN)
    for i in range(layers):
        at = f"model.layers.{i}"
        hf |= {f"{at}.{name}_layernorm.weight": drawn(HIDDEN) for name in ("input", "post_attention")}
        rows = {"q": HEADS * SIZE, "k": GROUPS * SIZE, "v": GROUPS * SIZE}
        hf |= {f"{at}.self_attn.{name}_proj.weight": drawn(count, HIDDEN) for name, count in rows.items()}
        hf[f"{at}.self_attn.o_proj.weight"] = drawn(HIDDEN, HEADS * SIZE)
        hf |= {f"{at}.mlp.{name}_proj.weight": drawn(64, HIDDEN) for name in ("gate", "up")}
        hf[f"{at}.mlp.down_proj.weight"] = drawn(HIDDEN, 64)
    return hf


def megatron(hf, swapped=None):
    padding = torch.zeros(14, HIDDEN)
    converted = {
        "embedding.word_embeddings.weight": torch.cat([hf["model.embed_tokens.weight"], padding]),
        "decoder.final_layernorm.weight": hf["model.norm.weight"],
        "output_layer.weight": torch.cat([hf["lm_head.weight"], padding]),
    }
    for i in range(2):
        old, new = f"model.layers.{i}", f"decoder.layers.{i}"
        q, k, v = (hf[f"{old}.self_attn.{name}_proj.weight"].view(GROUPS, -1, HIDDEN) for name in "qkv")
        rows = (q, v, k) if i == swapped else (q, k, v)
        converted |= {
            f"{new}.self_attention.linear_qkv.weight": torch.cat(rows, 1).reshape(-1, HIDDEN),
            f"{new}.self_attention.linear_proj.weight": hf[f"{old}.self_attn.o_proj.weight"],
            f"{new}.input_layernorm.weight": hf[f"{old}.input_layernorm.weight"],
            f"{new}.pre_mlp_layernorm.weight": hf[f"{old}.post_attention_layernorm.weight"],
            f"{new}.mlp.linear_fc1.weight": torch.cat([hf[f"{old}.mlp.{name}_proj.weight"] for name in ("gate", "up")]),
            f"{new}.mlp.linear_fc2.weight": hf[f"{old}.mlp.down_proj.weight"],
        }
    return converted


CHECK = ("check", "hf", "megatron.safetensors", "--correspondence", "transformers_megatron_llama")


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"hidden_size": HIDDEN, "num_attention_heads": HEADS, "num_key_value_heads": GROUPS}, ()),
        ({"num_attention_heads": HEADS, "num_key_value_heads": GROUPS, "head_dim": SIZE}, ()),
        ({}, ("--set", f"g={GROUPS}", "--set", f"d={SIZE}")),
        ({"num_key_value_heads": 7}, ("--set", f"g={GROUPS}")),
    ],
)
def test_a_preset_works_on_checkpoints(ttrace, config, words):
    (ttrace.directory / "hf").mkdir()
    save_file(llama(), ttrace.directory / "hf" / "model.safetensors")
    (ttrace.directory / "hf" / "config.json").write_text(json.dumps(config))
    save_file({name: value.clone() for name, value in megatron(llama()).items()}, ttrace.directory / CHECK[2])
    text = ttrace.reports(*CHECK, *words, code=0)
    assert text.startswith("same\n") and "21 compared: 21 pass" in text
    save_file({name: value.clone() for name, value in megatron(llama(), 1).items()}, ttrace.directory / CHECK[2])
    text = ttrace.reports(*CHECK, *words, code=1)
    assert text.startswith("different\nfirst wrong tensor: model.layers.1.self_attn.k_proj.weight param, iteration 0\n")
    assert "it holds the values of model.layers.1.self_attn.v_proj.weight" in text


def test_a_preset_without_sizes_says_what_to_set(ttrace):
    (ttrace.directory / "hf").mkdir()
    save_file(llama(), ttrace.directory / "hf" / "model.safetensors")
    save_file({name: value.clone() for name, value in megatron(llama()).items()}, ttrace.directory / CHECK[2])
    assert "expected it under `sizes`, or --set " in ttrace.refuses(*CHECK)
    assert ttrace.refuses(*CHECK, "--set", "g=x") == (
        "--set g=x: expected the size of the axis 'g', a number from 1 on"
    )
    assert "there are no annotations" in ttrace.refuses(*CHECK, "--set", "unknown=2")
