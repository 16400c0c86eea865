"""The command line: flags generated from the table of options, and help that teaches."""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import platform
import re
import shutil
import textwrap
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, NoReturn

from storage_consumer import __version__
from storage_consumer.cli.endings import listed
from storage_consumer.cli.screen import columns, write
from storage_consumer.cli.verb import Verb
from storage_consumer.cli.verbs import PROGRAM, RUN, VERBS, verb_named
from storage_consumer.config.options import GROUPS, OPTIONS, OWN_TABLE, PRECEDENCE, Option, words_of
from storage_consumer.config.parsers import did_you_mean
from storage_consumer.errors import ConfigError

_FIRST_COMMANDS = f"""\
first commands:
  What is this bucket, and which settings does it need?
    {PROGRAM} inspect --upstream-uri file:///data/bucket

  A bucket in a directory (TiCDC's --sink-uri and changefeed.toml fit unchanged); one round, then end:
    {PROGRAM} run --upstream-uri 'file:///data/bucket?protocol=csv' \\
        --config changefeed.toml --downstream-uri mysql://root@127.0.0.1:3306/ --once

  A bucket in S3, followed until a signal arrives:
    export STORAGE_CONSUMER_DOWNSTREAM_PASSWORD=…
    {PROGRAM} run --upstream-uri 's3://bucket/prefix?protocol=canal-json&enable-tidb-extension=true&region=eu-west-1' \\
        --downstream-uri mysql://app@db.example.com:3306/ --tz Asia/Shanghai"""
_CODES = f"exit codes:\n{listed(RUN)}"
_MORE_OF_RUN = f"""\
the password of the target:
  --downstream-password-file FILE, or in --downstream-uri (percent-encoded; visible to others on the machine), or \
STORAGE_CONSUMER_DOWNSTREAM_PASSWORD. AWS keys come from the URI (access-key=, secret-access-key=, session-token=) or \
from the usual places: AWS_ACCESS_KEY_ID and so on, the shared files, the instance's role. No message shows a secret.

signals:
  SIGTERM or SIGINT: finish the running step, or cancel it after a few seconds, and exit with 0; a second one: abandon it \
and exit with 1. Both are safe.

where a setting comes from, first wins:
  {PRECEDENCE}. \
In the TOML file, all keys of TiCDC are taken as they are; our own are in the table [{OWN_TABLE}]. Environment variables \
are named below each option. Unknown flags, URI parameters and keys are errors."""

_ALL_OPTIONS = f"all options: {PROGRAM} run --help"
_IN_SHORT = "Keeps a MySQL-compatible database equal to the source of a TiCDC bucket."
_FURTHER = f"""\
first:  {PROGRAM} inspect --upstream-uri file:///data/bucket
more:   {PROGRAM} --help    {PROGRAM} help COMMAND"""

_ALONE = ("--help", "-h", "--version", "-V")
"""First words that ask for no command."""
_COMMAND_LINE = re.compile(rf" {{8,}}| +({PROGRAM}|export) ")
_HEAD = re.compile(r" *(?:\S+  +)?")
"""The indent of a list item's further lines: its blanks, and a code or word before a gap."""
_GO_FLAG = re.compile(r"-[A-Za-z][A-Za-z0-9]*(-[A-Za-z0-9]+)*(=.*)?", re.DOTALL)


def _fitted(text: str) -> str:
    """Wrap a text to the help's width, paragraphs and indented lines, but no commands."""
    lines: list[str] = []
    for paragraph in text.split("\n\n"):
        is_prose = not re.search("^ ", paragraph, re.MULTILINE)
        for line in [" ".join(paragraph.split())] if is_prose else paragraph.split("\n"):
            further = " " * len(_HEAD.match(line)[0])  # type: ignore[index] # it matches nothing too
            filled = textwrap.wrap(
                line,
                _columns(),
                subsequent_indent=further,
                break_long_words=False,
                break_on_hyphens=False,
            )
            lines += [line] if _COMMAND_LINE.match(line) else filled
        lines.append("")
    return "\n".join(lines[:-1])


def _columns() -> int:
    """Return the columns of help, which is wrapped also where there is no terminal."""
    return min(columns() or shutil.get_terminal_size((122, 24)).columns, 122) - 2


class _Help(argparse.RawDescriptionHelpFormatter):
    """Help as wide as the terminal, at most 120, that keeps line breaks and hyphenated names."""

    def __init__(self, prog: str) -> None:
        """Format help for `prog`, the program's name."""
        super().__init__(prog, max_help_position=28, width=_columns())

    def _split_lines(self, text: str, width: int) -> list[str]:
        return [
            line
            for part in text.splitlines()
            for line in textwrap.wrap(part, width, break_on_hyphens=False)
        ]


