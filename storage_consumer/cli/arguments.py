"""The command line: flags generated from the table of options, and help that teaches."""

from __future__ import annotations

import argparse
import importlib.metadata
import platform
import re
import shutil
import textwrap
from collections.abc import Sequence
from itertools import pairwise
from typing import NoReturn

from storage_consumer import __version__
from storage_consumer.cli.exit_codes import ENDINGS, listed
from storage_consumer.config.option import GROUPS, OWN_TABLE, PRECEDENCE, Group, Option
from storage_consumer.config.options import BY_KEYWORD, OPTIONS
from storage_consumer.config.parsers import did_you_mean
from storage_consumer.errors import ConfigError

PROGRAM = "storage-consumer"
VERBS = ("run", "inspect", "ddl", "table", "history", "rebind")
DDL_VERBS = ("list", "done", "skip", "replace")
TABLE_VERBS = ("list", "hold", "resume", "reload-done", "accept-keys", "moved")
_CODES = {int(code): ending for code, ending in ENDINGS["run"].items()}

_DESCRIPTION = """\
Reads the change files that TiCDC's storage sink writes (CSV or canal-json, in a folder, S3, Google Cloud Storage or
Azure) and keeps a MySQL-compatible database equal to the source: DDL and rows, up to the checkpoint in the bucket's
`metadata`, through Spark. It only reads the bucket; its state lives in the target. It may be killed at any moment and started again."""

_INSPECT = f"""\
Looks at a bucket: one listing and a bounded sample of its files. It needs no target, starts no Spark and writes nothing.
It prints layout, protocol, tables, versions, checkpoint, and each setting of TiCDC that shapes the files: given, inferred (and
from which file), not decidable, or contradicting what was given. It ends with a `{PROGRAM} run` command to continue with.

exit codes:
{listed("inspect")}"""

_EXAMPLES = f"""\
first commands:
  What is this bucket, and which settings does it need?
    {PROGRAM} inspect --upstream-uri file:///data/bucket

  A bucket in a directory (TiCDC's --sink-uri and changefeed.toml fit unchanged); one round, then end:
    {PROGRAM} run --upstream-uri 'file:///data/bucket?protocol=csv' \\
        --config changefeed.toml --downstream-uri mysql://root@127.0.0.1:3306/ --once

  A bucket in S3, followed until a signal arrives:
    export STORAGE_CONSUMER_DOWNSTREAM_PASSWORD=…
    {PROGRAM} run --upstream-uri 's3://bucket/prefix?protocol=canal-json&enable-tidb-extension=true&region=eu-west-1' \\
        --downstream-uri mysql://app@db.example.com:3306/ --tz Asia/Shanghai

the password of the target:
  --downstream-password-file FILE, or in --downstream-uri (percent-encoded; visible to others on the machine), or
  STORAGE_CONSUMER_DOWNSTREAM_PASSWORD. AWS keys come from the URI (access-key=, secret-access-key=, session-token=) or
  from the usual places: AWS_ACCESS_KEY_ID and so on, the shared files, the instance's role. No message shows a secret.

exit codes:
  0  {_CODES[0].meaning:<29}3  {_CODES[3].meaning}
  1  {_CODES[1].meaning:<29}4  {_CODES[4].meaning}
  2  {_CODES[2].meaning}
  5  {_CODES[5].meaning}

signals:
  SIGTERM or SIGINT: finish the running step, or cancel it after a few seconds, and exit with 0; a second one: abandon it
  and exit with 1. Both are safe.

where a setting comes from, first wins:
  {PRECEDENCE}.
  In the TOML file, all keys of TiCDC are taken as they are; our own are in the table [{OWN_TABLE}]. Environment variables
  are named below each option. Unknown flags, URI parameters and keys are errors."""

