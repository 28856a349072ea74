"""Who may include whom. The stages are a pipeline, and a stage knows only what comes before it."""

import functools
import graphlib
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]

# A folder may include its own headers, those of the folders named here, and whatever those may include. `base` has the
# value types. include/ttrace has what is installed: ttrace.h, which libttrace implements (capi).
ALLOWED = {
    "numeric": set(),
    "base": {"numeric"},
    "sketch": {"numeric"},
    "text": {"base"},
    "host": {"text"},
    "identify": {"base"},
    "align": {"identify"},
    "merge": {"base"},
    "compare": {"merge", "sketch"},
    "correspond": {"align", "merge"},
    "tolerance": {"compare"},
    "judge": {"align", "tolerance"},
    "step": {"judge"},
    "diagnose": {"judge"},
    "advice": {"diagnose", "host"},
    "annotate": {"correspond", "judge", "text"},
    "abft": {"numeric"},
    "selfcheck": {"abft", "step"},
    "sdc": {"diagnose", "text"},
    "history": {"base"},
    "report": {"text"},
    "page": {"history", "report", "sdc"},
    "format": {"base"},
    "files": {"correspond", "format", "text", "tolerance"},
    "team": {"host"},
    "load": {"files", "team"},
    "distribute": {"load", "step"},
    "record": {"format", "sketch"},
    "capi": {"load", "record"},
    "inspect": {"annotate", "load"},
    "workflow": {"advice", "distribute", "page", "record"},
    "cli": {"inspect", "selfcheck", "workflow"},
    "bindings": {"inspect", "workflow"},
}

# Third-party headers, and the only folders that may know them.
LIBRARIES = {
    r"archive(_entry)?\.h": {"inspect"},
    r"hdf5\.h|H5.*\.h": {"record"},
    r"yaml-cpp/.*": {"files"},
    r"nlohmann/.*": {"format", "report", "page", "sdc", "inspect", "workflow", "cli"},
    r"pugixml\.hpp": {"report"},
    r"hwy/.*": {"compare", "abft", "numeric", "sketch"},  # numeric: dtypes for kernels
    r"sqlite3\.h": {"history"},
    r"zlib\.h": {"page"},
    r"omp\.h": {"base"},
    r"CLI/.*": {"cli"},
    r"mpi\.h": {"team"},
    r"nanobind/.*": {"bindings"},
    r"spdlog/.*": {"cli", "host", "workflow"},
    r"xxh_x86dispatch\.h|xxhash\.h": {"numeric"},
}


def folder_of(path: pathlib.Path) -> str:
    return path.relative_to(ROOT / "src").parts[0]


def folder_of_include(name: str) -> str | None:
    folder, _, rest = name.partition("/")
    return folder if rest and folder in ALLOWED else None


def sources() -> list[pathlib.Path]:
    return sorted(path for path in (ROOT / "src").rglob("*") if path.suffix in {".h", ".cpp"})


def includes():
    for path in sources():
        for number, line in enumerate(path.read_text().splitlines(), 1):
            match = re.match(r'\s*#\s*include\s*[<"]([^>"]+)[>"]', line)
            if match:
                yield path, number, match.group(1)


@functools.cache
def arrows() -> dict[tuple[str, str], str]:
    """From folder to folder, with one of the includes that say so."""
    found = {}
    for path, number, name in includes():
        source, target = folder_of(path), folder_of_include(name)
        if target not in (None, source):
            found[source, target] = f"{path.relative_to(ROOT)}:{number}: {source} includes {name}"
    assert len(found) > 50, "the scan found hardly any include: it looks in the wrong place"
    return found


def reachable(folder: str) -> set[str]:
    return {further for target in ALLOWED[folder] for further in {target, *reachable(target)}}


def test_every_folder_has_its_place():
    assert {folder_of(path) for path in sources()} == set(ALLOWED)


def test_include_has_what_is_installed():
    assert [path.name for path in (ROOT / "include/ttrace").iterdir()] == ["ttrace.h"]
    assert {str(path.relative_to(ROOT)) for path, _, name in includes() if name == "ttrace/ttrace.h"} == {
        "src/capi/c_api.cpp"
    }


