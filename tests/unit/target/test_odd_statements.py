"""Texts that are no statements: what is put in or taken out of a statement never depends on its being one."""

from __future__ import annotations

import re

import pytest

from storage_consumer.errors import NotReplicable
from storage_consumer.sql.tokens import tokens
from storage_consumer.target.ddl.translate import action_for
from storage_consumer.target.existing_names import PartNames, matters_for, to_integers
from tests.unit.building import definition
from tests.unit.target.test_names import AS_TYPED, CHANGED, THERE, UNCHANGED

_TEXTS = sorted({*(query for _, _, query, _ in (*CHANGED, *AS_TYPED)), *UNCHANGED})
_ODD = [
    "",
    ";",
    "(",
    ")",
    "`",
    "'",
    "/*",
    "/*T![x",
    "ALTER TABLE",
    "ALTER TABLE `t` ,,",
    "CREATE TABLE `t` (",
    "\x00",
    "😀 `",
]


def read_every_way(query: str) -> None:
    """All that is asked of a statement's text, for every server; refusals are answers."""
    found = tokens(query)
    to_integers(found)
    matters_for(found)
    for server_type in ("mariadb", "mysql", "tidb"):
        for names in (None, PartNames(), THERE):
            try:
                action_for(definition("s/t", 1, query), server_type, "latin1_bin", names)
            except NotReplicable:
                continue


@pytest.mark.parametrize("query", _TEXTS)
def test_pieces_of_statements(query: str) -> None:
    """Every beginning and every end of a statement, cut between its words, gives an answer or a refusal, never another fault."""
    for cut in re.finditer(r"\b|$", query):
        read_every_way(query[: cut.start()])
        read_every_way(query[cut.start() :])


@pytest.mark.parametrize("query", _ODD)
def test_odd_texts(query: str) -> None:
    """The same for what looks like no statement at all."""
    read_every_way(query)
