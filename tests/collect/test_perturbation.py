"""`--perturb`: the right tensor, by the right factors."""

import ctypes
import ctypes.util

import numpy
import pytest
from conftest import PYTHON, program, python, ranks
from test_processes import RANKS

pytestmark = pytest.mark.usefixtures("warm_programs")

SEED = 42
WORD = 0xFFFFFFFF


def philox(key, block):
    """Philox4x32-10 from its definition (Salmon et al., SC'11): four words of the counter `block`."""
    counter, key = [block & WORD, block >> 32, 0, 0], [key & WORD, key >> 32]
    for _ in range(10):
        first, second = 0xD2511F53 * counter[0], 0xCD9E8D57 * counter[2]
        counter = [
            (second >> 32) ^ counter[1] ^ key[0],
            second & WORD,
            (first >> 32) ^ counter[3] ^ key[1],
            first & WORD,
        ]
        key = [(key[0] + 0x9E3779B9) & WORD, (key[1] + 0xBB67AE85) & WORD]
    return counter


def test_philox_here_is_the_papers():
    # The known answer for zero counter and key, from the authors' Random123.
    assert [f"{word:08x}" for word in philox(0, 0)] == ["6627e8d5", "e169c58d", "bc57ac4c", "9b00dbd8"]


def hashed(text, seed):
    library = ctypes.CDLL(ctypes.util.find_library("xxhash"))
    library.XXH3_64bits_withSeed.restype = ctypes.c_uint64
    library.XXH3_64bits_withSeed.argtypes = [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_uint64]
    return library.XXH3_64bits_withSeed(text.encode(), len(text), seed)


