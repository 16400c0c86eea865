"""The tables that a SELECT takes its rows from."""

from __future__ import annotations

import pytest

from storage_consumer.sql.parse import sources
from storage_consumer.sql.tokens import tokens


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SELECT 1", ""),
        ("SELECT 1 FROM DUAL", ""),
        ("SELECT `a` FROM `t`", "t"),
        ("SELECT `a` FROM `s`.`t` AS `x`", "s.t+"),
        ("SELECT a FROM t x WHERE a IN (SELECT b FROM u)", "t+ u"),
        ("SELECT a FROM t JOIN u ON t.a=u.a, v", "t u v"),
        ("SELECT a FROM (t, u) LEFT JOIN ((v) JOIN w USING (a, b)) ON 1", "t u v w"),
        ("SELECT a FROM t STRAIGHT_JOIN u NATURAL JOIN v CROSS JOIN w", "t u v w"),
        ("SELECT a FROM t USE INDEX FOR JOIN (i, j) IGNORE INDEX (k), u FORCE KEY (l)", "t u"),
        ("SELECT a FROM t PARTITION (p0, p1) AS x, u PARTITION (p2)", "t+ u"),
        ("SELECT a FROM (SELECT b FROM t WHERE c ORDER BY d, e) AS x, u", "t u"),
        ("SELECT EXTRACT(YEAR FROM c), TRIM('x' FROM d), SUBSTRING(e FROM 1 FOR 2) FROM t", "t"),
        ("SELECT (SELECT MAX(a) FROM t GROUP BY b, c), d FROM u", "t u"),
        ("SELECT a FROM t UNION ALL SELECT b FROM u ORDER BY 1, 2", "t u"),
        ("(SELECT a FROM t) UNION (SELECT b FROM u)", "t u"),
        ("SELECT a FROM t WHERE a IN (1,2) GROUP BY b, c HAVING d ORDER BY e, f LIMIT 1, 2", "t"),
        ("SELECT a FROM JSON_TABLE(d, '$' COLUMNS (e INT PATH '$')) AS j, t", "t"),
        ("SELECT a FROM t WITH CHECK OPTION", "t"),
        ("WITH c AS (SELECT a FROM t) SELECT * FROM c, u", "t u"),
        ("WITH c (x) AS (SELECT a FROM c), d AS (SELECT * FROM c) SELECT * FROM d JOIN s.c", "c s.c"),
        ("WITH RECURSIVE c AS (SELECT 1 UNION ALL SELECT 2 FROM c) SELECT * FROM c", ""),
        ("SELECT a FROM (WITH c AS (SELECT 1 FROM t) SELECT * FROM c) x, c", "t c"),
        ("SELECT a FROM t GROUP BY b WITH ROLLUP", "t"),
        ("TABLE t", "t"),
        ("SELECT a FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.b = t.b) FOR UPDATE", "t u"),
        ("SELECT a FROM t AS OF", "t+"),
        (")", ""),
        ("SELECT x.limit, y.from FROM t JOIN u ON x.window = 1 JOIN v ON y.`having` = x.where, w", "t u v w"),
        ("SELECT x.use FROM t JOIN u ON x.force = x.union, v", "t u v"),
        ("SELECT a AS intersect, b AS except FROM t", "t"),
        ("SELECT a.with AS x, b FROM x", "x"),
    ],
)
def test_sources(query: str, expected: str) -> None:
    """Tables are told from columns, functions, index hints and common table expressions; + marks one with an alias."""
    found = tokens(query)
    shown = []
    for source in sources(found, 0):
        name = "".join(token.name for token in found[source.at : source.at + source.length])
        shown.append(name + "+" * source.aliased)
    assert " ".join(shown) == expected