class _Parser(argparse.ArgumentParser):
    """An argparse parser whose errors are `ConfigError`s."""

    def _print_message(self, message: str, file: object = None) -> None:  # noqa: ARG002 - standard output for all that is printed
        """Show help; a reader that goes away early is no error."""
        write(message, os.environ, is_document=True)

    def error(self, message: str) -> NoReturn:
        """Raise `ConfigError` instead of printing usage and exiting."""
        raise ConfigError(f"{message}; see {self.prog} --help")


def parse(argv: Sequence[str]) -> tuple[str, dict[str, object]]:
    """Return verb and options (by keyword, as texts) of a command line without its program name.

    Flags may have one dash or two, as Go programs take them; without a verb, `run` is meant. Raises
    `ConfigError` for anything unknown, naming the nearest known word; ``--help`` and ``--version``
    print and raise SystemExit(0), and so does a line without words, which shows the commands.
    """
    options = (*OPTIONS, *(flag for verb in VERBS.values() for flag in verb.flags))
    takes_value = {flag for option in options if not option.switch for flag in flags_of(option)}
    words: list[str] = []
    for word in argv:
        # Two flags are short ones; all others of one dash are Go's way to write long ones.
        long = f"-{word}" if _GO_FLAG.fullmatch(word) and word not in {"-h", "-V"} else word
        # argparse would take a value such as -05:00 or -1h for a flag, and the text of `ddl --sql`
        # may begin with a comment: `=` binds them.
        is_text = words[:1] == ["ddl"] and words[-1] == "--sql"
        if words and (is_text or (words[-1] in takes_value and re.match(r"-\d", word))):
            words[-1] = f"{words[-1]}={word}"
        else:
            words.append(long)
    brief = False
    if not words or words[0] == "help":
        # `help VERB` is `VERB --help`.
        brief = not words
        words = [*words[1:2], "--help"]
    elif words[0].startswith("-") and words[0] not in _ALONE:
        # TiCDC's own consumer has flags and no verbs, so its command line fits.
        words.insert(0, RUN)
    verb = None if words[0].startswith("-") else verb_named(words[0])
    # Unknown words are judged below, where the nearest known one can be named.
    parsed, rest = _parser(*([verb] if verb else []), brief=brief).parse_known_args(words)
    assert verb is not None  # the flags that stand alone print, and end the program
    for word in rest:
        # Without its value, which may be a secret.
        name = word.partition("=")[0]
        raise ConfigError(f"{_not_taken(verb, name)}; see {PROGRAM} {verb.name} --help")
    given = {key: value for key, value in vars(parsed).items() if value is not None}
    return str(given.pop("verb")), given


def _not_taken(verb: Verb, name: str) -> str:
    """Return what is wrong with a word that a command does not take."""
    what = "flag" if name.startswith("-") else "argument"
    if any(name in flags_of(option) for option in OPTIONS):
        return f"`{verb.name}` takes no {what} `{name}`, which other commands have"
    flags = [flag for option in (*verb.options, *verb.flags) for flag in flags_of(option)]
    return f"there is no {what} `{name}`{did_you_mean(name, flags)}"


def asks_to_run(argv: Sequence[str]) -> bool:
    """Return whether a command line, even one that can't be parsed, asks for `run`."""
    return not argv or argv[0].startswith("-") or argv[0] == "run"


def said(argv: Sequence[str], *names: str) -> dict[str, str]:
    """Return the values of some flags in a command line that can't be parsed, by keyword."""
    words = [f"-{word}" if _GO_FLAG.fullmatch(word) else word for word in argv]
    found: dict[str, str] = {}
    # The empty word stands for the value that the last flag may lack.
    for word, following in pairwise([*words, ""]):
        flag, equals, value = word.partition("=")
        if flag.startswith("--") and flag[2:] in names:
            found[flag[2:].replace("-", "_")] = value if equals else following
    return found


def version_text() -> str:
    """Return name and version, with the versions of Python and PySpark."""
    try:
        spark = importlib.metadata.version("pyspark")
    except importlib.metadata.PackageNotFoundError:
        spark = "not installed by pip"
    return f"{PROGRAM} {__version__} (Python {platform.python_version()}, PySpark {spark})"


def flags_of(option: Option) -> tuple[str, ...]:
    """Return an option's flags, its own name first; none if only the environment sets it."""
    return tuple(f"--{name}" for name in (option.name, *option.aliases)) if option.flag else ()


def whole_parser() -> argparse.ArgumentParser:
    """Return the parser of the whole command line, with the flags of each command."""
    return _parser(*VERBS.values())


