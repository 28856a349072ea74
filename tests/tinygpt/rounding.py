"""How far a correct parallel run may be from the single process.

A value has gone through some 10 rounded operations per layer, forward and backward, 80 in 4 layers, each off by at
most eps/2; as a random walk, 80 ** 0.5 / 2 = 4.5 eps. A gradient is besides a sum over 64 * 4 tokens, whose order
depends on the layout: 256 ** 0.5 / 2 = 8 eps. Together 12.5 eps, rounded up to 16. A token left out or counted
twice moves a gradient by about 1/256, 33,000 fp32 eps."""

import pytest

EPS = {"fp32": 2.0**-23, "fp16": 2.0**-10, "bf16": 2.0**-7}
ROUNDINGS = 16


def assert_equal_but_for_rounding(candidate, single, initial, dtype="fp32"):
    """After one step of SGD; `initial` is the single process with lr 0."""
    eps = EPS[dtype]
    assert candidate.losses[0] == pytest.approx(single.losses[0], rel=ROUNDINGS * eps)
    assert candidate.grad_norms[0] == pytest.approx(single.grad_norms[0], rel=ROUNDINGS * eps)
    assert candidate.parameters.keys() == single.parameters.keys()
    for name, grad in single.main_grads.items():
        assert grad.norm() > 0, name
        assert (candidate.main_grads[name] - grad).norm() <= ROUNDINGS * eps * grad.norm(), name
    for name, parameter in single.parameters.items():
        # What the gradient is off by, and the rounding of the sum to the fp32 master.
        step = (parameter - initial.parameters[name]).norm()
        allowed = ROUNDINGS * eps * step + EPS["fp32"] * parameter.norm()
        assert step > 0, name
        assert (candidate.parameters[name] - parameter).norm() <= allowed, name


def wrong_gradients(candidate, single, dtype="fp32"):
    """Names of the parameters whose gradient is further off than rounding explains. For runs without clipping, which
    takes out a common factor and spreads what is wrong in one to all."""
    allowed = {name: ROUNDINGS * EPS[dtype] * grad.norm() for name, grad in single.main_grads.items()}
    return [
        name
        for name, grad in single.main_grads.items()
        if not (candidate.main_grads[name] - grad).norm() <= allowed[name]
    ]
