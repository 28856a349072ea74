"""Which layers a pipeline stage holds, as Megatron-LM divides them.

A stage holds `--vpp` model chunks. Chunk k of stage s is part k * pp + s of the model: a micro-batch goes through
the parts in this order, so that it visits every stage `--vpp` times."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Part:
    layers: range  # global numbers
    is_first: bool  # has the embedding
    is_last: bool  # has the head


def part_of(options, stage, chunk):
    """What chunk `chunk` of stage `stage` holds."""
    counts = layer_counts(options)
    number = chunk * options.pp + stage
    first = sum(counts[:number]) if _given(options) else _even_start(options, stage, chunk)
    return Part(range(first, first + counts[number]), number == 0, number == len(counts) - 1)


def layer_counts(options):
    """The number of layers of each part, in model order."""
    if _given(options):
        return [count // options.vpp for count in _uneven_stages(options)] * options.vpp
    parts = options.pp * options.vpp
    counts = [(options.layers + options.count_embedding + options.count_head) // parts] * parts
    counts[0] -= options.count_embedding
    counts[-1] -= options.count_head
    return counts


def _even_start(options, stage, chunk):
    """Where the part begins, worked out from its place alone."""
    layers = options.layers + options.count_embedding + options.count_head
    start = chunk * (layers // options.vpp) + stage * (layers // (options.pp * options.vpp))
    return max(start - options.count_embedding, 0)  # the first part begins at 0 whatever counts


def partition_problem(options):
    """Why the layers cannot be divided so, a line for the user; None where they can."""
    if options.vpp > 1 and options.pp == 1:
        return "--vpp needs --pp 2 or more: it interleaves the stages of a pipeline"
    given = _given(options)
    counted = [name for name in ("--count-embedding", "--count-head") if getattr(options, _field(name))]
    if (given or counted) and options.pp == 1:
        return f"{[*given, *counted][0]} needs --pp 2 or more"
    if given and counted:
        return f"{[*given][0]} and {counted[0]}: give one of them; each says what the first or last stage holds"
    return _uneven_problem(options, given) if given else _even_problem(options, counted)


def _even_problem(options, counted):
    layers, parts = options.layers + len(counted), options.pp * options.vpp
    over = "--pp" if options.vpp == 1 else "--pp times --vpp"
    if layers % parts and options.bug != "stage-division":
        return f"{' and '.join(['--layers', *counted])} over {over}: {layers} is not divisible by {parts}"
    return None


def _uneven_problem(options, given):
    for name, count in given.items():
        if count < 1:
            return f"{name} {count}: must be 1 or more"
    middle, left = options.pp - len(given), options.layers - sum(given.values())
    after = f"--layers after {' and '.join(given)}"
    if left < middle or (middle == 0 and left):
        return f"{after}: {left} left, other stages: {middle}"
    if middle and left % middle:
        return f"{after} over the other stages: {left} is not divisible by {middle}"
    for count in _uneven_stages(options):
        if count % options.vpp:
            return f"layers of a stage over --vpp: {count} is not divisible by {options.vpp}"
    return None


def _uneven_stages(options):
    given = _given(options)
    middle = options.pp - len(given)
    counts = [(options.layers - sum(given.values())) // max(middle, 1)] * options.pp
    if options.first_stage_layers is not None:
        counts[0] = options.first_stage_layers
    if options.last_stage_layers is not None:
        counts[-1] = options.last_stage_layers
    return counts


def _given(options):
    """The sizes that were asked for, by name of the option."""
    sizes = {name: getattr(options, _field(name)) for name in ("--first-stage-layers", "--last-stage-layers")}
    return {name: size for name, size in sizes.items() if size is not None}


def _field(name):
    return name.lstrip("-").replace("-", "_")
