"""Indexes: every kind, part and option, in every place where an index may be defined; and what is done with one afterwards."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations

from tests.campaigns.grammar.form import Form, chains

_BODY = "`id` INT PRIMARY KEY,`v` INT,`s` VARCHAR(20),`j` JSON,`e` VECTOR(3),`b` BLOB,`x` TEXT"
_TABLE = f"CREATE TABLE `t` ({_BODY})"
_NO_KEY = "CREATE TABLE `t` (`id` INT NOT NULL,`v` INT NOT NULL,`s` VARCHAR(20) NOT NULL,`g` INT GENERATED ALWAYS AS(`id`+1) STORED NOT NULL)"
_OVER_PARTS = "CREATE TABLE `t` (`id` INT,`v` INT) PARTITION BY HASH (`id`) PARTITIONS 3"
OPTIONS = (
    *("KEY_BLOCK_SIZE=8", "USING BTREE", "USING HASH", "USING RTREE", "WITH PARSER `ngram`", "COMMENT 'it''s'", "/*T![global_index] GLOBAL */"),
    *("VISIBLE", "INVISIBLE", "/*T![pre_split] PRE_SPLIT_REGIONS = 4 */", "/*T![pre_split] PRE_SPLIT_REGIONS = (BY (1),(5)) */"),
    *("SECONDARY_ENGINE_ATTRIBUTE = '{\"a\": 1}'", "WHERE `v`>100", "WHERE `v` IS NOT NULL", "WHERE `s`=_UTF8MB4'x,y)'"),
)  # fmt: skip
"""In the order in which the parser writes them."""
PARTS = (
    *("`v`", "`v` DESC", "`s`(5)", "`s`(5) DESC", "`v`, `s`", "`x`(10)", "`b`(10)", "(LOWER(`s`))", "(`v`+1)", "(`v`+1) DESC"),
    *("`v`, (LOWER(`s`))", "(`v`+1), (`v`*2)", "(CAST(`j` AS UNSIGNED ARRAY))", "`v`, (CAST(`j` AS CHAR(10) ARRAY))"),
    *("(CAST(JSON_EXTRACT(`j`, _UTF8MB4'$.a') AS SIGNED))", "(CAST(`v` AS CHAR(10)))"),
)  # fmt: skip
_SEARCHES = (
    *(("FULLTEXT", "`s`", ""), ("FULLTEXT", "`s`", "WITH PARSER `standard`"), ("FULLTEXT", "`s`", "WITH PARSER `multilingual`")),
    *(("FULLTEXT", "`s`, `x`", ""), ("VECTOR", "(VEC_COSINE_DISTANCE(`e`))", "USING HNSW"), ("VECTOR", "(VEC_L2_DISTANCE(`e`))", "")),
    *(("COLUMNAR", "`v`", "USING INVERTED"), ("HYBRID", "`s`", "PARAMETER '{}'"), ("SPATIAL", "`v`", "")),
)  # fmt: skip
_KEY_OPTIONS = (
    *("", "/*T![clustered_index] CLUSTERED */", "/*T![clustered_index] NONCLUSTERED */", "USING BTREE", "USING HASH", "COMMENT 'x'"),
    *("KEY_BLOCK_SIZE=8", "VISIBLE", "/*T![global_index] GLOBAL */", "/*T![clustered_index] NONCLUSTERED */ USING BTREE COMMENT 'x'"),
    *("/*T![clustered_index] NONCLUSTERED */ /*T![pre_split] PRE_SPLIT_REGIONS = 4 */", "/*T![clustered_index] NONCLUSTERED */ /*T![global_index] GLOBAL */"),
)  # fmt: skip
_KEY_PARTS = ("`id`", "`id`, `v`", "`s`(3)", "`g`", "`g`, `v`", "`v`, `g`", "`id` DESC", "(`id`+1)")


def index_forms() -> Iterator[Form]:
    """All forms of indexes."""
    for kind in ("INDEX", "UNIQUE"):
        for option in ("", *OPTIONS):
            yield from _everywhere(kind, "`v`", option)
        for part in PARTS:
            yield from _everywhere(kind, part, "")
            yield from _everywhere(kind, part, "WHERE `v`>100")
    for one, other in combinations(OPTIONS, 2):
        if one.split()[0] != other.split()[0]:
            yield _of("pair of index options", f"CREATE INDEX `i` ON `t` (`v`) {one} {other}", [_TABLE])
            yield _of("pair of index options", f"CREATE TABLE `t` ({_BODY},UNIQUE `i`(`v`) {one} {other})")
    for kind, part, option in _SEARCHES:
        yield from _searches(kind, part, option)
    yield from _primary()
    yield from _global()
    yield from _afterwards()


def _of(group: str, statement: str, before: Sequence[str] = ()) -> Form:
    return Form(group=group, before=before, statements=[" ".join(statement.split())])


def _everywhere(kind: str, part: str, option: str) -> Iterator[Form]:
    """An index in each place where one may be defined, with a name and without."""
    unique = "UNIQUE " if kind == "UNIQUE" else ""
    for name in (" `i`", "") if option in ("", OPTIONS[-3]) else (" `i`",):
        index = f"{kind}{name}({part}) {option}".strip()
        yield _of("index", f"CREATE TABLE `t` ({_BODY},{index})")
        yield _of("index", f"ALTER TABLE `t` ADD {index}", [_TABLE])
        yield _of("index", f"ALTER TABLE `t` ADD COLUMN (`n` INT, {index})", [_TABLE])
    yield _of("index", f"ALTER TABLE `t` ADD COLUMN `n` INT, ADD {index}", [_TABLE])
    yield _of("index", f"CREATE {unique}INDEX `i` ON `t` ({part}) {option}", [_TABLE])
    if part in PARTS[:1]:
        yield _of("index", f"CREATE {unique}INDEX /*T! IF NOT EXISTS */`i` ON `t` ({part}) {option}", [_TABLE])
        yield _of("index", f"ALTER TABLE `t` ADD {kind}/*T! IF NOT EXISTS */ `i`({part}) {option}", [_TABLE])
        yield _of(
            "index", f"CREATE {unique}INDEX `i` ON `t` ({part}) {option} ALGORITHM = INPLACE LOCK = NONE", [_TABLE]
        )


def _searches(kind: str, part: str, option: str) -> Iterator[Form]:
    word = kind if kind == "FULLTEXT" else f"{kind} INDEX"
    for name in (" `i`", ""):
        yield _of("search index", f"CREATE TABLE `t` ({_BODY},{word}{name}({part}) {option})".replace(" )", ")"))
        yield _of("search index", f"ALTER TABLE `t` ADD {word}{name}({part}) {option}", [_TABLE])
    yield _of("search index", f"CREATE {kind} INDEX `i` ON `t` ({part}) {option}", [_TABLE])


def _primary() -> Iterator[Form]:
    """Primary keys that are named after the columns."""
    body = _NO_KEY[len("CREATE TABLE `t` (") : -1]
    nonclustered = "/*T![clustered_index] NONCLUSTERED */"
    for part in _KEY_PARTS:
        for option in _KEY_OPTIONS if part in ("`id`", "`g`") else ("", nonclustered):
            yield _of("primary key", f"CREATE TABLE `t` ({body},PRIMARY KEY({part}) {option})".replace(" )", ")"))
            yield _of("primary key", f"ALTER TABLE `t` ADD PRIMARY KEY({part}) {option}", [_NO_KEY])
        yield _of("primary key", f"CREATE TABLE `t` ({body},PRIMARY KEY `pk`({part}))")
        yield _of("primary key", f"ALTER TABLE `t` ADD COLUMN `n` INT, ADD PRIMARY KEY `pk`({part})", [_NO_KEY])
        made = f"CREATE TABLE `t` ({body},PRIMARY KEY({part}) {nonclustered})"
        yield _of("primary key", "ALTER TABLE `t` DROP PRIMARY KEY", [made])
    virtual = body.replace("STORED NOT NULL", "VIRTUAL NOT NULL")
    yield _of("primary key", f"CREATE TABLE `t` ({virtual},PRIMARY KEY(`g`))")


def _global() -> Iterator[Form]:
    """Indexes over all partitions."""
    mark = "/*T![global_index] GLOBAL */"
    by = " PARTITION BY HASH (`id`) PARTITIONS 3"
    for index in (f"UNIQUE `u`(`v`) {mark}", f"INDEX `i`(`v`) {mark}", f"UNIQUE(`v`) COMMENT 'x' {mark}", "INDEX `i`(`v`)",
                  f"PRIMARY KEY(`v`) /*T![clustered_index] NONCLUSTERED */ {mark}", "UNIQUE `u`(`id`)", f"UNIQUE `u`((`v`+1)) {mark}"):  # fmt: skip
        yield _of("global index", f"CREATE TABLE `t` (`id` INT,`v` INT,{index}){by}")
        yield _of("global index", f"ALTER TABLE `t` ADD {index}", [_OVER_PARTS])
    yield _of("global index", f"CREATE UNIQUE INDEX `u` ON `t` (`v`) {mark}", [_OVER_PARTS])
    for column in ("`v` INT UNIQUE KEY GLOBAL", "`v` INT PRIMARY KEY /*T![clustered_index] NONCLUSTERED */ GLOBAL", "`v` INT PRIMARY KEY GLOBAL",
                   "`v` INT NOT NULL UNIQUE KEY GLOBAL COMMENT 'x'"):  # fmt: skip
        yield _of("global index", f"CREATE TABLE `t` (`id` INT,{column}){by}")
    yield _of("global index", "ALTER TABLE `t` ADD COLUMN `n` INT UNIQUE KEY GLOBAL", [_OVER_PARTS])
    plain = "CREATE TABLE `t` (`id` INT,`v` INT,UNIQUE `u`(`v`),UNIQUE `w`(`id`))"
    yield _of(
        "global index", "ALTER TABLE `t` PARTITION BY HASH (`id`) PARTITIONS 3 UPDATE INDEXES (`u` GLOBAL)", [plain]
    )
    yield _of(
        "global index",
        "ALTER TABLE `t` PARTITION BY HASH (`id`) PARTITIONS 3 UPDATE INDEXES (`u` GLOBAL,`w` LOCAL)",
        [plain],
    )
    spread = f"CREATE TABLE `t` (`id` INT,`v` INT,UNIQUE `u`(`v`) {mark}){by}"
    yield _of("global index", "ALTER TABLE `t` REMOVE PARTITIONING", [spread])
    yield _of(
        "global index", "ALTER TABLE `t` PARTITION BY HASH (`v`) PARTITIONS 3 UPDATE INDEXES (`u` LOCAL)", [spread]
    )


_LEFT_OUT = ("INDEX `i`(`v`) WHERE `v`>100", "UNIQUE `i`(`v`) WHERE `v`>100", "INDEX `i`((`v`+1))", "UNIQUE `i`((`v`+1))", "INDEX `i`(`v`)", "UNIQUE `i`(`v`)")  # fmt: skip
_LATER = (
    *("DROP INDEX `i`", "RENAME INDEX `i` TO `k`", "ALTER INDEX `i` INVISIBLE", "DROP INDEX /*T! IF EXISTS */`i`", "DROP INDEX IF EXISTS `i`"),
    *("DROP INDEX `i`, ADD COLUMN `n` INT", "ADD COLUMN `n` INT, RENAME INDEX `i` TO `k`", "DROP INDEX `i`, ADD INDEX `i`(`s`)"),
    *("RENAME COLUMN `v` TO `z`", "MODIFY COLUMN `v` BIGINT", "DROP INDEX `i`, DROP COLUMN `v`", "RENAME AS `t2`", "RENAME INDEX `i` TO `k`, ALTER INDEX `p` INVISIBLE"),
    "CHANGE COLUMN `v` `z` BIGINT NOT NULL DEFAULT 0",
)  # fmt: skip


def _afterwards() -> Iterator[Form]:
    """What is done with an index that a server may not have."""
    for index in _LEFT_OUT:
        made = f"CREATE TABLE `t` ({_BODY},{index},INDEX `p`(`v`))"
        for later in _LATER:
            yield _of("index, later", f"ALTER TABLE `t` {later}", [made])
        yield _of("index, later", "DROP INDEX `i` ON `t`", [made])
        yield _of("index, later", "DROP INDEX /*T! IF EXISTS */`i` ON `t`", [made])
        yield _of("index, later", "DROP INDEX `i` ON `t` ALGORITHM = INPLACE LOCK = NONE", [made])
        yield from chains("index, a chain", [
            [made, "ALTER TABLE `t` RENAME INDEX `i` TO `k`", "ALTER TABLE `t` ALTER INDEX `k` INVISIBLE", "DROP INDEX `k` ON `t`"],
            [made, "ALTER TABLE `t` ADD COLUMN `n` INT", "RENAME TABLE `t` TO `t2`", "ALTER TABLE `t2` DROP INDEX `i`", "RENAME TABLE `t2` TO `t`"],
            [made, "CREATE TABLE `t2` LIKE `t`", "ALTER TABLE `t2` DROP INDEX `i`", "TRUNCATE TABLE `t`", "DROP INDEX `i` ON `t`"],
            [_TABLE, f"ALTER TABLE `t` ADD {index}", "ALTER TABLE `t` DROP INDEX `i`", f"ALTER TABLE `t` ADD {index}", "ALTER TABLE `t` DROP COLUMN `s`"],
        ])  # fmt: skip
