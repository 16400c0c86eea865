"""Log lines: declared events, TSO with their time, no secrets, text or JSON."""

from __future__ import annotations

import ast
import json
import logging
import re
import threading
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage_consumer import telemetry
from storage_consumer.errors import ConfigError
from storage_consumer.telemetry import TSO_FIELDS, UNSEEN, JsonFormatter, Log, Said, TextFormatter
from tests.harness.log_events import EVENTS

PACKAGE = Path(telemetry.__file__).parent
TSO = 449_000_000_000_000_001
TSO_TIME = "2024-04-11T01:31:12.265Z"
SAYING = {"debug", "info", "warning", "error"}


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Give the process's logging back as it was, with the listeners that others have left in it."""
    monkeypatch.setattr(telemetry, "_listeners", ())
    root = logging.getLogger()
    before = (root.level, list(root.handlers), logging.getLogger(telemetry.ROOT).level)
    # Where another test has left them captured, pytest has taken the capture away since, and a second one does nothing.
    logging.captureWarnings(capture=False)
    yield
    for handler in [each for each in root.handlers if each not in before[1]]:
        root.removeHandler(handler)
        handler.close()
    root.setLevel(before[0])
    logging.getLogger(telemetry.ROOT).setLevel(before[2])
    logging.captureWarnings(capture=False)
    telemetry.forget_secrets()
    telemetry.around_writes(None)
    assert telemetry._listeners == ()


class Written:
    """All that was written to standard error so far."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        """`capsys` gives what is new."""
        self._capsys = capsys
        self._text = ""

    def getvalue(self) -> str:
        """The text."""
        self._text += self._capsys.readouterr().err
        return self._text


@pytest.fixture
def stderr(capsys: pytest.CaptureFixture[str]) -> Written:
    """What is written to standard error."""
    return Written(capsys)


LOG = re.compile(r"_(\w+_)?log\b")
"""The name of a module's logger."""


def _levels(function: ast.expr) -> set[str]:
    """Return the levels at which a call of `function` says an event: ``_log.info`` and the like, or one of two."""
    if isinstance(function, ast.IfExp):
        return _levels(function.body) | _levels(function.orelse)
    if not isinstance(function, ast.Attribute) or function.attr not in SAYING:
        return set()
    return {function.attr} if LOG.match(ast.unparse(function.value)) else set()


