"""The command line: every option is a flag, Go's spelling is taken, mistakes are named."""

from __future__ import annotations

import importlib
import re
import shlex
import time

import pytest

from storage_consumer.cli.arguments import parse
from storage_consumer.cli.verb import Verb
from storage_consumer.cli.verbs import RUN, VERBS
from storage_consumer.config.options import BY_KEYWORD, OPTIONS, PRECEDENCE, Option
from storage_consumer.errors import ConfigError
from storage_consumer.model import tso_of


@pytest.mark.parametrize("option", [option for option in OPTIONS if option.flag], ids=lambda option: str(option.name))
@pytest.mark.parametrize("dashes", ["-", "--"])
@pytest.mark.parametrize("joined", [True, False])
def test_every_option_is_a_flag_with_one_dash_or_two(option: Option, dashes: str, joined: bool) -> None:  # noqa: FBT001 - a variant
    """``-flag=value``, ``-flag value`` and the same with two dashes give the option's keyword its text."""
    if option.switch and not joined:
        assert parse(["run", f"{dashes}{option.name}"]) == ("run", {option.keyword: "true"})
        return
    words = [f"{dashes}{option.name}=false"] if joined else [f"{dashes}{option.name}", "false"]
    assert parse(["run", *words]) == ("run", {option.keyword: ["false"] if option.repeatable else "false"})


def test_the_reference_consumers_command_line_works_unchanged() -> None:
    """Without a verb, run is meant; all of the reference consumer's flags are there."""
    line = (
        "-upstream-uri file:///x?protocol=csv -downstream-uri mysql://root@h:3306/ -config c.toml -log-file l -log-level debug "
        "-flush-interval 2s -file-index-width 20 -enable-profiling=false -tz System"
    )
    verb, options = parse(line.split())
    assert verb == "run"
    assert set(options) == {
        *("upstream_uri", "downstream_uri", "config", "log_file", "log_level", "flush_interval", "file_index_width"),
        *("enable_profiling", "tz"),
    }


def test_the_name_of_ticdcs_flag_is_taken() -> None:
    """--sink-uri is another name of --upstream-uri."""
    assert parse(["--sink-uri", "s3://b/p"])[1] == {"upstream_uri": "s3://b/p"}


def test_a_value_may_begin_with_a_dash() -> None:
    """A time zone west of Greenwich needs no special spelling."""
    assert parse(["run", "--tz", "-08:00", "--once"])[1] == {"tz": "-08:00", "once": "true"}


def test_a_window_may_be_said_as_so_long_ago() -> None:
    """By this machine's clock; its end is the last TSO of its millisecond. What is no duration is refused."""
    now = tso_of(time.time())
    own, _ = VERBS["changes"].divided(parse(["changes", "--from", "-1h30m", "--to=-5m"])[1])
    assert 0 <= own.from_ - (now - (5_400_000 << 18)) < 60_000 << 18
    assert 0 <= own.to - (now - (300_000 << 18)) < 60_000 << 18
    assert own.to & (1 << 18) - 1 == (1 << 18) - 1
    for wrong, told in (("-1", "a duration like"), ("-9999999999999h", "before 1970"), ("1h", "a TSO or a time")):
        with pytest.raises(ConfigError, match=f"--from: .*{told}"):
            VERBS["changes"].divided({"from": wrong})


def test_config_may_be_given_several_times() -> None:
    """All files are kept, in order."""
    assert parse(["--config", "a", "--config=b"])[1] == {"config": ["a", "b"]}


def test_a_flag_of_other_commands() -> None:
    """It is no unknown word, whose nearest known one would be itself; the suggestions are flags of the command."""
    with pytest.raises(
        ConfigError, match=re.escape("`tso` takes no flag `--upstream-uri`, which other commands have; see")
    ):
        parse(["tso", "--upstream-uri", "x"])
    with pytest.raises(ConfigError, match=re.escape("there is no flag `--upstream-urii`; see")):
        parse(["tso", "--upstream-urii=x"])


