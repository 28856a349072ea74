"""SARIF for code scanning, against the schema of OASIS, which a package of npm has (tests/page/sarif)."""

import json
import pathlib
from dataclasses import replace

import jsonschema
import pytest
from forged import training_run

from models import CHECK, SOURCES, WRONG_LAYER, record_candidate, record_reference, wrong_half

SCHEMA = pathlib.Path(__file__).parent / "sarif/node_modules/@microsoft/jest-sarif/lib/schemas/sarif-2.1.0-rtm.5.json"


@pytest.fixture(scope="module")
def validator():
    schema = json.loads(SCHEMA.read_text())
    return jsonschema.validators.validator_for(schema)(schema)


@pytest.fixture
def sarif(ttrace, validator):
    """The one run of the document that `--sarif` writes of a candidate."""
    record_reference(ttrace)

    def make(tensors, code, **facts):
        record_candidate(ttrace, tensors, **facts)
        ttrace(*CHECK, "--sarif", "r.sarif", code=code)
        document = json.loads((ttrace.directory / "r.sarif").read_text())
        validator.validate(document)
        (run,) = document["runs"]
        return run

    return make


def with_class(tensors):
    return [replace(tensor, module_class="model.Mlp") if tensor.kind == "output" else tensor for tensor in tensors]


def test_a_root_cause_is_a_result_at_its_line(sarif):
    run = sarif(with_class(wrong_half()), 1, sources=SOURCES)
    (result,) = run["results"]
    assert result["level"] == "error" and run["tool"]["driver"]["rules"] == [{"id": result["ruleId"]}]
    assert result["message"]["text"].startswith(f"candidate: layers.{WRONG_LAYER}.mlp, output, micro-batch 0: ")
    (location,) = result["locations"]
    assert location["physicalLocation"] == {
        "artifactLocation": {"uri": "src/odd%20name%25.py", "uriBaseId": "%SRCROOT%"},
        "region": {"startLine": 106},
    }
    assert location["logicalLocations"] == [{"fullyQualifiedName": f"layers.{WRONG_LAYER}.mlp", "kind": "module"}]


def test_a_file_of_a_library_is_named_by_its_whole_path(sarif):
    (location,) = sarif(wrong_half(), 1, sources=SOURCES)["results"][0]["locations"]
    assert location["physicalLocation"]["artifactLocation"] == {"uri": "file:///usr/lib/library.py"}


def test_without_lines_a_result_names_the_module_alone(sarif):
    (location,) = sarif(wrong_half(), 1)["results"][0]["locations"]
    assert list(location) == ["logicalLocations"]


def test_the_same_is_no_result(sarif):
    run = sarif(training_run(4), 0)
    assert run["results"] == [] and run["invocations"][0]["executionSuccessful"]
