"""Works out, in fp64, what an optimizer's step must have done, from what a rank's file says of it and nothing else.

    python replay.py TRACE    the largest error of each rank, in units of the bound

A step that was recorded whole reproduces `param_delta` within the rounding of what the optimizer computes: half an ulp
of the value that it updates, and a few of each term."""

import json
import sys
from collections import defaultdict
from pathlib import Path

import numpy

EPSILON = {"float64": 2.0**-53, "float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}
DTYPES = {1: "float64", 2: "float32", 3: "float16", 4: "bfloat16"}
ADAM, SGD = ("Adam", "AdamW", "FusedAdam", "DeepSpeedCPUAdam"), ("SGD",)


class Replay:
    def __init__(self, rank):
        self.rank = rank
        self.document = json.loads(rank.attributes["provenance"]).get(
            "optimizer_steps", {"parameters": [], "steps": []}
        )
        self.moments = defaultdict(dict)  # by chunk and name
        self.masters = {}
        self.ratios = {}  # by iteration, chunk and name: largest |delta - predicted| / bound
        self.unknown = defaultdict(list)  # why -> iteration, chunk and name
        for step in self.document["steps"]:
            for name in self.document["parameters"][step["parameters"]]:
                self._replay(step, step["chunk"], name)

    def steps_of(self, name, iteration=0):
        """The steps of a parameter in an iteration: one, in most cases."""
        return [
            step
            for step in self.document["steps"]
            if step["iteration"] == iteration and name in self.document["parameters"][step["parameters"]]
        ]

    def worst(self):
        return max(self.ratios.values(), default=0.0)

    def _of(self, kind, step, name):
        """In fp64; None where it was not recorded."""
        key = (step["iteration"], -1, step["chunk"], "forward", kind, name)
        values = self.rank.all.get(key)
        if values is None:
            return None
        if DTYPES[self.rank.dtypes[key]] == "bfloat16":
            values = (values.astype(numpy.uint32) << 16).view(numpy.float32)
        return values.astype(numpy.float64)

    def _dtype(self, kind, step, name):
        return DTYPES[self.rank.dtypes[step["iteration"], -1, step["chunk"], "forward", kind, name]]

    def _range(self, kind, step, name):
        mapping = self.rank.mappings[step["iteration"], -1, step["chunk"], "forward", kind, name] or {}
        return mapping.get("fragment", {}).get("range")

    def _parameter(self, step, name):
        """The elements that this rank updates."""
        values, owned = self._of("param", step, name), self._range("param_delta", step, name)
        if owned is None or self._range("param", step, name) == owned:
            return values
        return values.reshape(-1)[owned[0] : owned[1]]

    def _replay(self, step, chunk, name):
        place = (step["iteration"], chunk, name)
        kind = step["optimizer"].rpartition(".")[2]
        delta = self._of("param_delta", step, name)
        if step["calls"] != 1 or delta is None or kind not in ADAM + SGD:
            self.unknown[f"{kind}, {step['calls']} calls, delta {'none' if delta is None else 'recorded'}"].append(
                place
            )
            return
        gradient = self._of("step_grad", step, name)
        if gradient is None:
            gradient = self._of("main_grad", step, name) * step["clip_factor"]
        before = self._of("master", step, name) if step.get("master") else self._parameter(step, name)
        if before is None:
            before = self.masters[chunk, name]
        for state in ("exp_avg", "exp_avg_sq", "max_exp_avg_sq", "momentum_buffer"):
            recorded = self._of(state, step, name)
            if recorded is not None:
                self.moments[chunk, name][state] = recorded
        e = EPSILON[step.get("master") or self._dtype("param", step, name)]
        predicted, rounding = (_adam if kind in ADAM else _sgd)(
            step, gradient, before, self.moments[chunk, name], delta, e
        )
        self.masters[chunk, name] = before + delta
        if delta.size:
            # The delta itself is a difference in fp32.
            half_ulp = e * 2.0 ** numpy.floor(numpy.log2(numpy.maximum(abs(before) + abs(delta), 2.0**-126)))
            # AdamW multiplies by 1 - lr * weight_decay, rounded to the value's dtype, before it adds the update.
            roundings = 3 if step["options"].get("weight_decay") else 1
            bound = half_ulp * roundings + rounding + min(e, 2.0**-24) * abs(delta)
            self.ratios[place] = float((abs(delta - predicted) / bound).max())


def _adam(step, gradient, before, moments, delta, e):
    o = step["options"]
    lr, beta1, beta2, decay = o["lr"], o["beta1"], o["beta2"], o.get("weight_decay", 0)
    gradient = -gradient if o.get("maximize") else gradient
    if not o["decoupled_weight_decay"]:
        gradient = gradient + decay * before
    zero = numpy.zeros_like(gradient)
    if step["step"] > 1:
        assert {"exp_avg", "exp_avg_sq"} <= moments.keys()
    m = moments["exp_avg"] = beta1 * moments.get("exp_avg", zero) + (1 - beta1) * gradient
    v = moments["exp_avg_sq"] = beta2 * moments.get("exp_avg_sq", zero) + (1 - beta2) * gradient**2
    if o.get("amsgrad"):
        v = moments["max_exp_avg_sq"] = numpy.maximum(moments.get("max_exp_avg_sq", zero), v)
    size = moments["sizes"] = beta1 * moments.get("sizes", abs(m)) + (1 - beta1) * abs(gradient)
    corrects = o.get("bias_correction", 1)
    c1, c2 = (1 - beta1 ** step["step"], 1 - beta2 ** step["step"]) if corrects else (1, 1)
    denominator = numpy.sqrt(v / c2) + o["eps"]
    update = lr * m / c1 / denominator
    decayed = lr * decay * before if o["decoupled_weight_decay"] else zero
    return -update - decayed, 8 * e * lr * size / c1 / denominator + 8 * e * (abs(update) + abs(decayed))


def _sgd(step, gradient, before, moments, delta, e):
    o = step["options"]
    gradient = (-gradient if o.get("maximize") else gradient) + o.get("weight_decay", 0) * before
    size = abs(gradient)
    if o.get("momentum"):
        old = moments.get("momentum_buffer")
        buffer = gradient if old is None else o["momentum"] * old + (1 - o["dampening"]) * gradient
        moments["momentum_buffer"] = buffer
        size = moments["sizes"] = o["momentum"] * moments.get("sizes", abs(buffer)) + abs(gradient)
        gradient = gradient + o["momentum"] * buffer if o.get("nesterov") else buffer
        size = size + abs(gradient)
    return -o["lr"] * gradient, 4 * e * o["lr"] * size


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "src" / "python"))
    from rank_file import RankFile

    for path in sorted(Path(sys.argv[1]).glob("rank-*.h5")):
        replay = Replay(RankFile(path))
        by_iteration = defaultdict(float)
        for (iteration, *_), ratio in replay.ratios.items():
            by_iteration[iteration] = max(by_iteration[iteration], ratio)
        text = ", ".join(f"{iteration}: {ratio:.3f}" for iteration, ratio in by_iteration.items())
        unknown = {why: len(places) for why, places in replay.unknown.items()}
        steps = replay.document["steps"]
        classes = {(step["optimizer"].rpartition(".")[2], step.get("master", "")) for step in steps}
        factors = sorted({round(step.get("clip_factor", -1), 6) for step in steps})[:4]
        changed = sum(step.get("changed_after", False) for step in steps)
        step_grads = sum(key[4] == "step_grad" for key in replay.rank.all)
        print(f"{path.name}: {len(replay.ratios)} checked, {text}; {classes}, clip {factors}, "
              f"{step_grads} step_grad, {changed} changed after, unknown {unknown}")  # fmt: skip
        worst = max(replay.ratios, key=replay.ratios.get, default=None)
        if worst and replay.ratios[worst] > 2:
            print("   worst", worst, replay.ratios[worst], sum(r > 2 for r in replay.ratios.values()), "above 2")
