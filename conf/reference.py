"""Writes the pages of docs/reference from the tables in the code: options, differences, metrics, checks, errors and exit codes.

python conf/reference.py            writes the pages
python conf/reference.py --check    writes nothing; names the pages that are stale, and exits with 1 if there are any
"""

from __future__ import annotations

import argparse
import inspect
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

sys.path.insert(
    0, str(Path(__file__).resolve().parents[1])
)  # these are the pages of this tree, whichever version is installed

from storage_consumer.cli.endings import ENDINGS, ExitCode, code_of
from storage_consumer.cli.verbs import RUN, VERBS
from storage_consumer.config.options import (
    ENVIRONMENT_PREFIX,
    GROUPS,
    OPTIONS,
    OWN_TABLE,
    PRECEDENCE,
    Option,
)
from storage_consumer.errors import Abandoned, StorageConsumerError
from storage_consumer.operating.checks import CHECKS, group_of
from storage_consumer.operating.checks import GROUPS as CHECK_GROUPS
from storage_consumer.target.ddl.catalogue import DIFFERENCES
from storage_consumer.watch.collector import METRICS, PREFIX

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "reference"
_CODE_SPAN = re.compile(r"(`[^`]*`)")
_SPECIAL = re.compile(r"([*<])")
_OFTEN = 2
"""A remedy of more rows than this stands above the table."""
_ABANDONED = "0 after one signal, 1 after two"


