"""Where in the source a trace says that modules are."""

import json
from pathlib import Path

import pytest
from conftest import HERE, python

pytestmark = pytest.mark.usefixtures("warm_programs")

PROGRAM = HERE / "programs" / "sources.py"


def line_of(mark):
    (number,) = [i for i, line in enumerate(PROGRAM.read_text().splitlines(), 1) if line.endswith(f"  # {mark}")]
    return number


@pytest.fixture
def sources(collect, tmp_path):
    """The document, its lines as (file, number), of the program run in the folder of programs."""

    def collect_it(program=PROGRAM, cwd=PROGRAM.parent):
        collected = collect(command=python(program), cwd=cwd)
        assert collected.code == 0, collected
        document = json.loads(collected.rank().attributes["provenance"])["sources"]
        files = document.pop("files")
        document.pop("variables")
        return {key: {name: (files[at], line) for name, (at, line) in lines.items()} for key, lines in document.items()}

    return collect_it


def test_classes_have_the_line_of_their_forward_and_modules_that_of_their_call(sources):
    found = sources(program="sources.py")
    files = {file for lines in found.values() for file, _ in lines.values()}
    (file,) = files
    assert not file.startswith("/") and file.endswith("sources.py")  # from the top of this repository
    assert {name: line for name, (_, line) in found["forwards"].items()} == {
        "__main__.Mlp": line_of("Mlp.forward"),
        "__main__.Model": line_of("Model.forward"),
        # Not those of PyTorch's, nor of two classes that have one name.
    }
    assert {name: line for name, (_, line) in found["calls"].items()} == {
        "(model)": line_of("model"),
        "layers.#": line_of("layers"),
        "layers.#.net": line_of("net"),
        "layers.#.net.#": line_of("net"),  # the nearest line that is not PyTorch's
        "branches.0": line_of("branches.0"),
        "branches.1": line_of("branches.1"),
        "scaled": line_of("head"),
        "shifted": line_of("head"),
        "head": line_of("head"),
    }


def test_models_have_the_variables_by_which_the_program_holds_them(collect, tmp_path):
    program = tmp_path / "train.py"
    program.write_text(
        """
import copy, torch

class Agent:
    def __init__(self):
        self.actor, self.critic = torch.nn.Linear(4, 2), torch.nn.Linear(2, 1)
        self.target = copy.deepcopy(self.critic)

def train(agent):
    optimizer = torch.optim.SGD([*agent.actor.parameters(), *agent.critic.parameters()], 0.1)
    for network in (agent.actor, agent.critic):  # is no name of either
        assert network.training
    with torch.no_grad():
        wanted = agent.target(torch.ones(3, 2))
    (agent.critic(agent.actor(torch.ones(3, 4))) - wanted).sum().backward()
    optimizer.step()
    with torch.no_grad():
        agent.target.weight.lerp_(agent.critic.weight, 0.5)
    return lambda: agent  # f_locals has it behind all others

train(Agent())
"""
    )
    collected = collect(command=python(program))
    assert collected.code == 0, collected
    document = json.loads(collected.rank().attributes["provenance"])["sources"]
    assert document["variables"] == {"": "agent.actor", "model1": "agent.critic", "Linear": "agent.target"}


def test_the_programs_own_files_are_those_that_it_loaded_from_its_project(collect, tmp_path):
    (tmp_path / "train.py").write_text("import package.used\n" + PROGRAM.read_text())
    installed = tmp_path / "site-packages"
    for file in (tmp_path / "package" / "used.py", tmp_path / "package" / "unused.py", installed / "other.py"):
        file.parent.mkdir(exist_ok=True)
        file.write_text("import other\n" if file.name == "used.py" else "")
    collected = collect(command=python("train.py"), cwd=tmp_path, environment={"PYTHONPATH": str(installed)})
    assert collected.code == 0, collected
    provenance = json.loads(collected.rank().attributes["provenance"])
    assert provenance["program_files"] == ["package/used.py", "train.py"]


def test_files_are_named_from_the_directory_where_there_is_no_repository(sources, tmp_path):
    package = tmp_path / "lib" / "site-packages"
    package.mkdir(parents=True)
    (tmp_path / "train.py").write_text(PROGRAM.read_text())
    (package / "other.py").write_text(PROGRAM.read_text())
    of_program = sources("train.py", tmp_path)
    assert of_program["calls"]["head"] == ("train.py", line_of("head"))
    of_package = sources(package / "other.py", tmp_path)  # what is installed is no part of the project
    assert of_package["calls"]["head"] == (str((package / "other.py").resolve()), line_of("head"))
    assert Path(of_package["calls"]["head"][0]).is_absolute()
