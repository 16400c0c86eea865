"""SQL text as tokens: names and clauses are seen, strings and comments are not taken for them."""

from __future__ import annotations

import pytest

from storage_consumer.sql.tokens import closing, elements, find_words, has_words, names, quote, replace_spans, tokens


@pytest.mark.parametrize(
    "sql",
    [
        "'it''s RENAME'",
        r"'a\'RENAME'",
        '"say ""RENAME"""',
        r'"\"RENAME"',
        "`RENAME`",
        "`a``RENAME`",
        "/* RENAME */",
        "/*T![auto_rand] RENAME */",
        "-- RENAME\n",
        "# RENAME\n",
        "/* ' */ /* RENAME */ 'x'",
    ],
)
def test_hidden_words(sql: str) -> None:
    """A word in a string, a quoted name or a comment is no keyword, and what follows is still seen."""
    found = tokens(f"ALTER TABLE `t` COMMENT {sql} DROP x")
    assert not has_words(found, "RENAME")
    assert has_words(found, "DROP")


def test_minus_is_no_comment() -> None:
    """Two minus signs without a space are arithmetic."""
    assert has_words(tokens("SELECT 1--RENAME"), "RENAME")


def test_keywords_in_any_case() -> None:
    """Words are found in any case, in sequence, from a place on, at a depth."""
    found = tokens("create Table t (like u) LIKE v")
    assert find_words(found, "CREATE", "TABLE") == 0
    assert find_words(found, "TABLE", "CREATE") == -1
    assert find_words(found, "LIKE") == 4
    assert find_words(found, "LIKE", depth=0) == find_words(found, "LIKE", start=5) == 7
    assert find_words(found, "V", "W") == -1


def test_names() -> None:
    """Names with and without a schema, quoted or not, with backquotes and points inside."""
    found = tokens("`a`.`b` c.d `e``.f` 'g' 5 `ünï`.`表`")
    assert [(schema, table) for schema, table, _ in names(found)] == [
        ("a", "b"),
        ("c", "d"),
        ("", "e`.f"),
        ("", "5"),
        ("ünï", "表"),
    ]


def test_spans_give_back_the_text() -> None:
    """Each token says where its text is."""
    sql = "CREATE TABLE `a b`(\n`x` INT /* , */ DEFAULT '(', PRIMARY KEY(`x`))"
    assert all(sql[token.start : token.end] == token.text for token in tokens(sql))


def test_parentheses() -> None:
    """Elements are cut at the commas of their own depth; a parenthesis in a string is none."""
    found = tokens("T (a DECIMAL(1,2) DEFAULT ')', KEY (a, b)) X")
    end = closing(found, 1)
    assert found[end + 1].text == "X"
    parts = [" ".join(token.text for token in found[a:b]) for a, b in elements(found, 1, end)]
    assert parts == ["a DECIMAL ( 1 , 2 ) DEFAULT ')'", "KEY ( a , b )"]
    assert closing(tokens("(a"), 0) == -1


def test_unbalanced_text() -> None:
    """Text that is no SQL gives tokens all the same, at a depth of 0 or more."""
    assert [token.depth for token in tokens("))(x")] == [0, 0, 0, 1]
    assert [token.kind for token in tokens("'abc")] == ["symbol", "word"]


def test_replace_spans() -> None:
    """Edits are put in at their places of the original text, in whatever order they come."""
    assert replace_spans("abcdef", [(1, 2, "BB"), (4, 6, ""), (0, 0, ">")]) == ">aBBcd"


@pytest.mark.parametrize(("name", "quoted"), [("a", "`a`"), ("a`b", "`a``b`"), ("`; DROP", "```; DROP`")])
def test_quote(name: str, quoted: str) -> None:
    """A quoted name is one token again, and means the same name."""
    assert quote(name) == quoted
    assert [token.name for token in tokens(quoted)] == [name]