def main(arguments_given: Sequence[str] | None = None) -> int:
    """Write or check the pages; return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--check", action="store_true", help="write nothing, and exit with 1 if a page is stale"
    )
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where the pages are")
    asked = parser.parse_args(arguments_given)
    stale = {name: text for name, text in pages() if not _holds(asked.folder / name, text)}
    for name, text in stale.items():
        if not asked.check:
            asked.folder.mkdir(parents=True, exist_ok=True)
            (asked.folder / name).write_text(text, encoding="utf-8")
        print(
            f"{asked.folder / name}: {'stale; run python conf/reference.py' if asked.check else 'written'}"
        )
    return int(asked.check and bool(stale))


def pages() -> Iterator[tuple[str, str]]:
    """Yield the name and the text of each page."""
    makers: tuple[tuple[str, Callable[[], Iterator[str]]], ...] = (
        ("options.md", options),
        ("differences.md", differences),
        ("errors.md", errors_and_codes),
        ("metrics.md", metrics),
        ("checks.md", checks),
    )
    for name, maker in makers:
        yield name, "\n\n".join(maker()) + "\n"


def options() -> Iterator[str]:
    """Yield the blocks of the page about options."""
    yield _title("Options", "storage_consumer/config/options.py")
    yield (
        f"`--flush-interval` is also the keyword `flush_interval` of `storage_consumer.Consumer`, the environment variable "
        f"`{ENVIRONMENT_PREFIX}FLUSH_INTERVAL`, and the key `flush-interval` of `[{OWN_TABLE}]` in the TOML file; so is every "
        f"option, unless its entry names another key, or another table with the same key. It may also name a URI with a parameter "
        f"of that name. The first of these wins: {PRECEDENCE}. Flags may have one dash or two. "
        "[Settings](../guide/settings.md) explains how options work together."
    )
    for group in GROUPS:
        yield f"## {_capitalised(group)}"
        members = [option for option in OPTIONS if option.group == group]
        commands, default = (
            _usual(map(_commands, members)),
            _usual(option.default_text for option in members),
        )
        yield f"Unless an entry says otherwise: commands {commands}; default: {_escaped(default)}."
        yield "\n".join(_entry(option, commands, default) for option in members)
    yield "## Flags of single commands"
    yield "These are flags only: they have neither keyword nor environment variable nor key. `--help` of the command explains them."
    yield "\n".join(_own_flags())


def _usual(values: Iterable[str]) -> str:
    """Return the value that most members of a group have."""
    return Counter(values).most_common(1)[0][0]


def _entry(option: Option, commands: str, default: str) -> str:
    """Return the line of an option; what is as usual in its group, or follows from its name, is left out."""
    name = f"`--{option.name}`" if option.flag else f"`{option.environment}`"
    value = f" `{option.metavar}`" if option.flag and not option.switch else ""
    differs = "; ".join(
        [
            *(f"also `--{alias}`" for alias in option.aliases),
            *_places(option),
            *(
                [f"default: {_escaped(option.default_text)}"]
                if option.default_text != default
                else []
            ),
            *([f"commands {_commands(option)}"] if _commands(option) != commands else []),
        ]
    )
    return f"* {name}{value}: {_escaped(option.help)}{f' ({differs})' if differs else ''}"


def _places(option: Option) -> Iterator[str]:
    """Yield the names of an option that do not follow from its flag."""
    if not option.flag:
        yield f"keyword `{option.keyword}`"
    if not option.toml_key:
        yield "no TOML key"
    elif option.toml is not None:
        table, _, key = option.toml_key.rpartition(".")
        yield f"`[{table}]`" if key == option.name else f"TOML key `{key}` in `[{table}]`"
    if option.uri:
        end, parameter = option.uri
        yield (
            f"{end} URI"
            if parameter == option.name
            else f"parameter `{parameter}` of the {end} URI"
        )


def _commands(option: Option) -> str:
    """Return which commands take an option, or which do not if these are fewer."""
    able = [verb for verb, of in VERBS.items() if of.options]
    takers = [f"`{verb}`" for verb in able if option in VERBS[verb].options]
    others = [f"`{verb}`" for verb in able if option not in VERBS[verb].options]
    if not others:
        return "all"
    return ", ".join(takers) if len(takers) <= len(others) else f"all but {', '.join(others)}"


def _own_flags() -> Iterator[str]:
    """Yield a line for each command with its flags that are no options."""
    for verb in VERBS.values():
        own = [f"`--{flag.name}`" for flag in verb.flags if flag.keyword != "color"]
        if own:
            yield f"* `{verb.name}`: {', '.join(own)}"
    yield f"* all but `{RUN}`: `--{VERBS['status'].flags[-1].name}`"


def differences() -> Iterator[str]:
    """Yield the blocks of the page about what is changed in statements."""
    yield _title("Differences", "storage_consumer/target/ddl/catalogue.py")
    yield (
        "A statement runs as [TiCDC wrote it](../ddl.md), but for these differences. `ddl_journal` keeps the text that ran, and `ddl_finished` "
        "names the differences. A clause that would change rows stays in, so that a target that does not know it halts the table. Backslashes, "
        "timestamps, new tables and their defaults, and defaults by sequence or by chance concern every target; the others MySQL and "
        "MariaDB, or the one that the text names."
    )
    yield "\n".join(f"* {name}: {_escaped(text)}" for name, text in DIFFERENCES.items())


def metrics() -> Iterator[str]:
    """Yield the blocks of the page about metrics."""
    yield _title("Metrics", "storage_consumer/watch/collector.py")
    yield (
        "`--metrics-listen` serves these metrics on `/metrics`, and `--metrics-textfile` writes them into a file. "
        "[Monitoring](../operations/monitoring.md) has the alert rules over them. In brackets stand type and labels. Counters begin with 0 at the "
        "start of a process."
    )
    yield "\n".join(
        f"* `{PREFIX}{name}` ({', '.join([metric.kind, *(f'`{label}`' for label in metric.labels)])}): {_escaped(metric.meaning)}"
        for name, metric in METRICS.items()
    )
    yield (
        "Beside these there are `process_*` and `python_gc_*`, which the library `prometheus-client` counts for the driver's process: "
        "processor time, memory, open files, and collections of garbage."
    )


def checks() -> Iterator[str]:
    """Yield the blocks of the page about the checks of `doctor`."""
    yield _title("Checks", "storage_consumer/operating/checks.py")
    yield (
        "[`storage-consumer doctor`](../operations/doctor.md) runs these checks; `--only` takes the names of the groups. Each has in brackets "
        "what it reads, then its meaning and what to do."
    )
    for group, meaning in CHECK_GROUPS.items():
        yield f"## {_capitalised(group)}"
        yield meaning
        members = ((name, check) for name, check in CHECKS.items() if group_of(name) == group)
        yield "\n".join(
            f"* `{name}` ({check.reads}): {check.meaning} {check.remedy}" for name, check in members
        )


def errors_and_codes() -> Iterator[str]:
    """Yield the blocks of the page about exit codes and error classes."""
    yield _title(
        "Errors and exit codes", "storage_consumer/cli/endings.py and storage_consumer/errors.py"
    )
    yield "## Exit codes of `run`"
    rows = ENDINGS["run"].items()
    yield _table(
        ("code", "meaning", "what to do"),
        ((f"{code:d}", _sentence(end.meaning), end.remedy) for code, end in rows),
    )
    yield "## Exit codes of the other commands"
    often = {
        remedy
        for remedy, count in Counter(row[-1] for row in _codes_of_others()).items()
        if count > _OFTEN
    } - {""}
    yield f"Unless an entry says otherwise: {' '.join(sorted(often))}"
    yield "\n".join(
        f"* {code} {verbs}: {meaning}{'' if remedy in often else f' {remedy}'}".rstrip()
        for code, verbs, meaning, remedy in _codes_of_others()
    )
    yield (
        f"Each of them ends with {ExitCode.INTERRUPTED:d} at SIGINT. `run` takes SIGINT and SIGTERM as the wish to stop, and ends with 0; "
        "a second signal ends it at once, with 1."
    )
    yield "## Error classes"
    yield (
        "`storage_consumer.errors` has one tree of exceptions, here with the exit code of `run`; `failed` in the log names the class as `kind`."
    )
    yield "\n".join(_classes(StorageConsumerError))
    yield (
        "The error of a table is in the summary of the round, in the event `table_halted`, and in `storage-consumer table`. "
        "[Halted tables](../operations/halted-tables.md) says what to do about each."
    )


def _codes_of_others() -> Iterator[tuple[str, str, str, str]]:
    """Yield code, commands, meaning and remedy of each ending of the commands other than `run`."""
    owners: dict[tuple[int, str, str], list[str]] = {}
    for verb in (name for name in VERBS if name != RUN):
        for ending, end in ENDINGS[verb].items():
            owners.setdefault((int(ending), _sentence(end.meaning), end.remedy), []).append(
                f"`{verb}`"
            )
    for (code, meaning, remedy), verbs in sorted(owners.items(), key=lambda row: row[0][0]):
        yield f"{code:d}", ", ".join(verbs), meaning, remedy


def _classes(kind: type[StorageConsumerError], depth: int = 0) -> Iterator[str]:
    """Yield a line for a class and for all below it, in the sequence of the code."""
    code = _ABANDONED if kind is Abandoned else f"{code_of(kind):d}"
    meaning = " ".join((inspect.getdoc(kind) or "").replace("``", "`").split())
    yield f"{'  ' * depth}* `{kind.__name__}` ({code}): {_escaped(meaning.partition('. ')[0].removesuffix('.'))}."
    # A room's own class for what it catches itself is none of them, whether or not it was imported.
    for below in (each for each in kind.__subclasses__() if each.__module__ == kind.__module__):
        yield from _classes(below, depth + 1)


def _holds(page: Path, text: str) -> bool:
    return page.is_file() and page.read_text(encoding="utf-8") == text


def _title(title: str, sources: str) -> str:
    return f"# {title}\n\n<!-- Made from {sources} by conf/reference.py: edit there. -->"


def _capitalised(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}"


def _sentence(text: str) -> str:
    return f"{_capitalised(text)}."


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table; a bar inside a cell would end it, so it is escaped."""
    cells = [head, *([_escaped(cell).replace("|", r"\|") for cell in row] for row in rows)]
    lines = [f"| {' | '.join(row)} |".replace("|  |", "| |") for row in cells]
    return "\n".join([lines[0], "|" + "---|" * len(head), *lines[1:]])


def _escaped(text: str) -> str:
    """Return a text that Markdown shows as it is, but for what stands in backquotes."""
    parts = _CODE_SPAN.split(text)
    return "".join(part if part.startswith("`") else _SPECIAL.sub(r"\\\1", part) for part in parts)


if __name__ == "__main__":
    sys.exit(main())
