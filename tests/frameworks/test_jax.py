"""JAX as its users write it, recorded without a tap: modules of nnx and linen and plain functions, under jit and
shard_map, with chains of optax. Each way has a correct candidate, and wrong ones that are different at the tensor that
is wrong first."""

import json
import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TTRACE = os.environ["TTRACE_PROGRAM"]
PYTHON = ROOT / ".venv-jax/bin/python"

pytestmark = pytest.mark.skipif(
    not PYTHON.exists(), reason="JAX is not installed; tools/frameworks/run --only jax does it"
)

# Records many runs in one process, which imports JAX once.
RECORD = """
import sys
sys.path.insert(0, "tools/frameworks/jax")
import plain, untapped
import jax, numpy, optax
from ttrace.jax import CallRecorder
for line in sys.stdin:
    directory, seed, *words = line.split()
    options = untapped.parse_options(words)
    mesh, seed = untapped.mesh_of(options), int(seed) or None
    with CallRecorder(mesh, directory, functions=[plain], compute_dtype="float32", perturb=seed) as recorder:
        untapped.train(options, recorder)

# A loop over layers, whose blocks are computed again in backward, in two micro-batches.
parameters = plain.initial_parameters(8, 4, jax.random.key(0))
layers = {name: numpy.stack([parameters[name + "0"], parameters[name + "1"]]) for name in ("up", "down")}

def loss(layers, x):
    step = jax.checkpoint(lambda x, layer: (plain.block(x, layer["up"], layer["down"]), None))
    return jax.numpy.mean(jax.lax.scan(step, x, layers)[0] ** 2)

with CallRecorder(jax.sharding.Mesh(jax.devices()[:1], ("data",)), sys.argv[1], functions=[plain]) as recorder:
    with recorder.iteration(0):
        gradient = jax.jit(jax.value_and_grad(loss))
        jax.block_until_ready([gradient(layers, numpy.full((2, 4), scale, "float32")) for scale in (1, 2)])

# Gradients by sample, clipped each, of samples that devices share out.
weights = {name: parameters[name + "0"] for name in ("up", "down")}
samples = jax.random.normal(jax.random.key(1), (8, 4))

def clipped(weights, x):
    def loss(weights, x):
        return jax.numpy.mean(plain.block(x[None], weights["up"], weights["down"]) ** 2)

    value, gradient = jax.value_and_grad(loss)(weights, x)
    norm = jax.numpy.sqrt(sum(jax.numpy.sum(one**2) for one in gradient.values()))
    return value, jax.tree.map(lambda one: one / jax.numpy.maximum(norm, 1), gradient)

def by_sample(weights, x, scale):
    weights = jax.tree.map(lambda one: jax.lax.pcast(one, "data", to="varying"), weights)
    x = x * (1 + scale * jax.lax.axis_index("data"))
    of_all = lambda one: jax.lax.pmean(one.mean(0), "data")
    return jax.tree.map(of_all, jax.vmap(clipped, (None, 0))(weights, x))

for devices, scale in ((1, 0), (2, 0), (2, 0.01)):
    mesh = jax.sharding.Mesh(jax.devices()[:devices], ("data",))
    P = jax.sharding.PartitionSpec
    directory = f"{sys.argv[2]}-{devices}-{scale}"
    with CallRecorder(mesh, directory, functions=[plain], compute_dtype="float32") as recorder:
        with recorder.iteration(0):
            run = lambda weights, x: by_sample(weights, x, scale)
            step = jax.jit(jax.shard_map(run, mesh=mesh, in_specs=(P(), P("data")), out_specs=P()))
            loss, gradients = step(weights, samples)
            sgd = optax.sgd(0.1)
            updates, state = sgd.update(gradients, sgd.init(weights), weights)
            jax.block_until_ready(optax.apply_updates(weights, updates))
"""
MODELS = {
    "nnx": "--model nnx --optimizer clipped --iterations 2",
    "linen": "--model linen --optimizer lion --iterations 2",
    "functions": "--model functions --optimizer momentum --iterations 2",
    "adafactor": "--model linen --optimizer adafactor --iterations 2",
}
CORRECT = {
    "nnx": ["--how jit", "--how shard_map", "--how shard_map-vma"],
    "linen": ["--how shard_map"],
    "functions": ["--how shard_map"],
    "adafactor": ["--how jit", "--how shard_map"],
}
# The root cause: tensor and kind, and for steps the reason.
WRONG = {
    "nnx": {
        # Where gradients are added up, losses are terms of a sum: twice the reference's, since each is a mean.
        "--how shard_map --bug sum-for-mean": "loss scalar",
        "--how shard_map --bug local-clip": "blocks.0.down.bias main_grad",
        "--how shard_map --bug loss-psum": "loss scalar",
        "--how jit --bug eps": "blocks.1.norm output",
    },
    "linen": {"--how shard_map --bug eps": "block1.norm output"},
    "functions": {"--how shard_map --bug no-average": "loss scalar"},
    "adafactor": {
        "--how shard_map --bug row": "block1.up.kernel param_delta step-differs",
        "--how shard_map --bug step": "block0.down.bias param_delta step-differs",
        "--how shard_map --bug decay-rate": "block0.down.bias param_delta options-differ",
        "--how jit --bug threshold": "block0.down.bias param_delta options-differ",
    },
}
STEPS = {"nnx": "optax.adam", "linen": "optax.lion", "functions": "optax.sgd", "adafactor": "optax.adafactor"}