@cache
def _calls() -> list[tuple[Path, ast.Call]]:
    """Return every call of the package that says an event, with its file."""
    calls: list[tuple[Path, ast.Call]] = []
    for path in sorted(PACKAGE.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        if not any(isinstance(node, ast.Name) and LOG.match(node.id) for node in ast.walk(tree)):
            continue
        calls += [(path, node) for node in ast.walk(tree) if isinstance(node, ast.Call) and _levels(node.func)]
    return calls


def _name(call: ast.Call) -> str:
    """Return the event that a call says."""
    return str(ast.literal_eval(call.args[0]))


def _given(path: Path, call: ast.Call) -> set[str]:
    """Return the fields that a call gives; where it passes a mapping on, every text of its module may be one."""
    if all(keyword.arg for keyword in call.keywords):
        return {keyword.arg for keyword in call.keywords if keyword.arg}
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    texts = {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    return texts | {keyword.arg for keyword in call.keywords if keyword.arg}


def test_every_event_is_declared() -> None:
    """Each event said anywhere in the package, and each of its fields, is declared in the page of events."""
    undeclared: list[str] = []
    for path, call in _calls():
        name, place = _name(call), f"{path.relative_to(PACKAGE)}:{call.lineno}"
        if name not in EVENTS:
            undeclared.append(f"{place} {name}")
            continue
        fields = EVENTS[name].fields
        undeclared += [f"{place} {name} {each.arg}" for each in call.keywords if each.arg and each.arg not in fields]
    assert undeclared == []


def test_every_declared_event_is_said() -> None:
    """The page holds no event that no part of the package says, and no field that no call gives."""
    given: dict[str, set[str]] = {}
    for path, call in _calls():
        given.setdefault(_name(call), set()).update(_given(path, call))
    assert EVENTS.keys() - given.keys() == set()
    assert {name: gone for name, event in EVENTS.items() if (gone := set(event.fields) - given[name])} == {}


def test_every_event_has_its_levels() -> None:
    """The page gives the levels at which each event is said."""
    said: dict[str, set[str]] = {}
    for _, call in _calls():
        said.setdefault(_name(call), set()).update(_levels(call.func))
    assert {name: set(event.levels) for name, event in EVENTS.items()} == said


@pytest.mark.parametrize("name", EVENTS)
def test_every_event_has_a_meaning(name: str) -> None:
    """An operator can look up what an event means."""
    assert re.fullmatch(r"[a-z]+(_[a-z]+)*", name)
    assert len(EVENTS[name].meaning.split()) >= 3
    assert EVENTS[name].meaning.endswith(".")


def test_a_line_of_text_has_time_level_event_and_fields(stderr: Written) -> None:
    """Values with blanks, quotes or line breaks are quoted, so that an event is one line."""
    telemetry.configure()
    Log("test").info("ddl_started", table="a.b", query='DROP "x"\nnow', version=TSO, rows=3, seconds=1.23456, none=None)
    line = stderr.getvalue()
    assert re.match(r"time=\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z level=INFO event=ddl_started ", line)
    assert line.endswith(
        f'table=a.b query="DROP \\"x\\"\\nnow" version={TSO} version_time={TSO_TIME} rows=3 seconds=1.235 none=null\n'
    )
    assert line.count("\n") == 1


_TEXTS = st.text(st.characters() | st.sampled_from(' ="\\\n\r\t{}[],\u202e\x7f\x00'), max_size=12)
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | _TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXTS, inner, max_size=3),
    max_leaves=4,
)
_PAIR = re.compile(r'([a-z_]+)=("(?:[^"\\]|\\.)*"|[^\s"=]+)( |$)')


def _parsed(line: str) -> dict[str, str]:
    """Return the fields of a line as readers of logfmt have them: texts, those in quotes with the escapes of JSON."""
    found, place = {}, 0
    while place < len(line):
        pair = _PAIR.match(line, place)
        assert pair, line[place:]
        name, value, _ = pair.groups()
        assert name not in found
        found[name] = json.loads(value) if value.startswith('"') else value
        place = pair.end()
    return found


@given(st.dictionaries(st.sampled_from(sorted({*TSO_FIELDS, "table", "error", "more", "text"})), _VALUES))
def test_a_line_of_text_parses_to_its_fields(fields: dict[str, object]) -> None:
    """Whatever a field holds, the line is one of logfmt with the fields of the JSON line: a text as it is, others as JSON."""
    record = logging.LogRecord("storage_consumer.x", logging.WARNING, "", 0, "%s", (Said("notice", fields),), None)
    line = TextFormatter().format(record)
    assert UNSEEN.search(line) is None
    expected = json.loads(JsonFormatter().format(record))
    del expected["component"]
    found = _parsed(line)
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert found[name] == value if isinstance(value, str) else json.loads(found[name]) == value


def test_a_traceback_is_a_field(stderr: Written) -> None:
    """An error with its traceback is one line too."""
    telemetry.configure(level="debug")
    try:
        int("x y")
    except ValueError as error:
        Log("test").error("failed", error=str(error))
    (line,) = stderr.getvalue().splitlines()
    assert _parsed(line)["traceback"].startswith("Traceback (most recent call last):\n")


def test_a_line_of_json_has_the_same(stderr: Written) -> None:
    """JSON keeps numbers as numbers and gives a TSO's time a field of its own."""
    telemetry.configure(style="json")
    Log("test").warning("table_halted", table="a.b", checkpoint=TSO, error="x\ny", skipped={"late": 2}, empty=[])
    line = json.loads(stderr.getvalue())
    assert line.pop("time").endswith("Z")
    assert line == {
        "level": "WARN",
        "event": "table_halted",
        "component": "test",
        "table": "a.b",
        "checkpoint": TSO,
        "checkpoint_time": TSO_TIME,
        "error": "x\ny",
        "skipped": {"late": 2},
        "empty": [],
    }