_DDL = f"""\
Shows the statements that block tables (planned, started or failed) with their errors, and records what you decide about one
of them. It writes one row into the state schema. A running consumer obeys in its next round, so that the table goes on
without a restart; a stopped one obeys when it starts. Repeating a decision changes nothing.

  list     show what waits (the default)
  done     you ran it manually: record it as done, run nothing
  skip     do not run it, go on
  replace  run the text of --sql in its place; what TiCDC wrote stays recorded

examples:
    {PROGRAM} ddl --downstream-uri mysql://root@127.0.0.1:3306/
    {PROGRAM} ddl skip --table shop.orders --version 470607624365932544 --downstream-uri mysql://root@127.0.0.1:3306/
    {PROGRAM} ddl replace --table shop.orders --version 470607624365932544 --sql 'ALTER TABLE orders ADD COLUMN note TEXT' \\
        --downstream-uri mysql://root@127.0.0.1:3306/

exit codes:
{listed("ddl")}"""

_TABLES = f"""\
Shows the tables that are halted or waiting, with their errors, and records what you decide about one. It writes one row into
the state schema. A running consumer obeys in its next round, without a restart; a stopped one obeys when it starts.

  list         show what is halted or waiting (the default)
  hold         stop the table, also across restarts, before you reload it in the target
  resume       try the table again from where it stopped; ends a hold
  reload-done  you reloaded the table in the target from a copy as of the TSO --at: all rows and statements up to there count as
               done, and files that hold nothing later are not waited for
  accept-keys  somebody changed its unique keys in the target, and the source has them too: accept them, and try it again
  moved        you renamed it in the target to --to, because the routes have changed

examples:
    {PROGRAM} table --downstream-uri mysql://root@127.0.0.1:3306/
    {PROGRAM} table resume --table shop.orders --downstream-uri mysql://root@127.0.0.1:3306/
    {PROGRAM} table reload-done --table shop.orders --at 470607624365932544 --downstream-uri mysql://root@127.0.0.1:3306/

exit codes:
{listed("table")}"""

_HISTORY = f"""\
Shows what the state schema keeps of a table: each version with its time, its statement, what changed in the columns, and its
entry in the journal. Without --table: one line per table. It needs no bucket and only reads.

examples:
    {PROGRAM} history --downstream-uri mysql://root@127.0.0.1:3306/
    {PROGRAM} history --table shop.orders --downstream-uri mysql://root@127.0.0.1:3306/
    {PROGRAM} history --table shop.orders --at 470607624365932544 --json --downstream-uri mysql://root@127.0.0.1:3306/

exit codes:
{listed("history")}"""

_REBIND = f"""\
Binds the state in the target to another place of the same bucket: files that were copied or moved. It compares what the
state knows with what is there (contents of schema files, sizes of finished data files, metadata), and changes nothing if they
differ. No consumer may run meanwhile. Repeating it changes nothing; --restored accepts the files in the same place as they are now.

examples:
    {PROGRAM} rebind --upstream-uri s3://new-bucket/prefix --downstream-uri mysql://root@127.0.0.1:3306/
    {PROGRAM} rebind --restored --upstream-uri s3://bucket/prefix --downstream-uri mysql://root@127.0.0.1:3306/

exit codes:
{listed("rebind")}"""

INSPECT_GROUPS: tuple[Group, ...] = ("what is copied", "how TiCDC wrote the files")
_GO_FLAG = re.compile(r"-[A-Za-z][A-Za-z0-9]*(-[A-Za-z0-9]+)*(=.*)?", re.DOTALL)


class _Help(argparse.RawDescriptionHelpFormatter):
    """Help as wide as the terminal (120 at most) that keeps line breaks and does not break names at their hyphens."""

    def __init__(self, prog: str) -> None:
        """Format help for `prog`, the program's name."""
        super().__init__(prog, max_help_position=28, width=min(shutil.get_terminal_size().columns, 122) - 2)

    def _split_lines(self, text: str, width: int) -> list[str]:
        return [line for part in text.splitlines() for line in textwrap.wrap(part, width, break_on_hyphens=False)]


