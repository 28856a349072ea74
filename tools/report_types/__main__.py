"""Writes what is made of the report's one description (src/report/members.h) and its tables of words: the JSON schema,
the types of the page and of the Python package, and the manual's tables; and of the table of options
(src/workflow/options.h): the types of the keywords of the package's `check`.

    ninja -C build report_schema && python3 tools/report_types

A test holds these files equal to what is made (tests/page/test_schemas.py)."""

import json
import os
import pathlib
import re
import subprocess
import textwrap

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("TTRACE_BUILD", ROOT / "build"))
WIDTH = 120
MADE = "made by tools/report_types"

# A root's diagnosis stands in `roots`, so that the first wrong finding is a Finding in Python.
AS_PYTHON = {"FirstWrong": "Finding"}
# `pass` is a word of Python's.
PYTHON_NAMES = {("Counts", "pass"): "passed"} | {(name, "pass"): "pass_" for name in ("Finding", "Question", "Root")}


def types_of(schema: dict) -> list[dict]:
    """The types that a value may have."""
    if "anyOf" in schema:
        return schema["anyOf"]
    if isinstance(schema.get("type"), list):
        return [{**schema, "type": each} for each in schema["type"]]
    return [schema]


def objects_of(schema: dict) -> dict[str, dict]:
    """The definitions of objects by name, each after those that it uses; the report is the last."""
    objects = {name: definition for name, definition in schema["$defs"].items() if "oneOf" not in definition}
    return {**objects, "Report": schema}


def words_of(schema: dict) -> dict[str, list[dict]]:
    return {name: definition["oneOf"] for name, definition in schema["$defs"].items() if "oneOf" in definition}


def with_meaning(code: str, schema: dict, mark: str) -> str:
    """A line of code with its meaning behind it as a comment, or above it where that is too long."""
    indent = code[: len(code) - len(code.lstrip())]
    meaning = schema.get("description", "")
    if len(behind := f"{code}{mark} {meaning}") <= WIDTH:
        return behind if meaning else code
    above = indent + mark.lstrip() + " "
    return "\n".join([*textwrap.wrap(meaning, WIDTH, initial_indent=above, subsequent_indent=above), code])


def typescript_of(schema: dict) -> str:
    def name_of(one: dict) -> str:
        if "$ref" in one:
            return one["$ref"].rpartition("/")[2]
        if "const" in one:
            return json.dumps(one["const"])
        if one["type"] == "array":
            items = typescript_of(one["items"])
            return f"({items})[]" if " | " in items else f"{items}[]"
        if one["type"] == "object":
            return f"Record<string, {typescript_of(one['additionalProperties'])}>"
        return {"integer": "number"}.get(one["type"], one["type"])

    return " | ".join(name_of(one) for one in types_of(schema))


def typescript(schema: dict) -> str:
    lines = [f"// The report's JSON: {MADE}, not to be edited."]
    for name, words in words_of(schema).items():
        lines.append(f"\nexport type {name} =")
        lines += [with_meaning(f"  | {json.dumps(word['const'])}", word, " //") for word in words]
    for name, definition in objects_of(schema).items():
        lines.append(f"\n// {definition['description']}\nexport interface {name} {{")
        for member, of_member in definition["properties"].items():
            absent = "" if member in definition["required"] else "?"
            lines.append(with_meaning(f"  {member}{absent}: {typescript_of(of_member)};", of_member, " //"))
        lines.append("}")
    return "\n".join(lines) + "\n"


def python_of(schema: dict) -> str:
    def name_of(one: dict) -> str:
        if "$ref" in one:
            name = one["$ref"].rpartition("/")[2]
            return AS_PYTHON.get(name, name)
        if one["type"] == "array":
            return f"tuple[{python_of(one['items'])}, ...]"
        if one["type"] == "object":
            return f"Mapping[str, {python_of(one['additionalProperties'])}]"
        return {"integer": "int", "number": "float", "string": "str", "boolean": "bool", "null": "None"}[one["type"]]

    return " | ".join(name_of(one) for one in types_of(schema))


