"""Writes the pages of docs/reference from the tables in the code: options, differences, log events, metrics, checks, errors and exit codes.

python conf/reference.py            writes the pages
python conf/reference.py --check    writes nothing; names the pages that are stale, and exits with 1 if there are any
"""

from __future__ import annotations

import argparse
import inspect
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

sys.path.insert(
    0, str(Path(__file__).resolve().parents[1])
)  # these are the pages of this tree, whichever version is installed

from storage_consumer import errors
from storage_consumer.cli.exit_codes import ENDINGS, ExitCode, code_of
from storage_consumer.cli.verbs import RUN, VERBS
from storage_consumer.config.option import GROUPS, OWN_TABLE, PRECEDENCE, Option
from storage_consumer.config.options import OPTIONS
from storage_consumer.ddl.rules.catalogue import DIFFERENCES
from storage_consumer.doctor.checks import CHECKS
from storage_consumer.doctor.findings import GROUPS as CHECK_GROUPS
from storage_consumer.doctor.findings import group_of
from storage_consumer.errors import Abandoned, StorageConsumerError
from storage_consumer.monitoring.metric_table import METRICS, PREFIX
from storage_consumer.telemetry import EVENTS, TSO_FIELDS

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "reference"
_CODE_SPAN = re.compile(r"(`[^`]*`)")
_SPECIAL = re.compile(r"([*<])")
_ABANDONED = "0 after one signal, 1 after two"