def uniform(identity, shape):
    key, count = hashed(identity, SEED), int(numpy.prod(shape))
    words = [philox(key, index // 4)[index % 4] for index in range(count)]
    return numpy.array([(word >> 8) * 2.0**-23 - 1 for word in words], "f4").reshape(shape)


def rounded_to_bf16(values):
    """fp32 to the bits of bf16, to nearest, ties to even."""
    bits = values.view("u4")
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("u2")


def embedded(rank, microbatch):
    """What the embedding would give, unperturbed."""
    weight = rank.tensors["param", "embedding.weight", -1]
    return weight[rank.tensors["input", "embedding", microbatch]]


def test_the_embeddings_output_is_multiplied_by_the_generators_factors(collect):
    rank = collect("--perturb", str(SEED), command=program("small")).rank()
    for microbatch in (0, 1):
        plain = embedded(rank, microbatch)
        u = uniform(f"0/{microbatch}/output/embedding", plain.shape)
        factor = numpy.float32(1) + numpy.float32(2.0**-23) * u
        assert (factor != 1).any()
        assert numpy.array_equal(rank.tensors["output", "embedding", microbatch], plain * factor)
        assert numpy.array_equal(rank.tensors["input", "blocks.0", microbatch], plain * factor)


def test_bf16_is_perturbed_in_fp32_and_rounded_back(collect):
    rank = collect("--perturb", str(SEED), command=program("small", "--bf16")).rank()
    plain = (embedded(rank, 0).astype("u4") << 16).view("f4")
    u = uniform("0/0/output/embedding", plain.shape)
    expected = rounded_to_bf16(plain * (numpy.float32(1) + numpy.float32(2.0**-7) * u))
    assert numpy.array_equal(rank.tensors["output", "embedding", 0], expected)


@pytest.mark.parametrize("place", ["input", "modules"])
@pytest.mark.parametrize("recompute", ["reentrant", "nonreentrant"])
def test_recomputations_and_iterations_that_are_not_recorded_are_perturbed_alike(collect, recompute, place):
    command = program("small", "--recompute", recompute)
    perturb = ["--perturb", str(SEED), "--perturb-at", place]
    later = collect(*perturb, "--iterations", "1", command=command)
    both = collect(*perturb, "--iterations", "0,1", command=command)
    assert later.code == 0, later.process.stderr
    tensors = both.rank().all
    recomputed = [identity for identity in tensors if identity[3] == "recompute"]
    assert recomputed
    for identity in recomputed:
        forward = (*identity[:3], "forward", *identity[4:])
        assert numpy.array_equal(tensors[identity], tensors[forward]), identity
    assert later.stdout == both.stdout
    for identity, values in later.rank().all.items():
        assert numpy.array_equal(values, both.rank().all[identity])


@pytest.mark.parametrize("place", ["input", "modules"])
def test_one_rank_and_two_data_parallel_ranks_get_the_same_values(collect, tmp_path, place):
    annotations = tmp_path / "annotations.yaml"
    annotations.write_text("parallelism:\n  microbatches: {axis: dp, order: interleaved}\n")
    options = ["--perturb", str(SEED), "--perturb-at", place, "-a", annotations]
    one = collect(*options, command=python(RANKS))
    two = collect(*options, "--axes", "dp=2", command=ranks(2, RANKS))
    assert two.code == 0, two.process.stderr
    for microbatch in range(4):
        for name in ("head", "embedding"):
            mine = one.rank().tensors["output", name, microbatch]
            theirs = two.rank(microbatch % 2).tensors["output", name, microbatch // 2]
            assert numpy.array_equal(mine, theirs)
        assert not numpy.array_equal(mine, embedded(one.rank(), microbatch))


def test_ranks_read_included_presets_and_know_the_parameters_that_were_set(collect, tmp_path):
    annotations = tmp_path / "annotations.yaml"
    annotations.write_text(
        "include: torch_fsdp2_tp\n"
        "parameters: {axis: tp}\n"
        "parallelism:\n  microbatches: {axis: $axis, order: interleaved}\n"
    )
    options = ["--perturb", str(SEED), "--axes", "dp=2", "-a", annotations]
    two = collect(*options, "--set", "axis=dp", command=ranks(2, RANKS))
    assert two.code == 0, two.process.stderr
    assert sorted(path.suffix for path in two.directory.iterdir()) == [".h5", ".h5"]
    one = collect("--perturb", str(SEED), command=python(RANKS))
    for microbatch in range(4):
        theirs = two.rank(microbatch % 2).tensors["output", "embedding", microbatch // 2]
        assert numpy.array_equal(one.rank().tensors["output", "embedding", microbatch], theirs)


def test_a_model_without_embedding_has_its_input_perturbed(collect, script):
    text = "import torch\nmodel = torch.nn.Linear(3, 2)\nmodel(torch.ones(4, 3)).sum().backward()\n"
    collected = collect("--perturb", str(SEED), command=script(text))
    assert collected.code == 0, collected.process.stderr
    expected = numpy.float32(1) + numpy.float32(2.0**-23) * uniform("0/0/input/(model)", (4, 3))
    assert numpy.array_equal(collected.rank().tensors["input", "(model)", 0], expected)


# A TensorDict is a mapping of this sort: its copies are not made of what they are given.
OBJECTS = """
import collections.abc
import torch
from torch import nn
class Held:
    def __init__(self, x):
        self.x = x
class Mapped(collections.abc.Mapping):
    def __init__(self, x):
        self.x = x
    def __getitem__(self, key):
        return self.x
    def __iter__(self):
        return iter(["x"])
    def __len__(self):
        return 1
    def __deepcopy__(self, memo):
        return self
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(3, 2)
    def forward(self, given):
        return self.first(given.x)
Model()({given}(torch.ones(4, 3))).sum().backward()
"""


@pytest.mark.parametrize("given", ["Held", "Mapped"])
def test_of_a_model_that_is_given_objects_the_first_module_inside_has_its_input_perturbed(collect, script, given):
    collected = collect("--perturb", str(SEED), command=script(OBJECTS.replace("{given}", given)))
    assert collected.code == 0, collected.process.stderr
    expected = numpy.float32(1) + numpy.float32(2.0**-23) * uniform("0/0/input/first", (4, 3))
    assert numpy.array_equal(collected.rank().tensors["input", "first", 0], expected)


OF_NOTHING = """
import torch
from torch import nn
torch.manual_seed(0)

class Factors(nn.Module):
    def __init__(self):
        super().__init__()
        self.users, self.items = nn.Parameter(torch.randn(4, 2)), nn.Parameter(torch.randn(3, 2))

    def forward(self):
        return self.users @ self.items.T

model = Factors()
(model() - 1).square().mean().backward()
"""


def test_of_a_model_that_is_given_nothing_the_output_is_perturbed(collect, script):
    command = script(OF_NOTHING)
    plain, moved = collect(command=command), collect("--perturb", "1", command=command)
    assert (plain.code, moved.code) == (0, 0), moved
    before, after = (trace.rank().tensors["output", "(model)", 0] for trace in (plain, moved))
    assert 0 < numpy.abs(after / before - 1).max() < 4 * numpy.finfo(numpy.float32).eps


def test_where_nothing_can_be_perturbed_the_trace_is_refused(collect, script):
    text = "import torch\nclass Model(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n"
    text += "        self.w = torch.nn.Parameter(torch.ones(3))\n    def forward(self, n):\n        return n * self.w\n"
    text += "Model()(torch.arange(3)).sum().backward()\n"
    collected = collect("--perturb", str(SEED), command=script(text))
    # Its one module takes integers and gives floating values: that is an embedding, of a kind.
    assert collected.code == 0, collected.process.stderr
    hidden = text.replace("return n * self.w", "return Held(n * self.w)").replace(".sum()", ".x.sum()")
    hidden = hidden.replace("torch.arange(3)", "5")
    held = "class Held:\n    def __init__(self, x):\n        self.x = x\n"
    collected = collect("--perturb", str(SEED), command=script(held + hidden))
    assert collected.code == 2, collected
    assert any("rank 0: nothing could be perturbed in iteration 0" in line for line in collected.messages)


# Small whole numbers: what is computed is exact, but for the factors.
MODULES = """
import torch
from torch import nn

class HandsOn(nn.Module):  # what was given, what a module inside has returned, and views of them
    def __init__(self, inner):
        super().__init__()
        self.inner, self.same = inner, nn.Identity()
    def forward(self, x):
        return self.same(self.inner(x)).flatten(), x.view(-1)

class Keeps(nn.Module):  # returns what it has used itself, and nobody else uses
    def forward(self, x):
        y = 2 * x
        return y, y * y

class Adds(nn.Module):  # writes to what a module inside has returned
    def __init__(self, inner):
        super().__init__()
        self.inner = inner
    def forward(self, x):
        y = self.inner(x)
        y += 1
        return y

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.hands_on = HandsOn(nn.Linear(3, 2))
        self.keeps, self.adds = Keeps(), Adds(nn.Linear(2, 2))
        for p in self.parameters():
            nn.init.constant_(p, 1)
    def forward(self, n):
        y, _ = self.hands_on(n.float())
        _, z = self.keeps(y)
        return self.adds(z.view(-1, 2))

Model()(torch.arange(12).view(4, 3)).sum().backward()
"""


def factor_of(name, shape):
    return numpy.float32(1) + numpy.float32(2.0**-23) * uniform(f"0/0/output/{name}", shape)


def test_every_modules_output_is_multiplied_once_where_it_is_computed(collect, script):
    collected = collect("--perturb", str(SEED), "--perturb-at", "modules", command=script(MODULES))
    assert collected.code == 0, collected.process.stderr
    tensors = {name: values for (kind, name, _), values in collected.rank().tensors.items() if kind == "output"}
    x = numpy.arange(12, dtype="f4").reshape(4, 3)
    linear = numpy.repeat(x.sum(1, keepdims=True) + 1, 2, axis=1) * factor_of("hands_on.inner", (4, 2))
    assert numpy.array_equal(tensors["hands_on.inner"], linear)
    assert numpy.array_equal(tensors["hands_on.same"], linear)
    assert numpy.array_equal(tensors["hands_on:0"], linear.flatten())
    assert numpy.array_equal(tensors["hands_on:1"], x.flatten())
    double = 2 * linear.flatten()
    assert numpy.array_equal(tensors["keeps:0"], double * factor_of("keeps:0", (8,)))
    assert numpy.array_equal(tensors["keeps:1"], double * double * factor_of("keeps:1", (8,)))
    added = (tensors["adds.inner"] + numpy.float32(1)) * factor_of("adds", (4, 2))
    assert numpy.array_equal(tensors["adds"], added)
    assert numpy.array_equal(tensors["(model)"], added)


def test_gradients_are_multiplied_by_the_same_factors(collect, script):
    plain = collect(command=script(MODULES)).rank()
    perturbed = collect("--perturb", str(SEED), "--perturb-at", "modules", command=script(MODULES)).rank()
    assert plain.all.keys() == perturbed.all.keys()
    factor = factor_of("adds", (4, 2))
    assert numpy.array_equal(perturbed.tensors["grad_output", "adds", 0], factor)
    inner = factor * factor_of("adds.inner", (4, 2))
    assert numpy.array_equal(perturbed.tensors["grad_output", "adds.inner", 0], inner)
    assert numpy.allclose(perturbed.tensors["param_grad", "adds.inner.bias", 0], inner.sum(0), rtol=1e-6, atol=0)


def test_a_model_without_floating_outputs_cannot_be_perturbed(collect, script):
    text = "import torch\nclass Model(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n"
    text += "        self.w = torch.nn.Parameter(torch.ones(3))\n    def forward(self, n):\n"
    text += "        self.w.sum().backward()\n        return n\nModel()(torch.arange(3))\n"
    collected = collect("--perturb", str(SEED), "--perturb-at", "modules", command=script(text))
    assert collected.code == 2
    assert any(
        "nothing could be perturbed in iteration 0: expected a model with a module whose output is floating" in line
        for line in collected.messages
    ), collected.process.stderr


MIXED = """
import contextlib, sys, torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.head = nn.Embedding(16, 8), nn.Linear(8, 16)
    def forward(self, tokens):
        inside = torch.autocast("cpu", torch.bfloat16) if sys.argv[1] == "autocast" else contextlib.nullcontext()
        with inside:
            return self.head(self.embedding(tokens)).float()

torch.manual_seed(0)
model = Model()
if sys.argv[1] == "fsdp2":
    import torch.distributed as dist
    import torch.distributed.nn
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    model = fully_shard(model, mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16))
tokens = torch.arange(16).reshape(2, 8)
nn.functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten()).backward()
torch.optim.SGD(model.parameters(), lr=0.1).step()
if sys.argv[1] == "fsdp2":
    dist.destroy_process_group()
"""


@pytest.mark.parametrize("how", ["fsdp2", "autocast"])
def test_what_computes_in_bf16_with_fp32_parameters_is_perturbed_by_bf16s_epsilon(collect, script, how):
    plain = collect(command=script(MIXED, how))
    perturbed = collect("--perturb", "1", command=script(MIXED, how))
    assert (plain.code, perturbed.code) == (0, 0), perturbed
    plain, perturbed = plain.rank(), perturbed.rank()
    assert perturbed.attributes["compute_dtype"] == plain.attributes["compute_dtype"] == "bfloat16"
    values = [rank.tensors["output", "embedding", 0] for rank in (plain, perturbed)]
    if how == "fsdp2":  # as bits
        values = [(bits.astype("u4") << 16).view("f4") for bits in values]
    changed = numpy.abs(values[1] / values[0] - 1)
    assert 2**-9 < changed.max() < 2**-6


BAGS = """
import torch
class Text(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.bag, self.head = torch.nn.EmbeddingBag(10, 4, mode="sum"), torch.nn.Linear(4, 2)
    def forward(self, tokens, offsets, weights):
        return self.head(self.bag(tokens, offsets, per_sample_weights=weights))
torch.manual_seed(0)
Text()(torch.tensor([1, 2, 4, 5]), torch.tensor([0, 2]), torch.ones(4)).sum().backward()
"""


def test_of_a_bag_of_embeddings_that_is_given_weights_beside_its_tokens_the_output_is_perturbed(collect):
    plain, perturbed = (
        collect(*options, command=[PYTHON, "-c", BAGS]).rank().tensors for options in ((), ("--perturb", "1"))
    )
    assert not numpy.array_equal(plain["output", "bag", 0], perturbed["output", "bag", 0])
    assert numpy.array_equal(
        plain["input", "bag:per_sample_weights", 0], perturbed["input", "bag:per_sample_weights", 0]
    )


TABLE = """
import torch
from torch import nn
torch.manual_seed(0)


class Tabular(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.head = nn.Embedding(500, 4), nn.Linear(8, 1)

    def forward(self, x):
        return self.head(torch.cat([self.embedding(x[:, column].long()) for column in (1, 3)], 1)) * x[:, :1]


table = torch.stack([torch.randn(64), torch.randint(6, (64,)), torch.randn(64), torch.randint(500, (64,))], 1)
with torch.autocast("cpu", torch.bfloat16):
    Tabular()(table).sum().backward()
"""


def test_numbers_of_categories_in_a_table_stay_what_they_are(collect, script):
    plain, perturbed = (collect(*options, command=script(TABLE)).rank() for options in ([], ["--perturb", str(SEED)]))
    table, moved = (rank.tensors["input", "(model)", 0] for rank in (plain, perturbed))
    assert numpy.array_equal(table.astype(int)[:, [1, 3]], moved.astype(int)[:, [1, 3]])
    assert (moved[:, [1, 3]] >= table[:, [1, 3]]).all() and (moved[:, 3] > table[:, 3]).any()
    assert (moved[:, [0, 2]] < table[:, [0, 2]]).any() and (moved[:, [0, 2]] > table[:, [0, 2]]).any()
