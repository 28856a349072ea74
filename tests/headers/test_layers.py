"""Who may include whom. The stages are a pipeline, and a stage knows only what comes before it."""

import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]

# A folder may include its own headers and these. `base` stands for the value types directly under
# include/ttrace/ (trace.h, tensor_name.h, finding.h, annotation.h, mesh.h, waiver.h, error.h); src/trace/ has the
# functions of the first two.
ALLOWED = {
    "base": {"numeric"},
    "trace": {"base"},
    "numeric": {"base"},
    "align": {"base", "numeric"},
    "merge": {"base", "numeric", "align"},
    "compare": {"base", "numeric", "align", "merge"},
    "rewrite": {"base", "numeric", "align", "merge"},
    "tolerance": {"base", "numeric", "align", "compare", "rewrite"},
    "judge": {"base", "numeric", "align", "compare", "tolerance", "report"},
    "history": {"base", "numeric", "report"},
    "diagnose": {"base", "numeric", "align", "merge", "compare", "judge", "report", "tolerance"},
    "sdc": {"base", "numeric", "diagnose", "report"},  # diagnose: data flow; report: CSV
    "annotate": {"base", "numeric", "align", "compare", "judge"},  # judge: whose counterpart a tensor is
    "report": {"base", "numeric"},
    "plan": {"base"},
    "abft": {"base", "numeric"},
    "format": {"base", "numeric"},
    "load": {"base", "numeric", "align", "tolerance", "plan", "format"},
    "record": {"base", "numeric", "format"},
    "capi": {"base", "numeric", "align", "load", "record"},  # load: annotations, to perturb the right shard
    "selfcheck": {"base", "numeric", "align", "merge", "compare", "judge", "report", "abft", "diagnose"},
    "process": {"base"},
    "terminal": {"base", "report"},
    "inspect": {"base", "numeric", "compare", "load", "terminal"},
    "workflow": {
        *("base", "numeric", "align", "compare", "tolerance", "judge", "diagnose", "annotate", "history", "report"),
        *("plan", "load", "record", "rewrite", "process", "terminal"),
    },
    "cli": {
        *("base", "align", "tolerance", "judge", "annotate", "history", "report", "plan", "sdc", "load", "abft"),
        *("selfcheck", "inspect", "process", "terminal", "workflow"),
    },
}

# Third-party headers, and the only folders that may know them.
LIBRARIES = {
    r"hdf5\.h|H5.*\.h": {"record"},
    r"yaml-cpp/.*": {"load"},
    r"nlohmann/.*": {"format", "report", "sdc", "inspect", "workflow", "cli"},
    r"pugixml\.hpp": {"report"},
    r"hwy/.*": {"compare", "abft", "numeric"},  # numeric: dtypes for kernels
    r"sqlite3\.h": {"history"},
    r"omp\.h": {"compare", "sdc"},
    r"CLI/.*": {"cli"},
    r"spdlog/.*": {"cli", "workflow"},
    r"xxhash\.h": {"numeric", "format", "record", "load", "workflow"},
}


def folder_of(path: pathlib.Path) -> str:
    parts = path.relative_to(ROOT).parts
    inside = parts[2:] if parts[0] == "include" else parts[1:]
    return inside[0] if len(inside) > 1 else "base"


def folder_of_include(name: str) -> str | None:
    parts = name.split("/")
    if parts[0] == "ttrace":
        return parts[1] if len(parts) > 2 else "base"
    return parts[0] if parts[0] in ALLOWED and len(parts) > 1 else None


def includes():
    for top in ("include/ttrace", "src"):
        for path in sorted((ROOT / top).rglob("*")):
            if path.suffix in {".h", ".cpp"}:
                for number, line in enumerate(path.read_text().splitlines(), 1):
                    match = re.match(r'\s*#\s*include\s*[<"]([^>"]+)[>"]', line)
                    if match:
                        yield path, number, match.group(1)


def test_a_stage_includes_only_what_comes_before_it():
    seen = 0
    wrong = []
    for path, number, name in includes():
        source, target = folder_of(path), folder_of_include(name)
        if target is None or target == source:
            continue
        seen += 1
        if target not in ALLOWED[source]:
            wrong.append(f"{path.relative_to(ROOT)}:{number}: {source} includes {name} ({target})")
    assert seen > 50, "the scan found hardly any include: it looks in the wrong place"
    assert not wrong, "\n".join(wrong)


def test_third_party_libraries_stay_in_their_folders():
    seen = set()
    wrong = []
    for path, number, name in includes():
        for pattern, folders in LIBRARIES.items():
            if re.fullmatch(pattern, name):
                seen.add(pattern)
                if folder_of(path) not in folders:
                    wrong.append(f"{path.relative_to(ROOT)}:{number}: {name} belongs in {sorted(folders)}")
    assert seen == set(LIBRARIES), f"never included: {set(LIBRARIES) - seen}"
    assert not wrong, "\n".join(wrong)


def test_only_one_file_takes_the_names_of_tensors_apart():
    # A pattern is no name, but says with the same characters which parts of a name it speaks of.
    homes = {"src/trace/tensor_name.cpp", "src/align/pattern.cpp"}
    of_other_texts = {"cli", "plan", "process", "terminal", "workflow"}  # help, commands, paths
    cut = re.compile(r"""find(_first_of|_last_of)?\(\s*('[.:#]'|"[.:#]+")""")
    found = {
        str(path.relative_to(ROOT))
        for top in ("include", "src")
        for path in (ROOT / top).rglob("*")
        if path.suffix in {".h", ".cpp"} and folder_of(path) not in of_other_texts and cut.search(path.read_text())
    }
    assert found == homes


def test_a_type_is_defined_in_one_header():
    # Two of one name in the namespace are one to the linker, which takes the functions of either.
    places = {}
    for path in [*ROOT.glob("include/ttrace/**/*.h"), *ROOT.glob("src/**/*.h")]:
        text = re.sub(r"^namespace \{.*?^\}  // namespace$", "", path.read_text(), flags=re.DOTALL | re.MULTILINE)
        namespace = re.search(r"^namespace (\S+) \{", text, re.MULTILINE)
        for name in re.findall(r"^(?:struct|class|enum class) (\w+)[^;()]*\{", text, re.MULTILINE):
            places.setdefault((namespace and namespace.group(1), name), set()).add(str(path.relative_to(ROOT)))
    assert len(places) > 100, "the scan found hardly any type"
    twice = {name: found for name, found in places.items() if len(found) > 1}
    assert not twice, twice
