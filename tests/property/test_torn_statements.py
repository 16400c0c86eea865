"""Statements of TiDB's grammar with words gone, doubled or put in: never an error of ours, whatever the server says of them."""

from __future__ import annotations

from contextlib import suppress

from hypothesis import given
from hypothesis import strategies as st

from storage_consumer.errors import NotReplicable
from storage_consumer.sql.tokens import tokens
from storage_consumer.target.ddl.translate import action_for
from storage_consumer.target.existing_names import PartNames
from tests.campaigns.grammar.form import Form
from tests.campaigns.grammar.forms import ALL
from tests.unit.building import definition

_WORDS = ("DEFAULT", "GENERATED", "COLLATE", "(", ")", "AS", "KEY", "SET", "ADD", "REFERENCES", "CHARACTER", "WHERE", "=", "9" * 30, "x")  # fmt: skip
_THERE = PartNames(
    columns=frozenset(("id", "v")),
    generated=frozenset(("v",)),
    indexes=frozenset(("i",)),
    collation="utf8mb4_bin",
)


@given(
    st.sampled_from(ALL),
    st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.sampled_from(("gone", "cut", *_WORDS))), max_size=4),
    st.sampled_from(("mariadb", "mysql", "tidb")),
    st.sampled_from((None, _THERE)),
)
def test_torn(form: Form, changes: list[tuple[float, str]], server_type: str, names: PartNames | None) -> None:
    """A statement that nobody understands goes to the server, which refuses it."""
    text = form.statements[-1]
    words = [token.text for token in tokens(text)]
    for place, change in changes:
        at = int(place * len(words))
        words[at : len(words) if change == "cut" else at + 1] = [] if change in ("gone", "cut") else [change]
    with suppress(NotReplicable):
        action_for(definition("s/t", 1, " ".join(words)), server_type, "latin1_bin", names)