@pytest.mark.parametrize("value", [0, -1, True, 1 << 64, None, "7.5"])
def test_what_is_no_tso_has_no_time(value: object, stderr: Written) -> None:
    """A checkpoint of 0 says that there is none; it is not shown as 1970 (O10)."""
    telemetry.configure()
    Log("test").info("table_resumed", checkpoint=value)
    assert "1970" not in stderr.getvalue()
    assert "checkpoint_time" not in stderr.getvalue()


def test_tso_fields_are_fields_of_events() -> None:
    """No name is left in the set of TSO fields that nobody says."""
    assert TSO_FIELDS - {"commit_ts"} <= {field for event in EVENTS.values() for field in event.fields}


def test_levels_are_kept(stderr: Written) -> None:
    """What is below the level is not written."""
    telemetry.configure(level="warn")
    Log("test").info("started")
    Log("test").warning("notice", text="x")
    assert "started" not in stderr.getvalue()
    assert "level=WARN event=notice text=x" in stderr.getvalue()


@pytest.mark.parametrize("style", ["text", "json"])
def test_secrets_are_blanked_everywhere(style: str, stderr: Written) -> None:
    """A registered secret appears in no value, nested value, key, foreign message, or traceback, encoded or not (S1)."""
    secret = "s3cr/t +'\"ü"  # noqa: S105 - a planted one
    telemetry.register_secret(secret)
    telemetry.configure(level="debug", style=style)
    log = Log("test")
    log.info("notice", text=f"a {secret} b", more=[secret, {secret: secret}], error=ValueError(secret))
    log.info("notice", text="s3cr%2Ft%20%2B%27%22%C3%BC and s3cr%2Ft+%2B%27%22%C3%BC")
    logging.getLogger("foreign").warning("password=%s", secret)
    try:
        int(secret)
    except ValueError as error:
        log.error("failed", error=str(error))  # noqa: TRY400 - no method of a logger but of ours
        logging.getLogger("foreign").exception("oh")
    assert "s3cr" not in stderr.getvalue()
    assert telemetry.HIDDEN in stderr.getvalue()
    assert "Traceback" in stderr.getvalue()


def test_short_secrets_dont_blank_half_of_the_log(stderr: Written) -> None:
    """A password of fewer than four characters is blanked where it stands alone; numbers stay."""
    telemetry.register_secret("ab")
    telemetry.register_secret("")
    telemetry.configure()
    Log("test").info("notice", text="table ab_cd: ab, ab!", rows=7)
    assert 'text="table ab_cd: ***, ***!" rows=7' in stderr.getvalue()


def test_passwords_in_uris_are_blanked_without_being_registered() -> None:
    """Any URI's password is hidden, in case a library prints it."""
    assert telemetry.redact("to mysql+pymysql://app:geheim@h:3306/x now") == "to mysql+pymysql://app:***@h:3306/x now"
    assert telemetry.redact("file:///a:b/c at http://h:80/x@y") == "file:///a:b/c at http://h:80/x@y"


def test_a_long_word_is_redacted_at_once() -> None:
    """A statement may hold a word of any length, and whoever logs it waits: for a minute and more when time grew with its square."""
    words = ("e" * 200_000, "://" * 70_000, "a://b:" * 40_000)
    began = time.perf_counter()
    assert [telemetry.redact(word) for word in words] == list(words)
    assert time.perf_counter() - began < 5


def test_a_line_makes_sense_without_our_formatter(caplog: pytest.LogCaptureFixture) -> None:
    """A library user's own logging shows event and fields."""
    caplog.set_level(logging.INFO, logger=telemetry.ROOT)
    Log("test").info("table_resumed", table="a.b", checkpoint=TSO)
    assert caplog.messages == [f"table_resumed table=a.b checkpoint={TSO} checkpoint_time={TSO_TIME}"]


