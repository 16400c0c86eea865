"""The table of options is complete and free of clashes, and the example files follow it."""

from __future__ import annotations

import dataclasses
import re
import tomllib
from collections import Counter
from pathlib import Path

import pytest

from storage_consumer.cli.arguments import help_text
from storage_consumer.config.load import Program, load
from storage_consumer.config.options import BY_KEYWORD, ENVIRONMENT_PREFIX, GROUPS, OPTIONS, OWN_TABLE, Option
from storage_consumer.config.settings import Tuning
from storage_consumer.config.uris import DOWNSTREAM_PARAMETERS, UPSTREAM_PARAMETERS

CONF = Path(__file__).resolve().parents[3] / "conf"


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: str(option.name))
def test_every_option_explains_itself(option: Option) -> None:
    """An option has a help text of at least a sentence, in a known group, that names its environment variable."""
    assert len(option.help.split()) >= 5
    assert option.help.rstrip(")").endswith(".")
    assert option.group in GROUPS
    assert option.environment in help_text(option)


def test_names_are_unique() -> None:
    """No two options share a keyword, an environment variable, a TOML key or a URI parameter."""
    keywords = Counter(keyword for option in OPTIONS for keyword in option.keywords)
    environment = Counter(option.environment for option in OPTIONS)
    keys = Counter(option.toml_key for option in OPTIONS if option.toml_key)
    parameters = Counter(option.uri for option in OPTIONS if option.uri)
    assert [name for counted in (keywords, environment, keys, parameters) for name, n in counted.items() if n > 1] == []


def test_every_environment_variable_has_our_prefix() -> None:
    """Nobody else's variable is read."""
    assert all(re.fullmatch(rf"{ENVIRONMENT_PREFIX}[A-Z_]+", option.environment) for option in OPTIONS)


def test_every_uri_parameter_of_an_option_is_known_to_its_uri() -> None:
    """An option's URI parameter is taken by the parser of that URI."""
    known = {"upstream": UPSTREAM_PARAMETERS, "downstream": DOWNSTREAM_PARAMETERS}
    assert all(option.uri[1] in known[option.uri[0]] for option in OPTIONS if option.uri)


def test_every_tuning_is_an_option() -> None:
    """No setting of `Tuning` is out of the user's reach."""
    assert {field.name for field in dataclasses.fields(Tuning)} <= BY_KEYWORD.keys()


def test_defaults_parse_to_themselves() -> None:
    """A default given by hand means the same as none."""
    given = {option.keyword: option.default for option in OPTIONS if option.default not in {"", None}}
    given |= {"upstream_uri": "file:///x?protocol=csv", "downstream_uri": "mysql://h:1/", "include_commit_ts": True}
    short = {key: given[key] for key in ("upstream_uri", "downstream_uri", "include_commit_ts")}
    assert load(given, {}).config == load(short, {}).config
    assert load(short, {}).program == Program()


@pytest.mark.parametrize("file", sorted(CONF.glob("*.toml")), ids=lambda file: str(file.name))
def test_every_example_file_loads(file: Path) -> None:
    """Each conf/*.toml is taken as it stands."""
    protocol = "canal-json&enable-tidb-extension=true" if "canal" in file.name else "csv"
    uris = {"upstream_uri": f"s3://bucket/prefix?protocol={protocol}", "downstream_uri": "mysql://app@db:3306/"}
    loaded = load({**uris, "config": file, "include_commit_ts": True if file.name == "consumer.toml" else None}, {})
    assert loaded.config.upstream.protocol in protocol


def test_the_example_of_our_own_table_shows_every_key_with_its_default() -> None:
    """conf/consumer.toml names each key of [consumer]; its commented values are the defaults."""
    text = (CONF / "consumer.toml").read_text(encoding="utf-8")
    shown = tomllib.loads(re.sub(r"(?m)^# (?=[a-z-]+ = )", "", text))[OWN_TABLE]
    own = {option.name: option for option in OPTIONS if option.toml_key == f"{OWN_TABLE}.{option.name}"}
    assert set(shown) == set(own)
    examples = {"tz", "upstream-uri", "downstream-uri", "downstream-password-file", "standby", "ready-lag"}
    examples |= {"ssl-ca", "ssl-cert", "ssl-key", "ssl-mode", "on-halt"}
    assert {name: own[name].parse(shown[name]) for name in own.keys() - examples} == {
        name: own[name].default for name in own.keys() - examples
    }
