"""Whom --on-halt calls."""

from __future__ import annotations

import pytest

from storage_consumer.config.commands import run_command
from storage_consumer.config.hooks import hooks
from storage_consumer.config.load import load
from storage_consumer.errors import ConfigError

URIS: dict[str, object] = {"upstream_uri": "file:///b?protocol=csv", "downstream_uri": "mysql://app@db:3306/"}
SLACK = "https://hooks.slack.com/services/T000/B000/aaaabbbb"


@pytest.mark.parametrize(
    ("text", "shown", "hidden"),
    [
        (SLACK, "https://hooks.slack.com/…", (SLACK, "/services/T000/B000/aaaabbbb")),
        ("http://u:p%40ss@h:81/", "http://h:81/", ("http://u:p%40ss@h:81/", "p%40ss", "p@ss")),
        ("https://token@h", "https://h/", ("https://token@h", "token", "token")),
        ("page", "page", ()),
        ("curl -H 'Auth: x' https://h/", "curl …", ()),
    ],
)
def test_a_message_shows_little_of_a_hook(text: str, shown: str, hidden: tuple[str, ...]) -> None:
    """Scheme and host, or the program; path, query, name, password and arguments may be secrets."""
    (hook,) = hooks(text)
    assert (hook.shown, hook.hidden, repr(hook)) == (shown, hidden, f"Hook({shown})")


@pytest.mark.parametrize(
    "text",
    ["ftp://h/opensesame", "https:///opensesame", "http://h:x/opensesame", "HTTP://", "page 'opensesame", "''", 7],
)
def test_a_hook_that_cannot_be_read_is_a_wrong_setting(text: object) -> None:
    """The message says what is expected, and quotes nothing."""
    with pytest.raises(ConfigError, match=r"^--on-halt: ") as refused:
        load({**URIS, "on_halt": text}, {})
    assert "opensesame" not in str(refused.value)


def test_hooks_come_from_every_place() -> None:
    """From flags, keyword, environment (one per line) and the TOML file; their addresses are hidden from then on."""
    two = ["page --now", SLACK]
    for given, environ in (
        ({"on_halt": two}, {}),
        ({"on_halt": "page --now\n\n" + SLACK}, {}),
        ({}, {"STORAGE_CONSUMER_ON_HALT": "page --now\n" + SLACK}),
        ({"config": {"consumer": {"on-halt": two}}}, {}),
    ):
        loaded = load({**URIS, **given}, environ)
        assert [hook.text for hook in loaded.program.on_halt] == two
        assert SLACK in loaded.hidden
    assert load(URIS, {}).program.on_halt == ()


def test_the_command_to_go_on_with_shows_no_hook() -> None:
    """An address, and the arguments of a command, are blanked; the name of a program is not."""
    given = load({**URIS, "on_halt": [SLACK, "page", "page --token x"]}, {}).config
    assert " --on-halt '***' --on-halt page --on-halt '***' " in run_command(given)
