"""What a trace says of how modules are configured, and of what surrounds the run."""

import json

import pytest
from conftest import HERE, python

pytestmark = pytest.mark.usefixtures("warm_programs")

PROGRAM = HERE / "programs" / "configurations.py"


def facts_of(collected):
    assert collected.code == 0, collected
    return json.loads(collected.rank().attributes["provenance"])


def test_modules_are_recorded_with_the_plain_attributes_that_their_constructors_left(collect):
    document = facts_of(collect(command=python(PROGRAM)))["configurations"]
    (modules,) = document["modules"]
    first, second = (document["values"][modules[f"layers.{layer}"]] for layer in range(2))
    assert first["class"] == second["class"] == "__main__.Layer"
    assert first["objects"] == second["objects"] == {"config": 0}
    assert document["objects"] == [{"rope_theta": "10000.0", "activation": "'silu'"}]
    assert first["attributes"] == {
        "training": "True",
        "scale": "0.5",
        "window": "(2, 3)",
        "cap": "None",
        "activation": "gelu()",
    }
    assert second["attributes"] == {**first["attributes"], "scale": "0.25"}
    assert document["values"][modules["layers.#.norm"]]["attributes"]["eps"] == "1e-06"
    assert document["values"][modules["CrossEntropyLoss"]]["attributes"]["label_smoothing"] == "0.1"


TAUGHT = """
import torch
from torch import nn
student, teacher = nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5))
optimizer = torch.optim.SGD(student.parameters(), 0.1)
with torch.no_grad():
    student(torch.randn(2, 4))
    wanted = teacher(torch.randn(2, 4))
(student(torch.randn(2, 4)) - wanted).square().mean().backward()
optimizer.step()
"""


def test_a_model_that_is_called_without_gradients_alone_is_described_beside_those_that_train(collect, tmp_path):
    program = tmp_path / "taught.py"
    program.write_text(TAUGHT)
    document = facts_of(collect(command=python(program)))["configurations"]
    values = {name: document["values"][place]["attributes"] for name, place in document["without_grad"].items()}
    assert set(values) == {"Sequential", "Sequential.0", "Sequential.1"}
    assert values["Sequential.1"]["p"] == "0.5" and values["Sequential.1"]["training"] == "True"


def test_neither_secrets_nor_places_are_recorded(collect):
    text = json.dumps(facts_of(collect(command=python(PROGRAM)))["configurations"])
    assert not any(secret in text for secret in ("hf_secret", "/home/", "0x"))


def test_what_surrounds_the_run_is_recorded(collect):
    environment = {"NVTE_FLASH_ATTN": "0", "HF_TOKEN": "hf_secret"}
    surroundings = facts_of(collect(command=python(PROGRAM), environment=environment))["surroundings"]
    assert surroundings["seed of torch"] == "7"
    assert surroundings["float32 matmul precision"] == "highest"
    assert surroundings["NVTE_FLASH_ATTN"] == "0"
    assert "HF_TOKEN" not in surroundings