def main(arguments_given: Sequence[str] | None = None) -> int:
    """Write or check the pages; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing, and exit with 1 if a page is stale")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where the pages are")
    asked = parser.parse_args(arguments_given)
    stale = {name: text for name, text in pages() if not _holds(asked.folder / name, text)}
    for name, text in stale.items():
        if not asked.check:
            asked.folder.mkdir(parents=True, exist_ok=True)
            (asked.folder / name).write_text(text, encoding="utf-8")
        print(f"{asked.folder / name}: {'stale; run python conf/reference.py' if asked.check else 'written'}")
    return int(asked.check and bool(stale))


def pages() -> Iterator[tuple[str, str]]:
    """Yield the name and the text of each page."""
    makers: tuple[tuple[str, Callable[[], Iterator[str]]], ...] = (
        ("options.md", options),
        ("differences.md", differences),
        ("log-events.md", log_events),
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
        "An option has up to five names: a flag, a keyword of `storage_consumer.Consumer`, a parameter of a URI, an environment "
        f"variable, and a key in the TOML file. Where several are given, the first wins: {PRECEDENCE}."
    )
    yield (
        f"Keys in `[{OWN_TABLE}]` are this program's own; all others are TiCDC's, and stand where a changefeed's file has them. "
        "Flags may have one dash or two. [Settings](../guide/settings.md) explains how options work together."
    )
    yield _table(("option", "default", "commands"), (_overview(option) for option in OPTIONS))
    for group in GROUPS:
        yield f"## {group[0].upper()}{group[1:]}"
        for option in (each for each in OPTIONS if each.group == group):
            yield f"### `{_heading(option)}`"
            yield _escaped(option.help)
            yield "\n".join(f"* {name}: {value}" for name, value in _names(option))
    yield "## Flags of single commands"
    yield "These are flags only: they have neither keyword nor environment variable nor key."
    yield _table(("command", "flag", "meaning"), _own_flags())


def _overview(option: Option) -> tuple[str, str, str]:
    heading = _heading(option)
    return f"[`{heading}`](#{heading.lower()})", option.default_text, _commands(option)


def _heading(option: Option) -> str:
    return f"--{option.name}" if option.flag else option.environment


def _names(option: Option) -> Iterator[tuple[str, str]]:
    """Yield what is to be known of an option, beside its meaning."""
    if option.flag:
        value = f"[{option.metavar}]" if option.switch else option.metavar
        also = "".join(f", also `--{alias}`" for alias in option.aliases)
        yield "flag", f"`--{option.name} {value}`{also}"
    yield "keyword", ", also ".join(f"`{keyword}`" for keyword in option.keywords)
    yield "environment variable", f"`{option.environment}`"
    if option.toml_key:
        table, _, key = option.toml_key.rpartition(".")
        yield "TOML key", f"`{key}` in `[{table}]`"
    if option.uri:
        end, parameter = option.uri
        yield "URI parameter", f"`{parameter}` of the {end} URI"
    yield "default", _escaped(option.default_text)
    yield "commands", _commands(option)


def _commands(option: Option) -> str:
    return ", ".join(f"`{verb}`" for verb in VERBS if option in VERBS[verb].options)


def _own_flags() -> Iterator[tuple[str, str, str]]:
    """Yield command, flag and meaning of each flag that is no option."""
    for verb in VERBS.values():
        for flag in (each for each in verb.flags if each.field != "color"):
            yield f"`{verb.name}`", f"`{f'{flag.name} {flag.metavar}'.rstrip()}`", flag.help
    color = VERBS["status"].flags[-1]
    yield f"all but `{RUN}`", f"`{color.name} {color.metavar}`", color.help


def differences() -> Iterator[str]:
    """Yield the blocks of the page about what is changed in statements."""
    yield _title("Differences", "storage_consumer/ddl/rules/catalogue.py")
    yield (
        "A statement runs as TiCDC wrote it, but for the differences below. `ddl_journal` keeps the text that ran, and the event "
        "`ddl_finished` names the differences that were met. A clause that would change rows "
        "stays in, so that a target that does not know it refuses it and the table halts. [DDL](../ddl.md) says what becomes of the rest."
    )
    yield (
        "Backslashes, timestamps, new tables and their defaults, and defaults by sequence or by chance concern every target; the "
        "others concern MySQL and MariaDB, or one of them where the text says so."
    )
    yield _table(("difference", "what is done, and why"), DIFFERENCES.items())


def log_events() -> Iterator[str]:
    """Yield the blocks of the page about log events."""
    yield _title("Log events", "storage_consumer/telemetry.py")
    yield (
        "A line of the log is one event with its fields. `--log-format text` writes logfmt, `time=… level=… event=… key=value …`; `--log-format json` "
        "writes an object with `time`, `level`, `event`, `component` (the part of the program that speaks) and the fields. A line may lack "
        "fields that do not apply."
    )
    fields = ", ".join(
        f"`{name}`" for name in sorted(TSO_FIELDS & {name for e in EVENTS.values() for name in e.fields})
    )
    yield (
        f"Where {fields} hold a number it is a TSO, and a second field has its time, as `checkpoint_time` does. In logfmt a value is in "
        "quotes, with the escapes of JSON, unless it is one word; lists and maps are JSON. Secrets are shown as `***`."
    )
    yield (
        "Messages of libraries are events `log` with the fields `logger` and `text`. At `--log-level debug` an event of level ERROR "
        "that comes of an exception has its traceback too."
    )
    yield _table(
        ("event", "level", "meaning", "fields"),
        (
            (
                f"`{name}`",
                ", ".join("WARN" if level == "warning" else level.upper() for level in event.levels),
                event.meaning,
                ", ".join(f"`{field}`" for field in event.fields),
            )
            for name, event in EVENTS.items()
        ),
    )


def metrics() -> Iterator[str]:
    """Yield the blocks of the page about metrics."""
    yield _title("Metrics", "storage_consumer/monitoring/metric_table.py")
    yield (
        "`--metrics-listen` serves these metrics on `/metrics`, and `--metrics-textfile` writes them into a file. "
        "[Monitoring](../operations/monitoring.md) says how to switch them on, and [Prometheus alerts](../operations/prometheus-alerts.md) what to do about "
        "each alert. Counters begin with 0 at the start of a process."
    )
    yield _table(
        ("metric", "type", "unit", "labels", "meaning"),
        (
            (
                f"`{PREFIX}{name}`",
                metric.kind,
                _unit(name),
                ", ".join(f"`{label}`" for label in metric.labels),
                metric.meaning,
            )
            for name, metric in METRICS.items()
        ),
    )
    yield (
        "Beside these there are `process_*` and `python_gc_*`, which the library `prometheus-client` counts for the driver's process: "
        "processor time, memory, open files, and collections of garbage."
    )


def checks() -> Iterator[str]:
    """Yield the blocks of the page about the checks of `doctor`."""
    yield _title("Checks", "storage_consumer/doctor/checks.py")
    yield (
        "`storage-consumer doctor` runs these checks. Each is `ok`, `warn`, `fail` or `not looked at`, with the reason, and says what to "
        "do. [Doctor](../operations/doctor.md) explains the command; `--only` takes the names of these groups."
    )
    for group, meaning in CHECK_GROUPS.items():
        yield f"## {group[0].upper()}{group[1:]}"
        yield meaning
        rows = ((f"`{name}`", *check.columns) for name, check in CHECKS.items() if group_of(name) == group)
        yield _table(("check", "looks at", "meaning", "what to do"), rows)


def _unit(name: str) -> str:
    """Return the unit that a metric's name tells."""
    words = name.removesuffix("_total").split("_")
    return next((unit for unit in ("seconds", "bytes") if unit in words), "")


