"""Makes a manual page: of a command, from its page in this folder and what the program says of its options; of another
page of this folder; of ttrace.

    python3 src/manual/man.py PROGRAM VERSION COMMAND > ttrace-COMMAND.1
    python3 src/manual/man.py PROGRAM VERSION PAGE > ttrace-PAGE.7
    python3 src/manual/man.py PROGRAM VERSION > ttrace.1

`lowdown` (Debian: lowdown) turns Markdown into roff.
"""

import pathlib
import re
import subprocess
import sys

FOLDER = pathlib.Path(__file__).resolve().parent


def run(*command, **options):
    return subprocess.run(command, capture_output=True, text=True, check=True, **options).stdout


def roff(markdown):
    """The body of a manual page. groff 1.23 knows lowdown's font C by its longer name alone."""
    return run("lowdown", "-Tman", "--parse-no-metadata", input=markdown).replace("\\fC", "\\f(CR")


def verbatim(text):
    """Lines that are set as they stand."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-")
    escaped = re.sub(r"^([.'])", r"\\&\1", escaped, flags=re.MULTILINE)
    return f".nf\n{escaped.strip()}\n.fi\n"


def without_links(markdown):
    """Leaves out pictures, and makes links their text: a manual page leads nowhere."""
    return re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", re.sub(r"^!\[.*\n", "", markdown, flags=re.MULTILINE))


def page(name, version, what, usage, description, see):
    """The parts of a manual page, in its usual order; `description` and `see` are Markdown. Without a usage it is of no
    command: of section 7."""
    return "".join(
        [
            f'.TH "{name.upper()}" "{1 if usage else 7}" "" "ttrace {version}" "ttrace"\n',
            f".SH NAME\n{name} \\- {what}\n",
            f".SH SYNOPSIS\n{verbatim(usage)}" if usage else "",
            f".SH DESCRIPTION\n{roff(without_links(description))}" if description else "",
            f".SH SEE ALSO\n{roff(see)}",
        ]
    )


def usage_of(help_text):
    return help_text[help_text.index("Usage:") + len("Usage:") :]


def page_of_program(program, version):
    help_text = run(program, "help")
    listed = help_text.partition("Commands:\n")[2].partition("\n\n")[0]
    names = [line.split()[0] for line in listed.splitlines()]
    commands = [f"**ttrace-{name}**(1)" for name in names if name != "help"]
    others = {path.stem for path in FOLDER.glob("*.md")} - {"README", *names}
    see = ", ".join([*commands, *(f"**ttrace-{name}**(7)" for name in sorted(others))])
    return page("ttrace", version, "differential tester for distributed training", usage_of(help_text), "", see)


def page_of_file(program, version, name):
    title, _, body = (FOLDER / f"{name}.md").read_text().partition("\n")
    title, body = title.removeprefix("# "), body.strip()
    if title != f"ttrace {name}":
        return page(f"ttrace-{name}", version, title, "", body, "**ttrace**(1)")
    what = " ".join(body.partition("\n\n")[0].split()).partition(": ")[0].rstrip(".")
    usage = usage_of(run(program, "help", name))
    return page(f"ttrace-{name}", version, f"{what[0].lower()}{what[1:]}", usage, body, "**ttrace**(1)")


if __name__ == "__main__":
    make = page_of_file if len(sys.argv) > 3 else page_of_program
    print(make(*sys.argv[1:4]), end="")