def name_of(words):
    return words.replace("--", "").replace(" ", "-")


@pytest.fixture(scope="module")
def traces(tmp_path_factory):
    """The directory of all traces, with the tolerances of each model's reference."""
    directory = tmp_path_factory.mktemp("jax")
    lines = []
    for model, words in MODELS.items():
        lines += [f"{directory}/{model} 0 {words}", f"{directory}/{model}-rerun 0 {words}"]
        lines += [f"{directory}/{model}-{seed} {seed} {words}" for seed in (1, 2, 3)]
        for candidate in [*CORRECT[model], *WRONG[model]]:
            lines.append(f"{directory}/{model}-{name_of(candidate)} 0 {words} --devices 2 {candidate}")
    environment = dict(os.environ, PYTHONPATH=str(Path(os.environ["TTRACE_BUILD"]) / "lib/python"))
    command = [PYTHON, "-c", RECORD, directory / "loops", directory / "by-sample"]
    subprocess.run(command, input="\n".join(lines), text=True, check=True, cwd=ROOT, env=environment)
    for model in MODELS:
        perturbed = [directory / f"{model}-{seed}" for seed in (1, 2, 3)]
        runs = ["--perturbed", *perturbed, "--rerun", directory / f"{model}-rerun"]
        reference = ["--reference", directory / model, "-o", directory / f"{model}.yaml"]
        subprocess.run([TTRACE, "estimate-tolerance", *reference, *runs], check=True, capture_output=True)
    return directory


def test_calls_in_a_loop_that_backward_computes_again_are_recorded_in_order(traces):
    listed = subprocess.run([TTRACE, "inspect", traces / "loops"], capture_output=True, text=True, check=True).stdout
    rows = [line.split() for line in listed.split("shape\n")[-1].splitlines()]
    blocks = ["block.norm", "block", "block.norm#1", "block#1"]
    expected = [
        (str(microbatch), kind, name)
        for microbatch in range(2)
        for kind, names in (("output", blocks), ("scalar", ["loss"]), ("grad_output", blocks[::-1]))
        for name in names
    ]
    assert [(row[2], row[3], row[4]) for row in rows if row[3] != "input"] == expected


@pytest.mark.parametrize(("scale", "verdict"), [("0", "same"), ("0.01", "different")])
def test_samples_that_are_mapped_over_on_each_device_are_in_their_order(traces, scale, verdict):
    pair = ["--reference", traces / "by-sample-1-0", "--candidate", traces / f"by-sample-2-{scale}"]
    result = subprocess.run([TTRACE, "check", *pair, "-t", "default"], capture_output=True, text=True, check=False)
    assert result.stdout.startswith(verdict), result.stdout + result.stderr
    assert verdict == "same" or "first wrong tensor: block:0 input" in result.stdout, result.stdout


def report_of(traces, model, candidate):
    pair = ["--reference", traces / model, "--candidate", traces / f"{model}-{name_of(candidate)}"]
    report = traces / "report.json"
    subprocess.run([TTRACE, "check", "-q", *pair, "-t", traces / f"{model}.yaml", "--json", report], check=False)
    return json.loads(report.read_text())


@pytest.mark.parametrize(("model", "candidate"), [(model, one) for model, all_ in CORRECT.items() for one in all_])
def test_a_correct_program_is_the_same_with_its_steps_proved(traces, model, candidate):
    report = report_of(traces, model, candidate)
    assert report["verdict"] == "same", report
    steps = report["optimizer_steps"]
    assert (steps["optimizers"], steps["updates_checked"]) == ([STEPS[model]], steps["updates"])


@pytest.mark.parametrize(
    ("model", "candidate", "root"), [(model, *one) for model, all_ in WRONG.items() for one in all_.items()]
)
def test_a_wrong_program_is_different_where_it_is_wrong_first(traces, model, candidate, root):
    report = report_of(traces, model, candidate)
    found = report["root_cause"]
    words = f"{found['name']} {found['kind']} {found['reason']}"
    assert (report["verdict"], words[: len(root)]) == ("different", root)
