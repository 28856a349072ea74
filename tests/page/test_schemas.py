"""Reports in JSON, against the schemas that come with ttrace (src/report/schemas)."""

import json
import pathlib
import runpy

import jsonschema
import pytest
from forged import change, training_run
from referencing import Registry, Resource

from models import CHECK, record_candidate, record_reference, wrong_half

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCHEMAS = {path.name: json.loads(path.read_text()) for path in (ROOT / "src/report/schemas").glob("*.json")}
REGISTRY = Registry().with_resources((name, Resource.from_contents(schema)) for name, schema in SCHEMAS.items())


def validate(document, schema):
    jsonschema.Draft202012Validator(SCHEMAS[schema], registry=REGISTRY).validate(document)


def test_the_schemas_are_schemas():
    for schema in SCHEMAS.values():
        jsonschema.Draft202012Validator.check_schema(schema)
    assert set(SCHEMAS) == {"ttrace-report-5.json", "ttrace-run-4.json"}


def test_what_is_made_of_the_descriptions_of_the_report_and_of_options_is_up_to_date():
    made = runpy.run_path(str(ROOT / "tools/report_types/__main__.py"))["files"]()
    assert len(made) == 5
    for path, text in made.items():
        assert path.read_text() == text, f"{path}: run tools/report_types"


CANDIDATES = {
    "same": (training_run(), 0),
    "a wrong half": (wrong_half(), 1),
    "a missing tensor": (training_run()[:-1], 1),
    "not finite": (change(training_run(), lambda values: values * float("nan"), name="layers.0.mlp"), 1),
}


@pytest.mark.parametrize("name", CANDIDATES)
def test_a_report_is_what_its_schema_says(ttrace, name):
    tensors, code = CANDIDATES[name]
    record_reference(ttrace)
    record_candidate(ttrace, tensors)
    ttrace(*CHECK, "--json", "r.json", code=code)
    report = json.loads((ttrace.directory / "r.json").read_text())
    validate(report, "ttrace-report-5.json")
    with pytest.raises(jsonschema.ValidationError):
        validate({**report, "verdict": "maybe"}, "ttrace-report-5.json")
    assert report["first_wrong"] == report["root_cause"]


def test_the_report_of_a_run_holds_the_reports_of_its_candidates(ttrace):
    record_reference(ttrace)
    record_candidate(ttrace, wrong_half())
    ttrace(*CHECK, "--json", "r.json", code=1)
    report = json.loads((ttrace.directory / "r.json").read_text())
    candidate = {"name": "tp2", "command": "train", "verdict": "different", "problem": None, "waived": []}
    run = {"schema": "ttrace-run/4", "verdict": "different", "sentence": "tp2: ...", "problem": None, "notes": []}
    validate({**run, "candidates": [{**candidate, "report": report}]}, "ttrace-run-4.json")
    validate(json.loads(failed_run(ttrace)), "ttrace-run-4.json")


def failed_run(ttrace):
    """Of a file whose reference can't be made."""
    (ttrace.directory / "ttrace.yaml").write_text(
        "reference: {command: 'false', inputs: [ttrace.yaml]}\n"
        "candidates: [{name: a, command: 'false', inputs: [ttrace.yaml]}]\n"
    )
    ttrace("run", "--json", "run.json", code=2)
    return (ttrace.directory / "run.json").read_text()
