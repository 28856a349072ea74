"""A checkpoint that was converted to a narrower dtype: rounding is one sentence, and an option looks beyond it."""

import pytest
import torch
from safetensors.torch import save_file

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "float8_e4m3fn": torch.float8_e4m3fn}
WIDE = torch.float32


def weights(dtype=WIDE):
    generator = torch.Generator().manual_seed(0)
    tensors = {"embedding.weight": torch.randn(50, 16, generator=generator, dtype=dtype)}
    for i in range(3):
        for name in ("q_proj", "k_proj", "v_proj"):
            tensors[f"layers.{i}.{name}.weight"] = torch.randn(16, 16, generator=generator, dtype=dtype)
        tensors[f"layers.{i}.norm.weight"] = 1 + torch.randn(16, generator=generator, dtype=dtype) / 100
    return tensors | {"positions": torch.arange(5)}


def rounded(tensors, dtype):
    return {name: value.to(dtype) if value.is_floating_point() else value for name, value in tensors.items()}


def checked(ttrace, reference, candidate, *words, code):
    save_file(reference, ttrace.directory / "reference.safetensors")
    save_file(candidate, ttrace.directory / "candidate.safetensors")
    return ttrace.reports("check", "reference.safetensors", "candidate.safetensors", *words, code=code)


@pytest.mark.parametrize("name", DTYPES)
def test_a_rounded_checkpoint_is_one_sentence_and_the_same_where_rounding_is_allowed(ttrace, name):
    converted = rounded(weights(), DTYPES[name])
    text = checked(ttrace, weights(), converted, code=1)
    full = str(DTYPES[name]).removeprefix("torch.")
    assert f"\ncause: embedding.weight, param: rounded to {full}, every element; the same in 12 more tensors: " in text
    assert "also wrong" not in text and f" --rounded-to {full}\n" in text
    text = checked(ttrace, weights(), converted, "--rounded-to", name, code=0)
    assert text.startswith("same\n") and "proof: 13 of 13 floating-point tensors" in text
    assert f"note: 13 of the reference's tensors are compared as rounded to {full}, such as embedding.weight" in text


def other_values(tensors):
    tensors["layers.1.k_proj.weight"] = tensors["layers.1.v_proj.weight"].clone()
    return "it holds the values of layers.1.v_proj.weight"


def one_step(tensors):
    tensors["layers.1.k_proj.weight"].view(torch.int16)[3, 4] += 1
    return "nothing known explains the error"


def zeros(tensors):
    tensors["layers.1.k_proj.weight"].zero_()
    return "every element is zero"


@pytest.mark.parametrize("make_wrong", [other_values, one_step, zeros])
def test_the_one_wrong_tensor_of_a_conversion_is_found_beyond_rounding(ttrace, make_wrong):
    converted = rounded(weights(), torch.bfloat16)
    what = make_wrong(converted)
    text = checked(ttrace, weights(), converted, "--rounded-to", "bf16", code=1)
    assert text.startswith("different\nfirst wrong tensor: layers.1.k_proj.weight param, iteration 0\n")
    assert f"cause: layers.1.k_proj.weight, param: {what}" in text and "14 compared: 13 pass, 1 fail" in text
    assert " --rounded-to bf16 --html report.html\n" in text
    # Without the option it stands beside the sentence about the others.
    text = checked(ttrace, weights(), converted, code=1)
    assert "rounded to bfloat16, every element; the same in 11 more" in text
    assert "\nalso wrong, and not because of it:\n  layers.1.k_proj.weight, param: " in text


def test_digits_that_were_cut_off_are_not_rounded(ttrace):
    converted = rounded(weights(), torch.bfloat16)
    cut = weights()["layers.1.k_proj.weight"].view(torch.int32) & -65536
    converted["layers.1.k_proj.weight"] = cut.view(torch.float32).bfloat16()
    text = checked(ttrace, weights(), converted, code=1)
    assert "layers.1.k_proj.weight, param: cut off to bfloat16, every element: rounded toward zero, not to ne" in text
    text = checked(ttrace, weights(), converted, "--rounded-to", "bf16", code=1)
    assert "first wrong tensor: layers.1.k_proj.weight" in text and ", 1 fail," in text


def test_what_the_candidate_keeps_wide_is_compared_as_it_is(ttrace):
    converted = rounded(weights(), torch.bfloat16)
    norms = {name: value for name, value in weights().items() if "norm" in name}
    assert checked(ttrace, weights(), converted | norms, "--rounded-to", "bf16", code=0).startswith("same\n")
    lost = {name: value.bfloat16().float() for name, value in norms.items()}
    text = checked(ttrace, weights(), converted | lost, "--rounded-to", "bf16", code=1)
    assert "first wrong tensor: layers.0.norm.weight" in text and ", 3 fail," in text


def test_doubles_are_rounded_to_floats(ttrace):
    wide = weights(torch.float64)
    assert checked(ttrace, wide, rounded(wide, torch.float32), "--rounded-to", "fp32", code=0).startswith("same\n")


def test_a_value_that_is_too_large_is_lost_and_not_rounded(ttrace):
    wide = weights()
    wide["layers.1.k_proj.weight"][0, 0] = 1e30
    converted = rounded(wide, torch.float16)
    for words in ((), ("--rounded-to", "fp16")):
        text = checked(ttrace, wide, converted, *words, code=1)
        assert "layers.1.k_proj.weight, param: it is not finite (first at element 0: " in text


def test_rounding_that_nothing_has_is_refused(ttrace):
    save_file(weights(), ttrace.directory / "reference.safetensors")
    save_file(rounded(weights(), torch.float16), ttrace.directory / "candidate.safetensors")
    check = ("check", "reference.safetensors", "candidate.safetensors", "--rounded-to")
    assert ttrace.refuses(*check, "bf16").startswith("--rounded-to bf16: no tensor of the candidate is bfloat16 where ")
    assert ttrace.refuses(*check, "int8") == "--rounded-to int8: expected a floating dtype, such as bf16 or float16"


def test_tensors_larger_than_a_part_are_rounded_in_parts(ttrace):
    generator = torch.Generator().manual_seed(1)
    wide = {"large": torch.randn(700, 1000, generator=generator), "other": torch.randn(700, 1000, generator=generator)}
    converted = rounded(wide, torch.bfloat16)
    assert "rounded to bfloat16, every element" in checked(ttrace, wide, converted, code=1)
    assert checked(ttrace, wide, converted, "--rounded-to", "bf16", code=0).startswith("same\n")
    converted["large"].view(torch.int16)[699, 999] += 1
    text = checked(ttrace, wide, converted, "--rounded-to", "bf16", code=1)
    assert "first wrong tensor: large param" in text and "worst at [699, 999]" in text
    converted["large"] = converted["other"].clone()
    text = checked(ttrace, wide, converted, "--rounded-to", "bf16", code=1)
    assert "cause: large, param: it holds the values of other" in text