def test_a_log_file_is_written_and_replaces_the_earlier_place(tmp_path: Path, stderr: Written) -> None:
    """Configuring again moves the log; nothing is written twice."""
    file = tmp_path / "x.log"
    telemetry.configure()
    telemetry.configure(file=str(file))
    Log("test").info("started")
    assert file.read_text().count("level=INFO event=started") == 1
    assert stderr.getvalue() == ""


def test_a_log_file_that_wont_open_is_a_wrong_setting(tmp_path: Path) -> None:
    """The message names the flag, the file and the reason."""
    with pytest.raises(ConfigError, match=r"--log-file .*x\.log: it cannot be written: No such file"):
        telemetry.configure(file=str(tmp_path / "nowhere" / "x.log"))


def test_noisy_libraries_are_quiet_and_warnings_are_lines(stderr: Written) -> None:
    """py4j's chatter is left out; a Python warning becomes a line like any other."""
    telemetry.configure(level="debug")
    logging.getLogger("py4j.clientserver").warning("chatter")
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.warn("odd", UserWarning, stacklevel=1)
    assert "chatter" not in stderr.getvalue()
    assert "level=WARN event=log logger=py.warnings" in stderr.getvalue()


def test_a_progress_bar_steps_aside_for_each_line(stderr: Written) -> None:
    """The context given to `around_writes` is open around each line."""
    opened: list[str] = []

    def context() -> AbstractContextManager[object]:
        opened.append(stderr.getvalue())
        return nullcontext()

    telemetry.configure()
    telemetry.around_writes(context)
    Log("test").info("started")
    telemetry.around_writes(None)
    Log("test").info("stopped")
    assert opened == [""]


def test_a_listener_hears_every_event_until_it_is_removed(stderr: Written) -> None:
    """It gets name, level and all fields, also of events below the log level; one added twice is removed once at a time."""
    telemetry.configure(level="error")
    heard: list[tuple[str, int, dict[str, object]]] = []

    def hear(name: str, level: int, fields: Mapping[str, object]) -> None:
        heard.append((name, level, dict(fields)))

    log = Log("test")
    remove, remove_again = telemetry.listen(hear), telemetry.listen(hear)
    log.debug("ddl_started", table="a.b", version=TSO)
    assert heard == [("ddl_started", logging.DEBUG, {"table": "a.b", "version": TSO})] * 2
    remove()
    remove()
    log.error("table_halted")
    assert [name for name, _, _ in heard[2:]] == ["table_halted"]
    remove_again()
    log.error("table_halted")
    assert len(heard) == 3
    assert stderr.getvalue().count("table_halted") == 2


def test_a_listener_that_fails_disturbs_nobody(stderr: Written) -> None:
    """Its error is logged once, the event is logged each time, and the other listeners are called."""
    telemetry.configure()
    heard: list[str] = []

    def fail(name: str, level: int, fields: Mapping[str, object]) -> None:
        raise ValueError(name)

    removes = (telemetry.listen(fail), telemetry.listen(lambda name, *_: heard.append(name)))
    for _ in range(3):
        Log("test").info("table_resumed")
    for remove in removes:
        remove()
    lines = stderr.getvalue()
    assert (
        lines.count("level=INFO event=table_resumed"),
        lines.count("listener_failed"),
        lines.count("ValueError"),
    ) == (3, 1, 1)
    assert heard == ["table_resumed"] * 3


def test_a_listener_may_log(stderr: Written) -> None:
    """What a listener says is logged and starts no endless chain, in any thread."""
    telemetry.configure()
    remove = telemetry.listen(lambda *_: Log("test").info("notice", text="heard"))
    threads = [threading.Thread(target=Log("test").info, args=("table_resumed",)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    remove()
    assert (stderr.getvalue().count("event=table_resumed"), stderr.getvalue().count("event=notice text=heard")) == (
        8,
        8,
    )
