"""What a run divides into equal parts."""


def divisions(options):
    """Of `options`, Options: (words for the error, total, parts)."""
    yield "--hidden over --heads", options.hidden, options.heads
    yield "--heads over --tp", options.heads, options.tp
    yield "--vocab over --tp", options.padded_vocab, options.tp
    yield "--micro-batches over --dp", options.micro_batches, options.dp
    if options.vpp > 1:
        local = options.micro_batches // options.dp
        yield "--micro-batches of a data parallel rank over --pp with --vpp", local, options.pp
    if options.arch == "llama":
        yield "--hidden over 2 * --heads with --arch llama", options.hidden, 2 * options.heads
        yield "--heads over --kv-heads", options.heads, options.key_value_heads
    if not options.packed:  # documents are padded as needed
        yield from _sequence_divisions(options)
    if options.experts:
        yield from _expert_divisions(options)


def _sequence_divisions(options):
    if options.cp > 1 and options.cp_layout == "zigzag":
        yield "--seq over 2 * --cp with --cp-layout zigzag", options.seq, 2 * options.cp
    elif options.cp > 1:
        yield "--seq over --cp", options.seq, options.cp
    if options.sp and options.cp > 1:
        yield "--seq over --cp * --tp with --sp", options.seq, options.cp * options.tp
    elif options.sp:
        yield "--seq over --tp with --sp", options.seq, options.tp


def _expert_divisions(options):
    yield "--experts over --ep", options.experts, options.ep
    yield "4 * --hidden over --etp", 4 * options.hidden, options.etp
    stage = options.world_size // options.pp
    yield "the ranks of a pipeline stage over --ep times --etp", stage, options.ep * options.etp
    if not options.sp and not options.packed:
        ranks = "--tp" if options.cp == 1 else "--cp * --tp"
        tokens = options.seq * options.micro_batch_size
        yield f"--seq times --micro-batch-size over {ranks}", tokens, options.cp * options.tp
