"""`tools/evaluate --check`: which sections are older than the code that they measure."""

from evaluations import freshness, page

PAGE = """# Title

## One

text
Measured at commit 0123456789: here.

## Two

### Two: a part

text

### Other part

## Twofold

end""".splitlines()


def test_a_section_ends_where_the_next_of_its_level_begins():
    def of(title):
        begin, end = freshness.lines_of(PAGE, title)
        return PAGE[begin:end]

    assert of("One")[0] == "## One" and of("One")[-2].startswith("Measured")
    assert of("Two")[0] == "## Two" and of("Two")[-1] == "end"  # all titles that begin so
    assert of("Twofold") == ["## Twofold", "", "end"]
    assert of("") == PAGE
    assert of("Three") == []


def test_every_section_of_the_page_is_known_and_measures_paths_that_exist():
    titles = {module.TITLE for module in page.SECTIONS.values()}
    assert set(freshness.MEASURED["tools/evaluations/RESULTS.md"]) == titles
    for page_path, sections in freshness.MEASURED.items():
        lines = (freshness.ROOT / page_path).read_text().splitlines()
        for title, paths in sections.items():
            begin, end = freshness.lines_of(lines, title)
            assert begin < end, f"{page_path} has no section {title}"
            assert all((freshness.ROOT / path).exists() for path in paths), paths


def test_a_section_is_older_when_a_later_commit_touched_what_it_measures():
    section = freshness.Section("page", "One", "0123456789", True, [])
    assert str(section).startswith("up to date  page: One: measured at 0123456789")
    section.changed = ["abc Change", "def Change"]
    assert str(section).startswith("older ") and str(section).endswith("2 later commits, the last: abc Change")
    section.commit = None
    assert "not committed" in str(section)
