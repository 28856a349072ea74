"""One iteration of a model of four layers with two micro-batches, as values: what is computed is made up, and two
correct runs differ by rounding. The gradient of a key's bias is exactly zero in theory, and so nothing but rounding."""

import numpy

from traces import Tensor

LAYERS = 4
MICROBATCHES = 2
KEY_BIAS = "layers.0.key.bias"
ROUNDING = 1e-6  # what two runs differ by, relative: some rounding steps of float32
LEARNING_RATE = 1e-3


def training_run(rounding=0, weights=0, data=0):
    """`rounding` is the seed of the run's rounding errors (0: none), `weights` that of its initial parameters, `data`
    that of what it is fed."""
    rounded = numpy.random.default_rng(rounding)
    initial = numpy.random.default_rng(100 + weights)
    activations = numpy.random.default_rng((200 + data, weights))

    def values(generator, *shape):
        return generator.standard_normal(shape).astype("float32")

    def off(exact):
        if rounding == 0:
            return exact
        return (exact * (1 + ROUNDING * rounded.standard_normal(exact.shape))).astype("float32")

    tensors = []

    def add(name, kind, values, microbatch=-1):
        tensors.append(Tensor(name, numpy.asarray(values, "float32"), kind=kind, microbatch=microbatch))

    parameters = {f"layers.{i}.mlp.weight": values(initial, 8, 8) for i in range(LAYERS)}
    parameters[KEY_BIAS] = values(initial, 8)
    for name, value in parameters.items():
        add(name, "param", value)
    for microbatch in range(MICROBATCHES):
        add("loss", "scalar", off(numpy.float32(2.5 + 0.1 * values(activations))), microbatch)
        for i in range(LAYERS):
            for kind in ("input", "output", "grad_output", "grad_input"):
                add(f"layers.{i}.mlp", kind, off(values(activations, 4, 8)), microbatch)
    for microbatch in range(MICROBATCHES):
        for i in range(LAYERS):
            add(f"layers.{i}.mlp.weight", "param_grad", off(values(activations, 8, 8)), microbatch)
    gradients = {name: off(values(activations, *value.shape)) for name, value in parameters.items()}
    gradients[KEY_BIAS] = 1e-7 * values(rounded, 8)  # noise
    for name, gradient in gradients.items():
        add(name, "main_grad", gradient)
    add("grad_norm", "scalar", off(numpy.float32(1.5)))
    for name, gradient in gradients.items():
        step = -LEARNING_RATE * numpy.sign(gradient)
        add(name, "param_delta", off(step))
        add(name, "param_after", off(parameters[name] + step))
    return tensors


def change(tensors, edit, kind=None, name=None):
    """The tensors, with `edit` done to the values of those of this kind (one or several) and name."""
    kinds = (kind,) if isinstance(kind, str) else kind

    def fits(tensor):
        return (kinds is None or tensor.kind in kinds) and (name is None or tensor.name == name)

    assert any(fits(tensor) for tensor in tensors)
    return [tensor.with_values(edit(tensor.values).astype("float32")) if fits(tensor) else tensor for tensor in tensors]