def python(schema: dict) -> str:
    lines = [
        f'"""The values of a report\'s JSON: {MADE}, not to be edited."""\n',
        "from collections.abc import Mapping\nfrom dataclasses import dataclass\nfrom typing import Literal",
    ]
    for name, words in words_of(schema).items():
        lines.append(f"\n{name} = Literal[")
        lines += [with_meaning(f"    {json.dumps(word['const'])},", word, "  #") for word in words]
        lines.append("]")
    for name, definition in objects_of(schema).items():
        if name in AS_PYTHON:
            continue
        lines.append(f'\n\n@dataclass(frozen=True)\nclass {name}:\n    """{definition["description"]}"""\n')
        members = [(member, of) for member, of in definition["properties"].items() if "const" not in of]
        for member, of_member in sorted(members, key=lambda item: item[0] not in definition["required"]):
            known_as = PYTHON_NAMES.get((name, member), member)
            of_value = python_of(of_member)
            if member not in definition["required"]:
                of_value = f"{of_value.removesuffix(' | None')} | None = None"
            lines.append(with_meaning(f"    {known_as}: {of_value}", of_member, "  #"))
    return "\n".join(lines) + "\n"


def python_options(keywords: list[dict[str, str]]) -> str:
    lines = [
        f'"""The keywords of `check`: {MADE}, not to be edited."""\n',
        "import os\nfrom collections.abc import Sequence\nfrom typing import TypedDict\n\n",
        'class CheckOptions(TypedDict, total=False):\n    """The options of `ttrace check` by their keywords."""\n',
    ]
    pictures = {"keyword": "pictures", "type": "bool", "help": "Draw the tensors that `Report.to_html` shows"}
    for one in [*keywords, pictures]:
        of_value = f'"{one["type"]}"' if " | " in one["type"] else one["type"]
        lines.append(with_meaning(f"    {one['keyword']}: {of_value}", {"description": one["help"]}, "  #"))
    return "\n".join(lines) + "\n"


def words_for_people(schema: dict) -> str:
    def name_of(one: dict) -> str:
        if "$ref" in one:
            return one["$ref"].rpartition("/")[2]
        if "const" in one:
            return json.dumps(one["const"])
        if one["type"] == "array":
            return f"list of {words_for_people(one['items'])}"
        if one["type"] == "object":
            key = one["propertyNames"]["$ref"].rpartition("/")[2] if "propertyNames" in one else "text"
            return f"{words_for_people(one['additionalProperties'])} by {key}"
        return {"string": "text", "boolean": "bool"}.get(one["type"], one["type"])

    return " or ".join(name_of(one) for one in types_of(schema))


def table(head: list[str], rows: list[list[str]]) -> str:
    """A table of Markdown; its last column is as wide as each text."""
    rows = [head, *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(head) - 1)]
    rows.insert(1, [*("-" * width for width in widths), "---"])

    def line(row: list[str]) -> str:
        padded = [cell.ljust(width) for cell, width in zip(row, widths, strict=False)]
        return f"| {' | '.join([*padded, row[-1]])} |"

    return "\n".join(line(row) for row in rows)


def tables_of_members(schema: dict) -> str:
    parts = []
    for name, definition in reversed(objects_of(schema).items()):
        rows = [
            [f"`{member}`", words_for_people(of), of.get("description", "")]
            for member, of in definition["properties"].items()
        ]
        parts.append(f"**{name}**: {definition['description']}\n\n{table(['member', 'type', 'what it is'], rows)}")
    return "\n\n".join(parts)


def tables_of_words(schema: dict) -> str:
    heads = {"Cause": "the candidate's tensor"}
    return "\n\n".join(
        table([name, heads.get(name, "what it means")], [[f"`{word['const']}`", word["description"]] for word in words])
        for name, words in words_of(schema).items()
    )


def with_parts(page: str, parts: dict[str, str]) -> str:
    """The page with what stands between the marks of each part replaced."""
    for name, text in parts.items():
        begin, end = f"<!-- {name}: {MADE} -->", f"<!-- end of {name} -->"
        assert begin in page and end in page, name
        page = re.sub(f"{begin}.*{end}", lambda _, made=f"{begin}\n\n{text}\n\n{end}": made, page, flags=re.DOTALL)
    return page


def files() -> dict[pathlib.Path, str]:
    """What is made, by the file that it is written to."""
    printed = subprocess.run([BUILD / "tests/report_schema"], check=True, capture_output=True, text=True).stdout
    described = json.loads(printed)
    schema = described["schema"]
    manual = ROOT / "src/manual/report.md"
    parts = {"members": tables_of_members(schema), "words": tables_of_words(schema)}
    return {
        ROOT / "src/report/schemas/ttrace-report-5.json": json.dumps(schema, indent=2, ensure_ascii=False) + "\n",
        ROOT / "src/page/web/report.ts": typescript(schema),
        ROOT / "src/python/ttrace/report_types.py": python(schema),
        ROOT / "src/python/ttrace/check_options.py": python_options(described["keywords_of_check"]),
        manual: with_parts(manual.read_text(), parts),
    }


if __name__ == "__main__":
    for path, text in files().items():
        path.write_text(text)
