"""Statements that do harm where they run: each harm in each spelling by which one server may read what another reader overlooks.

A harm is a piece inside an innocent statement of one table. A spelling hides the piece: in a comment that some server reads, behind a
backslash, in other quotes, or between words by which readers tell statements apart.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from string import Template

CREATE, DROP, ADD_COLUMN, ADD_INDEX, ADD_FOREIGN_KEY, TRUNCATE, RENAME, CREATE_VIEW = 3, 4, 5, 7, 9, 11, 14, 21
EXCHANGE, DROP_VIEW, MULTI = 42, 24, 61
MORE = "ALTER TABLE `$t` ADD COLUMN `more` INT"
BODY = "(`id` INT PRIMARY KEY,`name` VARCHAR(20))"


@dataclass(frozen=True, slots=True, kw_only=True)
class Hostile:
    """One statement; `$t` stands for its table, `$file` for a file with a secret, `$folder` for a folder that anybody may write to."""

    harm: str
    """Name of the harm, by which its table is called too."""
    spelling: str
    kind: int
    """Type of the schema file: that of the innocent statement."""
    text: str

    def of(self, table: str, file: str, folder: str) -> str:
        """Return the statement for one table."""
        return Template(self.text).substitute(t=table, file=file, folder=folder)


@dataclass(frozen=True, slots=True, kw_only=True)
class Harm:
    """A piece, and the innocent statement around it."""

    kind: int
    before: str
    piece: str
    after: str = ""

    @property
    def makes(self) -> bool:
        """Whether the table or view is not there before the statement."""
        return self.kind in (CREATE, CREATE_VIEW)


def _more(piece: str, kind: int = ADD_COLUMN) -> Harm:
    return Harm(kind=kind, before=MORE, piece=piece)


def _made(piece: str) -> Harm:
    return Harm(kind=CREATE, before=f"CREATE TABLE `$t` {BODY}", piece=piece)


def _view(piece: str) -> Harm:
    return Harm(kind=CREATE_VIEW, before="CREATE VIEW `$t` AS SELECT 1 AS `id`,'' AS `name`", piece=piece)


def _whole(piece: str, kind: int = ADD_COLUMN) -> Harm:
    return Harm(kind=kind, before="", piece=piece)


OBJECTS: dict[str, Harm] = {
    "grants": _whole("GRANT ALL ON *.* TO `intruder`"),
    "makes_user": _whole("CREATE USER `intruder` IDENTIFIED BY 'x'"),
    "alters_user": _whole("ALTER USER `root`@`%` IDENTIFIED BY 'x'"),
    "sets_global": _whole("SET GLOBAL max_connections = 11"),
    "makes_trigger": _whole(
        "CREATE TRIGGER `g` BEFORE INSERT ON `d`.`good` FOR EACH ROW DELETE FROM `other`.`secret`", CREATE
    ),
    "makes_event": _whole("CREATE EVENT `e` ON SCHEDULE EVERY 1 SECOND DO DELETE FROM `other`.`secret`", CREATE),
    "makes_procedure": _whole("CREATE PROCEDURE `p`() DELETE FROM `other`.`secret`", CREATE),
    "makes_function": _whole("CREATE FUNCTION `f`() RETURNS INT DETERMINISTIC RETURN 1", CREATE),
    "loads_library": _whole("CREATE FUNCTION `u` RETURNS STRING SONAME 'u.so'", CREATE),
    "makes_server": _whole(
        "CREATE SERVER `s` FOREIGN DATA WRAPPER mysql OPTIONS (HOST '127.0.0.1', DATABASE 'other', USER 'root')", CREATE
    ),
    "deletes": _whole("DELETE FROM `other`.`secret`", TRUNCATE),
    "writes": _whole("INSERT INTO `other`.`secret` VALUES (9, 'x')"),
    "writes_file": _whole("SELECT * FROM `other`.`secret` INTO OUTFILE '$folder/$t'", CREATE_VIEW),
    "reads_file": _whole("LOAD DATA INFILE '$file' INTO TABLE `$t`"),
    "calls": _whole("EXECUTE IMMEDIATE 'DROP DATABASE other'"),
    "imports": _whole("IMPORT INTO `$t` FROM '$file'"),
    "drops_database": _whole("DROP DATABASE `other`", 2),
    "truncates": _whole("TRUNCATE TABLE `other`.`secret`", TRUNCATE),
    "drops": _whole("DROP TABLE `other`.`secret`", DROP),
    "drops_two": Harm(kind=DROP, before="DROP TABLE `$t`", piece=", `other`.`secret`"),
    "drops_state": Harm(kind=DROP, before="DROP TABLE", piece=" `storage_consumer`.`lease`"),
    "flashes_back": _whole("FLASHBACK CLUSTER TO TIMESTAMP '2026-01-01 00:00:00'", CREATE),
}
"""Statements as a whole, and names of what is dropped."""

ADDED: dict[str, Harm] = {
    "second_statement": _more("; DROP DATABASE `other`"),
    "second_grant": _more("; GRANT ALL ON *.* TO `intruder`"),
    "renames_away": _more(", RENAME TO `elsewhere`.`gone`"),
    "renames_to_system": _more(", RENAME TO `mysql`.`$t`", MULTI),
    "discards": _more(", DISCARD TABLESPACE"),
    "imports_space": _more(", IMPORT TABLESPACE", MULTI),
    "drops_more": _more(", DROP COLUMN `name`, RENAME `elsewhere`.`x`", MULTI),
    "exchanges": _more(", EXCHANGE PARTITION `p` WITH TABLE `other`.`secret`", MULTI),
    "versioned": _more(", ADD SYSTEM VERSIONING", MULTI),
    "default_file": _more(" DEFAULT (LOAD_FILE('$file'))"),
    "default_sleep": _more(" DEFAULT (SLEEP(60))"),
    "default_lock": _more(" DEFAULT (GET_LOCK('x', 60))"),
    "default_select": _more(" DEFAULT (SELECT COUNT(*) FROM `mysql`.`user`)"),
    "default_routine": _more(" DEFAULT (`other`.`f`(1))"),
    "default_setval": _more(" DEFAULT (SETVAL(`other`.`s`, 99))"),
    "default_variable": _more(" DEFAULT (@@datadir)"),
    "generated_file": _more(" GENERATED ALWAYS AS(LOAD_FILE('$file')) STORED"),
    "generated_routine": _more(" AS(`other`.`f`(1))"),
    "check_routine": _more(" CHECK(`other`.`f`(1) > 0)"),
    "check_sleep": _more(" CHECK(SLEEP(60) = 0)", MULTI),
    "index_routine": Harm(kind=ADD_INDEX, before="ALTER TABLE `$t` ADD INDEX `i`", piece="((`other`.`f`(`id`)))"),
    "index_sleep": Harm(kind=ADD_INDEX, before="CREATE INDEX `i` ON `$t`", piece=" ((SLEEP(60)))"),
    "index_elsewhere": Harm(kind=ADD_INDEX, before="CREATE INDEX `i` ON", piece=" `mysql`.`db`", after=" (`user`)"),
    "split_sleep": Harm(
        kind=ADD_INDEX,
        before="ALTER TABLE `$t` ADD INDEX `i`(`name`)",
        piece=" PRE_SPLIT_REGIONS = (BY (SLEEP(60)))",
    ),
    "parent": Harm(
        kind=ADD_FOREIGN_KEY,
        before="ALTER TABLE `$t` ADD CONSTRAINT `c` FOREIGN KEY (`id`) REFERENCES",
        piece=" `mysql`.`db`",
        after=" (`host`)",
    ),
    "parent_of_state": Harm(
        kind=ADD_FOREIGN_KEY,
        before="ALTER TABLE `$t` ADD CONSTRAINT `c` FOREIGN KEY (`id`) REFERENCES",
        piece=" `storage_consumer`.`lease`",
        after=" (`epoch`)",
    ),
    "moves_out": Harm(kind=RENAME, before="RENAME TABLE `$t` TO", piece=" `mysql`.`$t`"),
    "moves_to_state": Harm(kind=RENAME, before="ALTER TABLE `$t` RENAME TO", piece=" `storage_consumer`.`$t`"),
    "moves_in": Harm(kind=RENAME, before="RENAME TABLE", piece=" `mysql`.`db`", after=" TO `$t`"),
    "moves_others": Harm(kind=RENAME, before="RENAME TABLE", piece=" `other`.`secret`", after=" TO `$t`"),
    "moves_two": Harm(
        kind=RENAME, before="RENAME TABLE `x` TO `$t`", piece=", `other`.`secret` TO `elsewhere`.`gone2`"
    ),
    "swaps": Harm(
        kind=EXCHANGE, before="ALTER TABLE `$t` EXCHANGE PARTITION `p` WITH TABLE", piece=" `other`.`secret`"
    ),
    "swaps_state": Harm(
        kind=EXCHANGE, before="ALTER TABLE `$t` EXCHANGE PARTITION `p` WITH TABLE", piece=" `storage_consumer`.`lease`"
    ),
}
"""Pieces of statements about a table that is there."""

MADE: dict[str, Harm] = {
    "copies_rows": _made(" AS SELECT * FROM `other`.`secret`"),
    "copies_file": _made(" AS SELECT 1 AS `id`, LOAD_FILE('$file') AS `name`"),
    "copies_table": _made(" IGNORE TABLE `other`.`secret`"),
    "selects": Harm(kind=CREATE, before="CREATE TABLE `$t`", piece=" SELECT * FROM `other`.`secret`"),
    "like_system": Harm(kind=CREATE, before="CREATE TABLE `$t` LIKE", piece=" `mysql`.`db`"),
    "like_state": Harm(kind=CREATE, before="CREATE TABLE `$t` (LIKE", piece=" `storage_consumer`.`lease`", after=")"),
    "temporary": Harm(kind=CREATE, before="CREATE", piece=" TEMPORARY", after=f" TABLE `$t` {BODY}"),
    "replaces": Harm(kind=CREATE, before="CREATE", piece=" OR REPLACE", after=f" TABLE `$t` {BODY}"),
    "view_file": _view(", LOAD_FILE('$file') AS `f`"),
    "view_sleep": _view(", SLEEP(60) AS `f`"),
    "view_routine": _view(", `other`.`f`(1) AS `f`"),
    "view_variable": _view(", @@datadir AS `f`"),
    "view_next": _view(", NEXTVAL(`other`.`s`) AS `f`"),
    "view_next_value": _view(", NEXT VALUE FOR `other`.`s` AS `f`"),
    "view_outfile": _view(" FROM `other`.`secret` INTO OUTFILE '$folder/$t'"),
    "view_lock": _view(" FROM `other`.`secret` FOR UPDATE"),
    "view_analyse": _view(" FROM `other`.`secret` PROCEDURE ANALYSE()"),
    "view_system": _view(" FROM `mysql`.`user`"),
    "view_union": _view(" UNION SELECT `user`, `host` FROM `mysql`.`user`"),
    "view_union_table": _view(" UNION TABLE `mysql`.`db`"),
    "view_join": _view(" FROM `d`.`read` JOIN `mysql`.`user` ON 1"),
    "view_subquery": _view(", (SELECT MAX(`user`) FROM `mysql`.`user`) AS `f`"),
    "view_where": _view(" FROM DUAL WHERE EXISTS (SELECT 1 FROM `sys`.`version`)"),
    "view_schema": _view(" FROM `information_schema`.`processlist`"),
    "view_threads": _view(" FROM `performance_schema`.`threads`"),
    "view_state": _view(" FROM `storage_consumer`.`lease`"),
    "view_common": Harm(
        kind=CREATE_VIEW,
        before="CREATE VIEW `$t` AS WITH `c` AS (SELECT 1 AS `id`,'' AS `name`",
        piece=" FROM `mysql`.`user`",
        after=") SELECT * FROM `c`",
    ),
    "view_definer": Harm(
        kind=CREATE_VIEW, before="CREATE", piece=" DEFINER = `root`@`%`", after=" VIEW `$t` AS SELECT 1 AS `id`"
    ),
}
"""Pieces of statements that make a table or view."""

HARMS: Mapping[str, Harm] = OBJECTS | ADDED | MADE
"""Name → what must not run on any server."""

KEPT_ELSEWHERE: dict[str, Harm] = {
    "directory": _made(" DATA DIRECTORY = '$folder'"),
    "index_directory": _made(" ENGINE = MyISAM INDEX DIRECTORY = '$folder'"),
    "federated": _made(" ENGINE = FEDERATED CONNECTION = 'mysql://root@127.0.0.1:1/other/secret'"),
    "connects": _made(" ENGINE = CONNECT CONNECTION = 'mysql://root@127.0.0.1:1/other/secret'"),
    "merges": _made(" ENGINE = MRG_MyISAM UNION = (`other`.`heap`) INSERT_METHOD = LAST"),
    "merges_system": _made(" ENGINE = MERGE UNION = (`mysql`.`db`)"),
    "text_file": _made(" ENGINE = CSV"),
    "lost": _made(" ENGINE = BLACKHOLE"),
    "space": _made(" TABLESPACE = `mysql`"),
    "partition": _made(" PARTITION BY HASH (`id`) (PARTITION `p` DATA DIRECTORY = '$folder' ENGINE = InnoDB)"),
    "moved": Harm(kind=MULTI, before="ALTER TABLE `$t`", piece=" DATA DIRECTORY = '$folder'"),
    "engine": Harm(kind=MULTI, before="ALTER TABLE `$t`", piece=" ENGINE = MyISAM"),
    "union": Harm(kind=MULTI, before="ALTER TABLE `$t`", piece=" UNION = (`other`.`heap`)"),
}
"""Options that TiDB takes without effect: the table halts, or is one of the server's usual ones."""