def test_no_arrow_runs_backwards():
    # Whatever the table says: the includes themselves leave an order in which each folder knows only earlier ones.
    sorter = graphlib.TopologicalSorter()
    for source, target in arrows():
        sorter.add(source, target)
    assert set(sorter.static_order()) <= set(ALLOWED)  # raises CycleError with the folders of a cycle


def test_a_folder_includes_only_what_comes_before_it():
    wrong = [where for (source, target), where in arrows().items() if target not in reachable(source)]
    assert not wrong, "\n".join(wrong)


def test_the_table_says_nothing_without_need():
    entries = [(source, target) for source, targets in ALLOWED.items() for target in targets]
    unused = set(entries) - arrows().keys()
    assert not unused, f"no include needs these: {unused}"
    implied = [(s, t) for s, t in entries if any(t in reachable(other) for other in ALLOWED[s] - {t})]
    assert not implied, f"these follow from the others: {implied}"


def test_a_source_includes_its_own_header_first():
    # Then the header compiles alone wherever the source does.
    wrong = []
    for path in sources():
        own = str(path.with_suffix(".h").relative_to(ROOT / "src"))
        if path.suffix == ".cpp" and path.with_suffix(".h").exists():
            first = next(re.finditer(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', path.read_text(), re.MULTILINE)).group(1)
            if first != own:
                wrong.append(f"{path.relative_to(ROOT)}: {first} comes before {own}")
    assert not wrong, "\n".join(wrong)


def test_values_stay_apart_from_what_renders_them_and_reading_from_writing():
    for stage in ("judge", "diagnose", "selfcheck", "history", "sdc"):
        assert "report" not in reachable(stage), stage
    assert "record" not in reachable("load") and "load" not in reachable("record")


def test_a_file_of_the_command_line_registers_one_command():
    folder = ROOT / "src/cli"
    commands = re.findall(r"^void add_(\w+)\(CLI::App& app,", (folder / "commands.h").read_text(), re.MULTILINE)
    assert len(commands) > 5, "the scan found hardly any command"
    files = {path.name for path in folder.iterdir()}
    shared = {"main.cpp", "commands.h", "commands.cpp", "misuse.h", "misuse.cpp"}
    assert files == {*shared, *(f"{command}.cpp" for command in commands)}
    for command in commands:
        text = (folder / f"{command}.cpp").read_text()
        assert re.findall(r"^void add_(\w+)\(CLI::App& app,", text, re.MULTILINE) == [command]
        assert text.count("add_subcommand(") == 1, command


def test_third_party_libraries_stay_in_their_folders():
    seen = {pattern: set() for pattern in LIBRARIES}
    wrong = []
    for path, number, name in includes():
        for pattern, folders in LIBRARIES.items():
            if re.fullmatch(pattern, name):
                seen[pattern].add(folder_of(path))
                if folder_of(path) not in folders:
                    wrong.append(f"{path.relative_to(ROOT)}:{number}: {name} belongs in {sorted(folders)}")
    assert not wrong, "\n".join(wrong)
    assert seen == LIBRARIES


def test_only_one_file_takes_the_names_of_tensors_apart():
    # A pattern is no name, but says with the same characters which parts of a name it speaks of.
    homes = {"src/base/tensor_name.cpp", "src/identify/pattern.cpp"}
    of_other_texts = {"cli", "inspect", "host", "text", "workflow"}  # help, slices, paths
    cut = re.compile(r"""find(_first_of|_last_of)?\(\s*('[.:#]'|"[.:#]+")""")
    found = {
        str(path.relative_to(ROOT))
        for path in sources()
        if folder_of(path) not in of_other_texts and cut.search(path.read_text())
    }
    assert found == homes


def test_a_type_is_defined_in_one_header():
    # Two of one name in the namespace are one to the linker, which takes the functions of either.
    places = {}
    for path in ROOT.glob("src/**/*.h"):
        text = re.sub(r"^namespace \{.*?^\}  // namespace$", "", path.read_text(), flags=re.DOTALL | re.MULTILINE)
        namespace = re.search(r"^namespace (\S+) \{", text, re.MULTILINE)
        for name in re.findall(r"^(?:struct|class|enum class) (\w+)[^;()]*\{", text, re.MULTILINE):
            places.setdefault((namespace and namespace.group(1), name), set()).add(str(path.relative_to(ROOT)))
    assert len(places) > 100, "the scan found hardly any type"
    twice = {name: found for name, found in places.items() if len(found) > 1}
    assert not twice, twice