class _Parser(argparse.ArgumentParser):
    """An argparse parser whose errors are `ConfigError`s."""

    def error(self, message: str) -> NoReturn:
        """Raise `ConfigError` instead of printing usage and exiting."""
        raise ConfigError(f"{message}; see {self.prog} --help")


def parse(argv: Sequence[str]) -> tuple[str, dict[str, object]]:
    """Return verb and options (by keyword, as texts) of a command line without its program name.

    Flags may have one dash or two, as Go programs take them; without a verb, `run` is meant. Raises `ConfigError` for anything
    unknown, naming the nearest known word; ``--help`` and ``--version`` print and raise SystemExit(0).
    """
    words = _normalised(argv)
    if words and not words[0].startswith("-") and words[0] not in VERBS:
        raise ConfigError(f"there is no command `{words[0]}`{did_you_mean(words[0], VERBS)}; see {PROGRAM} --help")
    if not words or (words[0] not in VERBS and words[0] not in {"--help", "-h", "--version"}):
        # TiCDC's own consumer has flags and no verbs, so its command line fits.
        words.insert(0, "run")
    # Unknown words are judged below, where the nearest known one can be named.
    parsed, rest = _parser().parse_known_args(words)
    for word in rest:
        # Without its value, which may be a secret.
        name = word.partition("=")[0]
        flags = [*(flag for option in OPTIONS for flag in _flags(option)), *OWN_FLAGS.get(words[0], ())]
        what = "flag" if word.startswith("-") else "argument"
        raise ConfigError(f"there is no {what} `{name}`{did_you_mean(name, flags)}; see {PROGRAM} {words[0]} --help")
    options = {key: value for key, value in vars(parsed).items() if value is not None}
    return str(options.pop("verb")), options


def options_of(verb: str) -> tuple[Option, ...]:
    """Return the options that a command takes, as flags or only from the environment, in the order of the table."""
    if verb == "run":
        return OPTIONS
    if verb == "inspect":
        return tuple(each for each in OPTIONS if each.group in INSPECT_GROUPS and each.name != "downstream-uri")
    # Commands on the state need nothing but the way to the target, and `rebind` the place as well.
    ends = {"downstream-uri", "config"} | ({"upstream-uri"} if verb == "rebind" else set())
    return tuple(
        each for each in OPTIONS if each.name in ends or (each.group == "the target" and each.name != "local-infile")
    )


def asks_to_run(argv: Sequence[str]) -> bool:
    """Return whether a command line, even one that can't be parsed, asks for `run`."""
    return not argv or argv[0].startswith("-") or argv[0] == "run"


def said(argv: Sequence[str], *keywords: str) -> dict[str, object]:
    """Return the values of some options in a command line that can't be parsed, by keyword."""
    found: dict[str, object] = {}
    # The empty word stands for the value that the last flag may lack.
    words = [*_normalised(argv), ""]
    flags = {flag: keyword for keyword in keywords for flag in _flags(BY_KEYWORD[keyword])}
    for word, following in pairwise(words):
        flag, equals, value = word.partition("=")
        if flag in flags:
            found[flags[flag]] = value if equals else following
    return found


def version_text() -> str:
    """Return name and version, with the versions of Python and PySpark."""
    try:
        spark = importlib.metadata.version("pyspark")
    except importlib.metadata.PackageNotFoundError:
        spark = "not installed by pip"
    return f"{PROGRAM} {__version__} (Python {platform.python_version()}, PySpark {spark})"