def errors_and_codes() -> Iterator[str]:
    """Yield the blocks of the page about exit codes and error classes."""
    yield _title("Errors and exit codes", "storage_consumer/cli/exit_codes.py and storage_consumer/errors.py")
    yield "## Exit codes of `run`"
    rows = ENDINGS["run"].items()
    yield _table(
        ("code", "meaning", "what to do"), ((f"{code:d}", _sentence(end.meaning), end.remedy) for code, end in rows)
    )
    yield "## Exit codes of the other commands"
    yield _table(("command", "code", "meaning", "what to do"), _codes_of_others())
    yield (
        f"Each of them ends with {ExitCode.INTERRUPTED:d} at SIGINT. `run` takes SIGINT and SIGTERM as the wish to stop, and ends with 0; "
        "a second signal ends it at once, with 1."
    )
    yield "## Error classes"
    yield (
        "`storage_consumer.errors` has one tree of exceptions; `failed` in the log names the class as `kind`. Each class answers one "
        "question: what may the caller do?"
    )
    tree = (inspect.getdoc(errors) or "").partition("\n\n")[2]
    yield f"```text\n{tree}\n```"
    yield _table(("class", "meaning", "exit code of `run`"), _classes(StorageConsumerError))
    yield (
        "The error of a table is in the summary of the round, in the event `table_halted`, and in `storage-consumer table`. "
        "[Halted tables](../operations/halted-tables.md) says what to do about each."
    )


def _codes_of_others() -> Iterator[tuple[str, str, str, str]]:
    """Yield command, code, meaning and remedy of each ending of a command other than `run`."""
    for verb in (name for name in VERBS if name != RUN):
        for code, end in ENDINGS[verb].items():
            yield f"`{verb}`", f"{code:d}", _sentence(end.meaning), end.remedy


def _classes(kind: type[StorageConsumerError]) -> Iterator[tuple[str, str, str]]:
    """Yield name, meaning and exit code of a class and of all below it, in the sequence of the code."""
    code = _ABANDONED if kind is Abandoned else f"{code_of(kind):d}"
    yield f"`{kind.__name__}`", " ".join((inspect.getdoc(kind) or "").replace("``", "`").split()), code
    # A room's own class for what it catches itself is none of them, whether or not it was imported.
    for below in (each for each in kind.__subclasses__() if each.__module__ == kind.__module__):
        yield from _classes(below)


def _holds(page: Path, text: str) -> bool:
    return page.is_file() and page.read_text(encoding="utf-8") == text


def _title(title: str, sources: str) -> str:
    return f"# {title}\n\n<!-- Made from {sources} by conf/reference.py: edit there. -->"


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


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
