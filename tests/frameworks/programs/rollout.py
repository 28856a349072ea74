"""A trainer, and engines that score the same sequences with the same weights: forward only, in other batches.

    rollout.py FAMILY BATCH [IMPLEMENTATION]

FAMILY is llama (rotary positions, a head of its own) or gemma2 (a tied head, a soft cap of the logits); BATCH is right,
left (padded there), packed, single (one sequence a call), or decode (with a cache, token by token after the prompt);
IMPLEMENTATION is eager, sdpa, export (torch.export's graph, which has no modules inside) or onnx (ONNX Runtime).
MISTAKE names one thing that the engine gets wrong."""

import os
import sys
import tempfile

import torch
from torch import nn
from transformers import Gemma2Config, Gemma2ForCausalLM, LlamaConfig, LlamaForCausalLM

FAMILY, BATCH = sys.argv[1:3]
IMPLEMENTATION = sys.argv[3] if len(sys.argv) > 3 else "eager"
MISTAKE = os.environ.get("MISTAKE", "")
LENGTHS, PROMPT, VOCABULARY = (7, 5, 11), 3, 97
SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 64,
    "initializer_range": 0.2,
    "rms_norm_eps": 1e-4 if MISTAKE == "eps" else 1e-6,
    "rope_parameters": {"rope_type": "default", "rope_theta": 5e5 if MISTAKE == "rope_base" else 1e4},
}


class LogProbs(nn.Module):
    """Of the next tokens, by the logits; those of a sequence's last token are of token 0."""

    def forward(self, logits, next_ids):
        if MISTAKE == "temperature":
            logits = logits / 0.7
        return logits.float().log_softmax(-1).gather(-1, next_ids[..., None])[..., 0]


class HeadInBfloat16(nn.Module):
    def __init__(self, head):
        super().__init__()
        self.weight = head.weight

    def forward(self, hidden):
        return (hidden.bfloat16() @ self.weight.bfloat16().T).float()


class Scorer(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model, self.log_probs = model, LogProbs()

    def forward(self, input_ids, next_ids, attention_mask=None, position_ids=None, past_key_values=None):
        use_cache = past_key_values is not None
        out = self.model(
            input_ids=input_ids,
            attention_mask=attention_mask,
            position_ids=position_ids,
            past_key_values=past_key_values,
            use_cache=use_cache,
        )
        return self.log_probs(out.logits, next_ids)


class Onnx(nn.Module):
    """The scorer in ONNX Runtime, for inputs of these shapes."""

    def __init__(self, scorer, arguments):
        super().__init__()
        import onnxruntime

        self.model = scorer.model  # whose parameters are recorded, and not called

        with tempfile.TemporaryDirectory() as directory:
            path = os.path.join(directory, "scorer.onnx")
            torch.onnx.export(scorer, (), kwargs=arguments, dynamo=True, verbose=False).save(path)
            self._session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])

    def forward(self, **arguments):
        given = {one.name: arguments[one.name].numpy() for one in self._session.get_inputs()}
        return torch.from_numpy(self._session.run(None, given)[0])


def make_model():
    torch.manual_seed(0)
    if FAMILY == "llama":
        config = LlamaConfig(**SIZES, tie_word_embeddings=False)
        model = LlamaForCausalLM(config)
    else:
        cap = None if MISTAKE == "soft_cap" else 2.0
        config = Gemma2Config(**SIZES, final_logit_softcapping=cap, query_pre_attn_scalar=8)
        model = Gemma2ForCausalLM(config)
    model.set_attn_implementation("eager" if IMPLEMENTATION == "eager" else "sdpa")
    if MISTAKE == "head_not_tied":
        model.lm_head.weight = nn.Parameter(torch.randn_like(model.lm_head.weight) * 0.2)
    if MISTAKE == "head_in_bfloat16":
        model.lm_head = HeadInBfloat16(model.lm_head)
    return Scorer(model).eval()


def sequences():
    generator = torch.Generator().manual_seed(1)
    return [torch.randint(1, VOCABULARY, (length,), generator=generator) for length in LENGTHS]


def next_of(tokens):
    return torch.cat([tokens[1:], tokens.new_zeros(1)])


def padded(side):
    """input_ids, next_ids, attention_mask and position_ids of the sequences."""
    length = max(LENGTHS)
    batch = torch.zeros(4, len(LENGTHS), length, dtype=torch.long)
    for i, tokens in enumerate(sequences()):
        at = slice(0, len(tokens)) if side == "right" else slice(length - len(tokens), length)
        rows = (tokens, next_of(tokens), torch.ones_like(tokens), torch.arange(len(tokens)))
        for row, values in zip(batch, rows, strict=True):
            row[i, at] = values
    return list(batch)


def calls():
    if BATCH in ("right", "left"):
        ids, following, mask, positions = padded(BATCH)
        yield {"input_ids": ids, "next_ids": following, "attention_mask": mask, "position_ids": positions}
    elif BATCH == "packed":
        positions = torch.cat([torch.arange(length) for length in LENGTHS])
        if MISTAKE == "packed_positions":
            positions = torch.arange(sum(LENGTHS))
        following = torch.cat([next_of(tokens) for tokens in sequences()])
        ids = torch.cat(sequences())
        yield {"input_ids": ids[None], "next_ids": following[None], "position_ids": positions[None]}
    else:
        for tokens in sequences():
            yield {"input_ids": tokens[None], "next_ids": next_of(tokens)[None]}


def decode(scorer):
    from transformers import DynamicCache

    for tokens in sequences():
        cache = DynamicCache(config=scorer.model.config)
        following = next_of(tokens)
        for start in (0, *range(PROMPT, len(tokens))):
            at = slice(start, start + 1 if start else PROMPT)
            scorer(tokens[None, at], following[None, at], past_key_values=cache)


torch.set_num_threads(1)
scorer = make_model()
with torch.no_grad():
    if BATCH == "decode":
        decode(scorer)
    for arguments in calls() if BATCH != "decode" else ():
        if IMPLEMENTATION == "export":
            engine = torch.export.export(scorer, (), arguments, strict=False).module()
        elif IMPLEMENTATION == "onnx":
            engine = Onnx(scorer, arguments)
        else:
            engine = scorer
        engine(**arguments)