def _normalised(argv: Sequence[str]) -> list[str]:
    """Return the words with two dashes for each flag; a value that begins with a dash (a time zone) is bound to its flag by ``=``."""
    takes_value = {flag for option in OPTIONS if not option.switch for flag in _flags(option)}
    words: list[str] = []
    for word in argv:
        # `-h` is argparse's own short flag; all others of one dash are Go's way to write long ones.
        long = f"-{word}" if _GO_FLAG.fullmatch(word) and word != "-h" else word
        # argparse would take a value such as -05:00 for a flag, and the text of --sql may begin with a comment.
        if words and (words[-1] == "--sql" or (words[-1] in takes_value and re.match(r"-\d", word))):
            words[-1] = f"{words[-1]}={word}"
        else:
            words.append(long)
    return words


def _flags(option: Option) -> tuple[str, ...]:
    return tuple(f"--{name}" for name in (option.name, *option.aliases)) if option.flag else ()


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog=PROGRAM,
        description=_DESCRIPTION,
        epilog=f"{_EXAMPLES}\n\nall options: {PROGRAM} run --help",
        formatter_class=_Help,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=version_text())
    verbs = parser.add_subparsers(dest="verb", metavar="command")
    run = _verb(
        verbs,
        "run --upstream-uri URI --downstream-uri URI [option …]",
        "apply what is in the bucket until a signal arrives (or, with --once, for one round)",
        _DESCRIPTION,
    )
    run.epilog = _EXAMPLES
    run.add_argument("--version", action="version", version=version_text())
    for name in GROUPS:
        group = run.add_argument_group(name)
        for option in OPTIONS:
            if option.group == name and option.flag:
                _add(group, option)
            elif option.group == name:
                # An option without a flag is explained with its group: it comes from the environment alone.
                group.description = f"{option.environment}: {option.help}"
    _add_inspect(verbs)
    _add_ddl(verbs)
    _add_table(verbs)
    _add_history(verbs)
    _add_rebind(verbs)
    return parser


_TABLE = "The table, as database.table, or a database alone."
JSON_FLAG = "--json"
JSON_HELP = "One JSON document instead of text."
REBIND_FLAGS = {
    "--restored": "Bind even if the state is bound to this place already: its files were restored or copied over "
    "with the same content, and have other times or tags.",
    "--allow-missing": "Bind even if schema files that were read are missing because they were deleted on purpose.",
    "--allow-rewritten": "Bind even if finished data files have another size because TiCDC rewrote them; `run` reads "
    "them again, and "
    "halts a table that may have lost rows.",
}
OWN_FLAGS = {
    "ddl": {
        "--table": ("S.T", _TABLE),
        "--version": ("TSO", "The statement's version, as messages and the list show it."),
        "--checksum": ("N", "Distinguishes statements of one table and version; the list shows it."),
        "--sql": ("TEXT", "What `replace` runs; names without a database refer to the table's own."),
    },
    "table": {
        "--table": ("S.T", _TABLE),
        "--at": ("TSO", "TSO of the copy: it holds all rows up to this commit-ts, and none after it."),
        "--to": ("S.T", "The table's name in the target, as database.table."),
    },
    "history": {
        "--table": ("S.T", _TABLE),
        "--at": ("TSO", "Show the whole structure in force at this version or commit-ts, instead of all versions."),
    },
}


def _verb(verbs: argparse._SubParsersAction[_Parser], usage: str, summary: str, description: str) -> _Parser:
    """Return the parser of one command; its name is the first word of `usage`."""
    return verbs.add_parser(
        usage.partition(" ")[0],
        help=summary,
        description=description,
        formatter_class=_Help,
        usage=f"{PROGRAM} {usage}",
        allow_abbrev=False,
    )


def _add_ddl(verbs: argparse._SubParsersAction[_Parser]) -> None:
    ddl = _verb(
        verbs,
        "ddl [list|done|skip|replace] [--table S.T --version TSO] --downstream-uri URI [option …]",
        "list the statements that stopped a table, and decide about one: done, skip or replace",
        _DDL,
    )
    ddl.add_argument("action", nargs="?", choices=DDL_VERBS, default="list", help="What to do; list if left out.")
    _add_own(ddl, "ddl")