# spellings


def _in_string(harm: Harm) -> str:
    r"""A text that ends at its first quote where backslashes are plain, and behind the piece where they escape."""
    return rf"{harm.before} COMMENT = '\'{harm.piece} COMMENT = '{harm.after}"


def _behind_string(harm: Harm) -> str:
    r"""A text that ends before the piece where backslashes escape, and behind it where they are plain."""
    return rf"{harm.before} COMMENT = '\\'{harm.piece} COMMENT = '{harm.after}'"


def _in_member(harm: Harm) -> str:
    return rf"{harm.before}, ADD COLUMN `e` ENUM('\'){harm.piece}, ADD COLUMN `f` ENUM('{harm.after}')"


def _lower(text: str) -> str:
    return re.sub(r"\b[A-Z_]{2,}\b", lambda found: found[0].lower(), text)


Spelling = Callable[[Harm], str]


def _around(opening: str, closing: str = "") -> Spelling:
    return lambda harm: f"{harm.before}{opening}{harm.piece}{closing}{harm.after}"


SPELLINGS: Mapping[str, Spelling] = {
    "plain": _around(""),
    "lower": lambda harm: _lower(f"{harm.before}{harm.piece}{harm.after}"),
    "version": _around(" /*!50000", " */"),
    "any_version": _around(" /*!", "*/"),
    "six_digits": _around(" /*!080000", " */"),
    "mariadb": _around(" /*M!", " */"),
    "mariadb_version": _around(" /*M!100100", " */"),
    "tidb": _around(" /*T!", " */"),
    "feature": _around(" /*T![placement]", " */"),
    "no_feature": _around(" /*T![bogus]", " */"),
    "two_features": _around(" /*T![ttl,clustered_index]", " */"),
    "nested": _around(" /*T! /*!50000", " */ */"),
    "after_comment": _around(" /* TableOptionPackKeys is not supported */"),
    "restorer": _around(" /* TableOption*/", "/* is not supported */"),
    "torn": _around(" /*T! COMMENT '*/", "/*T! ' */"),
    "line": _around(" -- x\n"),
    "no_line": _around(" --\x01x\n"),
    "hash": _around(" # x\n"),
    "escaped": _in_string,
    "unescaped": _behind_string,
    "member": _in_member,
    "ansi": lambda harm: f"{harm.before}{harm.piece.replace('`', chr(34))}{harm.after}",
    "bare": lambda harm: f"{harm.before}{harm.piece.replace('`', '')}{harm.after}",
    "tabs": lambda harm: f"{harm.before}{harm.piece.replace(' ', chr(9) + chr(10))}{harm.after}",
    "other_space": lambda harm: f"{harm.before}{harm.piece.replace(' ', chr(160))}{harm.after}",
    "form_feed": lambda harm: f"{harm.before}{harm.piece.replace(' ', chr(12))}{harm.after}",
    "loose_dots": lambda harm: f"{harm.before}{harm.piece.replace('`.`', '` . `')}{harm.after}",
    "split_dots": lambda harm: f"{harm.before}{harm.piece.replace('`.`', '`/**/.`')}{harm.after}",
    "split_words": lambda harm: f"{harm.before}{harm.piece.replace(' ', '/**/')}{harm.after}",
    "semicolon": lambda harm: f"{harm.before}{harm.piece}{harm.after};",
}
"""Name → how to write a harm."""
_AT_THE_END = frozenset(("escaped", "unescaped", "member"))
"""Spellings that make a statement only of a piece that ends it."""


def hostile(harms: Mapping[str, Harm] = HARMS) -> Iterator[Hostile]:
    """Yield each harm in each spelling."""
    for name, harm in harms.items():
        for spelling, write in SPELLINGS.items():
            if harm.after and spelling in _AT_THE_END:
                continue
            yield Hostile(harm=name, spelling=spelling, kind=harm.kind, text=write(harm).strip())


def some(harms: Mapping[str, Harm], each: int) -> list[Hostile]:
    """Return each harm as it is and in `each` other spellings, so that every spelling comes up about equally often."""
    written = {(one.harm, one.spelling): one for one in hostile(harms)}
    others = [name for name in SPELLINGS if name != "plain"]
    found: list[Hostile] = []
    for number, harm in enumerate(harms):
        turned = ((harm, others[(number * each + step) % len(others)]) for step in range(len(others)))
        found += [written[harm, "plain"], *islice((written[key] for key in turned if key in written), each)]
    return found
