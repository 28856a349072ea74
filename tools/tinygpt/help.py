"""What `--help` says beside the options: which part of what each rank computes, and which numbers are terms of a
sum."""

DESCRIPTION = """\
Trains a small GPT or Llama on synthetic tokens: on one process with plain PyTorch modules, or under torchrun with
tensor, sequence, context, data, pipeline and expert parallelism. One line per step: loss and gradient norm, with all
digits. The same command prints the same line every time."""

EXAMPLES = """\
Examples:
  python train.py
  torchrun --nproc-per-node 4 train.py --tp 2 --sp --dp 2"""

LAYOUTS = """\
Ranks: rank = tp + TP * (cp + CP * (dp + DP * pp)): tensor parallel fastest, then context parallel, then data parallel,
then pipeline. For experts the same ranks are counted as rank = etp + ETP * (ep + EP * (edp + EDP * pp)): expert tensor
parallel fastest, then expert parallel, then expert data parallel, whose size follows.

Micro-batches: local micro-batch m of data parallel rank r is the global one m * dp + r.

Experts: local expert i of rank ep is the global one ep * E/EP + i. Each rank dispatches the tokens that it has alone;
where tp ranks have the same (no --sp), each of them an equal part. Experts have no biases; those of a llama stack
[gate; up] in linear_fc1 as its MLP does, and each of etp has its part of both.

ZeRO: the ranks that differ in dp only divide the parameters of one of them. Gradients are summed over cp before.

--dtype fp16: backward starts from the loss times the loss scale, and so do all gradients until, summed over all ranks,
they are divided by it. A step in which one of them overflows on any rank is skipped, and the scale is halved.

--fp8: inputs and weights of linear_qkv, linear_proj, linear_fc1 and linear_fc2 are rounded to e4m3, the gradients of
their outputs to e5m2, with scales from the largest magnitudes of earlier steps on all tp, cp and dp ranks. Parameters
and what is between the linears have --dtype.

Context parallelism: of a sequence, rank c of cp has chunks c and 2 cp - 1 - c of 2 cp (zigzag), chunk c of cp
(contiguous), or each token i with i mod cp = c (striped); under --sp the tensor parallel ranks split this further.
A rank's loss is the sum over its own unmasked tokens divided by the number in the whole micro-batch, so that the
losses of the cp ranks add up to the micro-batch's. Activation gradients are those of that total. Parameter gradients
are terms of a sum over cp, and added up when they are finalised. With --cp-gradients average (Megatron-core up to
0.12) the loss from which backward starts, and so all gradients before they are finalised, are multiplied by cp; the
final ones are an average over dp and cp. Under --per-token-loss, which averages nothing, this changes nothing.

--recompute-layers: each run of N layers of a stage's chunk is recomputed as one, from the input of its first.

--gather-buffers: under --sp the inputs of linear_qkv of all layers are gathered into one communication buffer, those of
linear_fc1 into another (as Transformer Engine does to overlap communication). Backward uses copies.

Llama: linear_qkv stacks [queries; keys; values], linear_fc1 [gate; up]; a tensor parallel rank has its part of each.
Query head q looks at key and value head q * K / Q (Q heads, K of keys and values). Rank c of tp has query heads
[c Q / tp, (c + 1) Q / tp) and all key and value heads from floor(first K / Q) to ceil(end K / Q). The gradients of
heads that several ranks have are terms of a sum, and added up when they are finalised.

--pad-vocab-to: the padding rows are the last ones of word_embeddings.weight and output_layer.weight. Their logits are
computed, and masked in the loss.

--per-token-loss: the loss of a micro-batch and all gradients before they are finalised are those of the plain sum
over its unmasked tokens. The step's loss and the final gradients are divided by their number in the whole step.

--packed: a row has 2 documents for each of --micro-batch-size, of lengths between half and all of --seq. Attention
stays within a document, positions start again in each. The model takes cu_seqlens, int32 [documents + 1]. With --cp
documents are padded to a multiple of cp (zigzag: 2 cp), with --sp or --experts also times tp, and each is split by
itself; the model takes cu_seqlens_padded too. Both are of the whole row, the same on all ranks.
"""