def _add_table(verbs: argparse._SubParsersAction[_Parser]) -> None:
    table = _verb(
        verbs,
        "table [list|hold|resume|reload-done|accept-keys|moved] [--table S.T] --downstream-uri URI [option …]",
        "list the tables that are halted or waiting, and decide about one: hold, resume, reload-done after a reload, …",
        _TABLES,
    )
    table.add_argument("action", nargs="?", choices=TABLE_VERBS, default="list", help="What to do; list if left out.")
    _add_own(table, "table")


def _add_history(verbs: argparse._SubParsersAction[_Parser]) -> None:
    history = _verb(
        verbs,
        "history [--table S.T] --downstream-uri URI [option …]",
        "show the versions of a table: time, statement, what changed, and how it ended",
        _HISTORY,
    )
    _add_own(history, "history")


def _add_rebind(verbs: argparse._SubParsersAction[_Parser]) -> None:
    rebind = _verb(
        verbs,
        "rebind --upstream-uri URI --downstream-uri URI [--restored] [--allow-missing] [--allow-rewritten] [option …]",
        "continue with a bucket that was copied or moved to another place",
        _REBIND,
    )
    _add(rebind, next(option for option in OPTIONS if option.name == "upstream-uri"))
    for flag, text in REBIND_FLAGS.items():
        rebind.add_argument(flag, action="store_const", const="true", help=text)
    _add_own(rebind, "rebind")


class _Once(argparse.Action):
    """Takes a flag's value, and refuses a second one."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: object,
        option_string: str | None = None,
    ) -> None:
        """Store the value; fail if there is one already."""
        # Two tables or versions in one decision are a mistake; the last one would win unnoticed.
        if getattr(namespace, self.dest, None) is not None:
            parser.error(f"{option_string} may be given only once")
        setattr(namespace, self.dest, values)


def _add_own(parser: _Parser, verb: str) -> None:
    """Add the flags of a command that works on the state alone: its own, and those that lead to the target."""
    for flag, (metavar, text) in OWN_FLAGS.get(verb, {}).items():
        parser.add_argument(flag, metavar=metavar, help=text, action=_Once)
    parser.add_argument(JSON_FLAG, action="store_const", const="true", help=JSON_HELP)
    for option in options_of(verb):
        if option.flag and option.name != "upstream-uri":
            _add(parser, option)


def _add_inspect(verbs: argparse._SubParsersAction[_Parser]) -> None:
    inspect = _verb(
        verbs,
        "inspect --upstream-uri URI [--config FILE] [--json] [option …]",
        "show what the bucket is, which settings it shows and which are missing; run this first",
        _INSPECT,
    )
    inspect.add_argument("--version", action="version", version=version_text())
    inspect.add_argument(JSON_FLAG, action="store_const", const="true", help=JSON_HELP)
    for name in INSPECT_GROUPS:
        group = inspect.add_argument_group(name)
        for option in options_of("inspect"):
            if option.group == name and option.flag:
                _add(group, option)


def _add(group: argparse._ActionsContainer, option: Option) -> None:
    # argparse formats its help by %.
    flags, text = _flags(option), help_text(option).replace("%", "%%")
    if option.repeatable:
        group.add_argument(*flags, dest=option.keyword, metavar=option.metavar, help=text, action="append")
    elif option.switch:
        group.add_argument(*flags, dest=option.keyword, metavar=option.metavar, help=text, nargs="?", const="true")
    else:
        group.add_argument(*flags, dest=option.keyword, metavar=option.metavar, help=text)


def help_text(option: Option) -> str:
    """Return the help of an option: its meaning, then its default and its other names."""
    others = [f"default: {option.default_text}", option.environment]
    if option.toml_key:
        table, _, key = option.toml_key.rpartition(".")
        others.append(f"[{table}] {key}")
    if option.uri:
        others.append(f"{option.uri[0]} URI {option.uri[1]}=")
    return f"{option.help}\n({'; '.join(others)})"