def _parser(*asked: Verb, brief: bool = False) -> argparse.ArgumentParser:
    """Return the command line's parser; only commands that are asked for have their flags.

    `brief`: its help is the list of commands and where to go on.
    """
    parser = _Parser(
        prog=PROGRAM,
        description=_fitted(_IN_SHORT if brief else VERBS[RUN].description),
        usage=f"{PROGRAM} [command] [option …]" if brief else None,
        epilog=_FURTHER
        if brief
        else _fitted(f"{_FIRST_COMMANDS}\n\n{_MORE_OF_RUN}\n\n{_CODES}\n\n{_ALL_OPTIONS}"),
        formatter_class=_Help,
        allow_abbrev=False,
    )
    parser.add_argument("-V", "--version", action="version", version=version_text())
    verbs = parser.add_subparsers(dest="verb", metavar="command")
    for verb in VERBS.values():
        parts = [verb.description]
        if verb.name == RUN:
            parts.append(_FIRST_COMMANDS)
        if verb.actions:
            width = max(len(word) for word, _ in verb.actions) + 2
            first = "" if verb.without_action else verb.actions[0][0]
            lines = (
                f"  {name:<{width}}{meaning}{' (the default)' if name == first else ''}"
                for name, meaning in verb.actions
            )
            parts.append("\n".join(lines))
        if verb.examples:
            parts.append(
                "\n".join(["examples:", *(f"    {PROGRAM} {example}" for example in verb.examples)])
            )
        parts.append(f"exit codes:\n{listed(verb.name)}")
        made = verbs.add_parser(
            verb.name,
            help=verb.summary,
            description=_fitted("\n\n".join(parts)),
            epilog=_fitted(_MORE_OF_RUN) if verb.name == RUN else None,
            formatter_class=_Help,
            usage=f"{PROGRAM} {verb.name} {verb.usage}",
            allow_abbrev=False,
        )
        if verb in asked:
            _fill(made, verb)
    return parser


def _fill(parser: _Parser, verb: Verb) -> None:
    """Add what a command takes."""
    if not any(flag.name == "version" for flag in verb.flags):
        parser.add_argument("--version", action="version", version=version_text())
    if verb.actions:
        words = tuple(word for word, _ in verb.actions)
        first = None if verb.without_action else words[0]
        text = verb.without_action or f"What to do; {first} if left out."
        shown = f"{{{','.join(words)}}}"
        parser.add_argument(
            "action", nargs="?", type=_one_of(words), metavar=shown, default=first, help=text
        )
    if verb.words:
        parser.add_argument("words", nargs="*", metavar=verb.words, help="Any number of them.")
    for flag in verb.flags:
        words = words_of(flag.metavar)
        how: dict[str, Any] = {
            "metavar": flag.metavar,
            "action": _Once,
            "type": _one_of(words) if words else str,
        }
        if flag.switch:
            more = (
                {"nargs": "?", "metavar": flag.metavar}
                if flag.metavar
                else {"action": "store_const"}
            )
            how = {"const": "true", **more}
        if flag.repeatable:
            how["action"] = "append"
        parser.add_argument(*flags_of(flag), help=flag.help.replace("%", "%%"), **how)
    for name in GROUPS:
        options = [option for option in verb.options if option.group == name]
        if not options:
            continue
        group = parser.add_argument_group(name)
        for option in options:
            if not option.flag:
                # It is explained with its group, since it comes from the environment alone.
                group.description = f"{option.environment}: {option.help}"
                continue
            how = {"nargs": "?", "const": "true"} if option.switch else {}
            if option.repeatable:
                how = {"action": "append"}
            # argparse formats its help by %.
            text, placeholder = help_text(option).replace("%", "%%"), option.metavar
            group.add_argument(
                *flags_of(option), dest=option.keyword, metavar=placeholder, help=text, **how
            )


def _one_of(words: Sequence[str]) -> Callable[[str], str]:
    """Return a function that takes one of `words`, and names the nearest one for any other."""

    def take(word: str) -> str:
        if word not in words:
            known = ", ".join(words)
            raise argparse.ArgumentTypeError(
                f"invalid choice: {word!r} (choose from {known}){did_you_mean(word, words)}"
            )
        return word

    return take


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


def help_text(option: Option) -> str:
    """Return the help of an option: its meaning, then its default and its other names."""
    others = [f"default: {option.default_text}", option.environment]
    if option.toml_key:
        table, _, key = option.toml_key.rpartition(".")
        others.append(f"[{table}] {key}")
    if option.uri:
        others.append(f"{option.uri[0]} URI {option.uri[1]}=")
    return f"{option.help}\n({'; '.join(others)})"