def test_no_password_is_taken_on_the_command_line() -> None:
    """There is no flag for the password itself, and the message leads to the file."""
    assert not BY_KEYWORD["downstream_password"].flag
    with pytest.raises(ConfigError, match=re.escape("did you mean `--downstream-password-file`?")) as caught:
        parse(["--downstream-password=geheim"])
    assert "geheim" not in str(caught.value)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["run", "--upstream-urii", "x"], "there is no flag `--upstream-urii`; did you mean `--upstream-uri`?"),
        (["-flush-intervall=2s"], "there is no flag `--flush-intervall`; did you mean `--flush-interval`?"),
        (["run", "--onc"], "did you mean `--once`?"),
        (["runn"], "there is no command `runn`; did you mean `run`?"),
        (["run", "extra"], "there is no argument `extra`"),
        (["run", "--tz"], "argument --tz: expected one argument"),
    ],
)
def test_mistakes_are_named_with_the_nearest(words: list[str], message: str) -> None:
    """An unknown flag, command or argument is an error that names what was probably meant (P12)."""
    with pytest.raises(ConfigError, match=re.escape(message)):
        parse(words)


@pytest.mark.parametrize("words", [["--help"], ["-h"], ["-help"], ["run", "--help"]])
def test_help_teaches(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Help says what the program does, shows a first command for both storages, and explains password, codes and precedence."""
    with pytest.raises(SystemExit) as end:
        parse(words)
    # How wide it is depends on the terminal.
    text = " ".join(capsys.readouterr().out.split())
    assert end.value.code == 0
    for part in (
        "file:///",
        "s3://",
        "STORAGE_CONSUMER_DOWNSTREAM_PASSWORD",
        "exit codes",
        "SIGTERM",
        PRECEDENCE,
        "[consumer]",
    ):
        assert part in text


def test_help_of_run_names_every_option(capsys: pytest.CaptureFixture[str]) -> None:
    """Each flag, environment variable and default is in the help of run."""
    with pytest.raises(SystemExit):
        parse(["run", "--help"])
    text = capsys.readouterr().out
    for option in OPTIONS:
        assert option.environment in text
        assert not option.flag or f"--{option.name}" in text


@pytest.mark.parametrize(
    "words",
    [
        ["quarantine", "drop", "--table", "d.a", "--table", "d.b"],
        ["ddl", "done", "--table", "d.a", "--version", "1", "--version=2"],
        ["history", "--table", "d.a", "--at", "1", "--at", "2"],
    ],
)
def test_flag_of_a_command_said_twice(words: list[str]) -> None:
    """One of them would be left out without a word, of two tables to drop rows of, say."""
    with pytest.raises(ConfigError, match="may be given only once"):
        parse([*words, "--downstream-uri", "mysql://h/"])


@pytest.mark.parametrize("words", [[], ["help"], ["--help"]])
def test_the_commands_are_listed(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """The program without arguments shows all commands with a line each, as ``help`` does."""
    with pytest.raises(SystemExit) as end:
        parse(words)
    assert end.value.code == 0
    shown = capsys.readouterr().out
    for verb in VERBS.values():
        assert re.search(rf"^    {verb.name} +{verb.summary.split()[0]} ", shown, re.MULTILINE)


@pytest.mark.parametrize("verb", VERBS.values(), ids=lambda verb: str(verb.name))
def test_help_of_a_command(verb: Verb, capsys: pytest.CaptureFixture[str]) -> None:
    """``help VERB`` shows what ``VERB --help`` shows: actions, examples, flags, options, exit codes; each example can be typed."""
    shown = []
    for words in (["help", verb.name], [verb.name, "--help"]):
        with pytest.raises(SystemExit) as end:
            parse(words)
        assert end.value.code == 0
        shown.append(capsys.readouterr().out)
    assert shown[0] == shown[1]
    parts = [*(word for word, _ in verb.actions), *(f"--{flag.name}" for flag in verb.flags), "exit codes:"]
    parts += [f"--{option.name}" for option in verb.options if option.flag]
    assert [part for part in parts if part not in shown[0]] == []
    for example in verb.examples:
        assert parse(shlex.split(example.replace(" …", "")))[0] == verb.name


def test_help_of_an_unknown_command() -> None:
    """The nearest command is named."""
    with pytest.raises(ConfigError, match="there is no command `tablee`; did you mean `table`"):
        parse(["help", "tablee"])


@pytest.mark.parametrize("flag", ["-V", "--version"])
def test_version(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Program, Python and PySpark are named with their versions."""
    with pytest.raises(SystemExit) as end:
        parse([flag])
    assert end.value.code == 0
    assert re.match(r"storage-consumer \S+ \(Python 3\.\d+\.\d+, PySpark \S+\)", capsys.readouterr().out)


def test_every_command_has_its_code() -> None:
    """The module that the table names for a command can be imported, and answers."""
    for verb in VERBS.values():
        if verb.name != RUN:
            module = importlib.import_module(f"storage_consumer.cli.{verb.module}")
            assert callable(getattr(module, f"answer_{verb.name}"))
