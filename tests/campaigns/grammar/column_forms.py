"""Columns: every type and every option, in every place where a column may be defined; and pairs of options."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import permutations

from tests.campaigns.grammar.form import TABLE, Form

TYPES = (
    *("TINYINT", "TINYINT(1)", "TINYINT(4)", "SMALLINT", "MEDIUMINT", "INT", "INT(5)", "BIGINT", "BIGINT(20)"),
    *("INT UNSIGNED", "INT(8) UNSIGNED ZEROFILL", "BIGINT UNSIGNED ZEROFILL", "TINYINT UNSIGNED", "BIGINT UNSIGNED"),
    *("DECIMAL", "DECIMAL(5)", "DECIMAL(10,2)", "DECIMAL(65,30)", "DECIMAL(10,2) UNSIGNED", "DECIMAL(6,1) UNSIGNED ZEROFILL"),
    *("FLOAT", "FLOAT(10,2)", "FLOAT UNSIGNED", "DOUBLE", "DOUBLE(10,2)", "DOUBLE UNSIGNED ZEROFILL"),
    *("BIT(1)", "BIT(5)", "BIT(64)", "CHAR", "CHAR(5)", "CHAR(5) BINARY", "CHAR(5) CHARACTER SET LATIN1"),
    *("CHAR(5) CHARACTER SET LATIN1 COLLATE latin1_bin", "VARCHAR(20)", "VARCHAR(20) CHARACTER SET ASCII"),
    *("VARCHAR(20) CHARACTER SET GBK", "VARCHAR(20) CHARACTER SET GB18030", "VARCHAR(20) CHARACTER SET UTF8"),
    *("VARCHAR(20) COLLATE utf8mb4_general_ci", "VARCHAR(20) COLLATE utf8mb4_unicode_ci", "VARCHAR(20) COLLATE utf8_general_ci"),
    *("VARCHAR(20) COLLATE utf8mb4_0900_ai_ci", "VARCHAR(20) COLLATE utf8mb4_0900_bin", "VARCHAR(20) COLLATE gbk_bin"),
    *("VARCHAR(20) COLLATE ascii_bin", "VARCHAR(20) COLLATE gb18030_bin", "VARCHAR(20) CHARACTER SET UTF8MB4 COLLATE utf8mb4_bin"),
    *("BINARY", "BINARY(5)", "VARBINARY(20)", "TINYBLOB", "BLOB", "BLOB(100)", "MEDIUMBLOB", "LONGBLOB"),
    *("TINYTEXT", "TEXT", "TEXT(100)", "MEDIUMTEXT", "LONGTEXT", "TEXT CHARACTER SET LATIN1", "TEXT BINARY"),
    *("TEXT CHARACTER SET LATIN1 BINARY", "ENUM('a','b')", "SET('a','b')", "ENUM('a','b') COLLATE utf8mb4_general_ci"),
    *("JSON", "VECTOR", "VECTOR(3)", "DATE", "DATETIME", "DATETIME(6)", "TIMESTAMP", "TIMESTAMP(3)"),
    *("TIME", "TIME(2)", "YEAR", "YEAR(4)"),
)  # fmt: skip
ON_NUMBERS = (
    *("NOT NULL", "NULL", "AUTO_INCREMENT UNIQUE KEY", "NOT NULL AUTO_INCREMENT UNIQUE KEY", "UNIQUE KEY", "UNIQUE KEY GLOBAL"),
    *("DEFAULT 1", "DEFAULT -1", "DEFAULT 1.5", "DEFAULT 1e+03", "DEFAULT x'41'", "DEFAULT b'1'", "DEFAULT _UTF8MB4'7'"),
    *("DEFAULT TRUE", "DEFAULT NULL", "DEFAULT (NEXTVAL(`sq`))", "NOT NULL DEFAULT (NEXTVAL(`g`.`sq`))", "COMMENT 'it''s'"),
    *("CHECK(`c`>-10) ENFORCED", "CONSTRAINT `ck` CHECK(`c`>0) NOT ENFORCED", "COLLATE utf8mb4_bin"),
    *("COLUMN_FORMAT FIXED", "COLUMN_FORMAT DYNAMIC", "COLUMN_FORMAT DEFAULT", "STORAGE DISK", "STORAGE MEMORY"),
    *("STORAGE DEFAULT", "REFERENCES `p`(`id`)", "REFERENCES `p`(`id`) ON DELETE CASCADE ON UPDATE SET NULL"),
    "SECONDARY_ENGINE_ATTRIBUTE = '{}'",
)  # fmt: skip
GENERATED = (
    *("`id`+1", "`v`*2", "`id`%3", "`v` DIV 2", "-`id`", "(`id`+1)*2", "`id`<<1", "`v` IS NULL", "`v`>5", "`id` IN (1,2,3)"),
    *("IFNULL(`v`, 0)", "IF(`v`>1, 1, 0)", "CASE WHEN `v`>1 THEN 1 ELSE 0 END", "COALESCE(`v`, `id`)", "ABS(`v`)"),
    *("CAST(`v` AS UNSIGNED)", "CAST(`v` AS SIGNED)", "ROUND(`v`/3)", "LENGTH(`s`)", "CHAR_LENGTH(`s`)", "CRC32(`s`)"),
    *("`v` BETWEEN 1 AND 9", "`v`<=>NULL", "NOT `v`", "`v` XOR 1", "GREATEST(`v`, 1)", "ASCII(`s`)", "`s` LIKE _UTF8MB4'a%'"),
    *("`s` REGEXP _UTF8MB4'a'", "INET_ATON(_UTF8MB4'1.2.3.4')", "STRCMP(`s`, _UTF8MB4'a')", "FLOOR(`v`/2)", "`v`%3"),
)  # fmt: skip
OF_TEXT = (
    *("UPPER(`s`)", "CONCAT(`s`, _UTF8MB4'x')", "CONCAT_WS(_UTF8MB4',', `s`, `v`)", "LOWER(`s`)", "LEFT(`s`, 2)"),
    *("SUBSTRING(`s`, 2)", "SUBSTRING(`s`, 1, 2)", "REPLACE(`s`, _UTF8MB4'a', _UTF8MB4'b')", "TRIM(`s`)", "HEX(`s`)"),
    *("TRIM(BOTH _UTF8MB4'a' FROM `s`)", "REVERSE(`s`)", "CAST(`v` AS CHAR)", "CAST(`v` AS CHAR(3))", "MD5(`s`)", "SHA2(`s`, 256)"),
    *("CONVERT(`s` USING 'utf8mb4')", "LPAD(`s`, 5, _UTF8MB4'x')", "`s` COLLATE utf8mb4_general_ci", "IF(`v`>1, _UTF8MB4'a', NULL)"),
    *("SUBSTRING_INDEX(`s`, _UTF8MB4'a', 1)", "DATE_FORMAT(_UTF8MB4'2020-01-01', _UTF8MB4'%Y')"),
    *("BIN(`v`)", "FORMAT(`v`, 2)", "TO_BASE64(`s`)", "CAST(`s` AS BINARY)", "_UTF8MB4'A'", "JSON_QUOTE(`s`)"),
)  # fmt: skip
OTHERS: Mapping[str, Sequence[str]] = {
    "BIGINT": (
        "/*T![auto_rand] AUTO_RANDOM */",
        "AUTO_INCREMENT UNIQUE KEY COMMENT 'x'",
        "UNSIGNED NOT NULL AUTO_INCREMENT UNIQUE KEY",
    ),
    "VARCHAR(40)": (
        *("DEFAULT _UTF8MB4'x'", "DEFAULT _UTF8MB4''", r"DEFAULT _UTF8MB4'it''s \\ x'", "NOT NULL", "NOT NULL DEFAULT _UTF8MB4'x'"),
        *("DEFAULT _LATIN1'a'", "DEFAULT _UTF8'a'", "DEFAULT x'41'", "DEFAULT 5", "DEFAULT 1.50", "DEFAULT TRUE", "DEFAULT (UUID())"),
        *("DEFAULT (UPPER(REPLACE(UUID(), _UTF8MB4'-', _UTF8MB4'')))", "DEFAULT (UPPER(_UTF8MB4'a'))", "COLLATE utf8mb4_bin"),
        *("DEFAULT (DATE_FORMAT(NOW(), _UTF8MB4'%Y-%m-%d'))", "DEFAULT (SUBSTRING_INDEX(USER(), _UTF8MB4'@', 1))", "UNIQUE KEY"),
        *("DEFAULT (REPLACE(CONVERT(UPPER(UUID()) USING 'utf8mb4'), _UTF8MB4'-', _UTF8MB4''))", "DEFAULT (DATE_FORMAT(NOW(), _UTF8MB4'%Y-%m'))"),
        *("DEFAULT (DATE_FORMAT(NOW(), _UTF8MB4'%Y-%m-%d %H:%i:%s'))", "CHARACTER SET LATIN1 DEFAULT _UTF8MB4'é'", "DEFAULT (CURRENT_USER())"),
    ),
    "BINARY(16)": ("DEFAULT (UUID_TO_BIN(UUID()))", "DEFAULT (UUID_TO_BIN(UUID(), 1))", "DEFAULT x'41'", "DEFAULT _UTF8MB4'a'"),
    "CHAR(36)": ("DEFAULT (UUID())", "NOT NULL DEFAULT (UUID())"),
    "DOUBLE": ("DEFAULT (RAND())", "DEFAULT (RAND(5))", "DEFAULT 1e+300", "DEFAULT 0.1", "DEFAULT -2.5", "DEFAULT _UTF8MB4'1.5'"),
    "DECIMAL(10,2)": ("DEFAULT 1.5", "DEFAULT 1.555", "DEFAULT _UTF8MB4'1.5'", "DEFAULT -1", "DEFAULT 1e+02"),
    "BIT(4)": ("DEFAULT b'101'", "DEFAULT x'0A'", "DEFAULT 3", "DEFAULT TRUE", "NOT NULL"),
    "JSON": (
        *("NOT NULL", "DEFAULT NULL", "DEFAULT (JSON_OBJECT())", "DEFAULT (JSON_ARRAY(1, _UTF8MB4'a'))"),
        *("DEFAULT (JSON_QUOTE(_UTF8MB4'x'))", "NOT NULL DEFAULT (JSON_OBJECT(_UTF8MB4'a', 1))"),
    ),
    "TEXT": ("NOT NULL", "DEFAULT NULL", "DEFAULT _UTF8MB4''", "DEFAULT (UPPER(_UTF8MB4'a'))", "DEFAULT (UUID())", "DEFAULT _UTF8MB4'a'"),
    "BLOB": ("DEFAULT NULL", "DEFAULT _UTF8MB4''", "DEFAULT (UUID_TO_BIN(UUID()))"),
    "VECTOR(3)": ("NOT NULL", "DEFAULT NULL", "DEFAULT (VEC_FROM_TEXT(_UTF8MB4'[1,2,3]'))", "DEFAULT _UTF8MB4'[1,2,3]'"),
    "ENUM('a','b')": ("DEFAULT _UTF8MB4'a'", "NOT NULL", "DEFAULT 2", "NOT NULL DEFAULT _UTF8MB4'b'", "DEFAULT NULL"),
    "SET('a','b')": ("DEFAULT _UTF8MB4'a,b'", "NOT NULL", "DEFAULT _UTF8MB4''", "DEFAULT 3", "NOT NULL DEFAULT 0"),
    "DATE": (
        *("DEFAULT (CURRENT_DATE())", "DEFAULT _UTF8MB4'2020-01-01'", "DEFAULT 20200101", "DEFAULT _UTF8MB4'0000-00-00'", "NOT NULL"),
        *("DEFAULT (STR_TO_DATE(_UTF8MB4'1980-01-01', _UTF8MB4'%Y-%m-%d'))", "DEFAULT CURRENT_TIMESTAMP()"),
    ),
    "DATETIME": (
        *("DEFAULT CURRENT_TIMESTAMP()", "ON UPDATE CURRENT_TIMESTAMP()", "DEFAULT CURRENT_TIMESTAMP() ON UPDATE CURRENT_TIMESTAMP()"),
        *("DEFAULT _UTF8MB4'2020-01-01 01:02:03'", "DEFAULT _UTF8MB4'0000-00-00 00:00:00'", "DEFAULT 20200101010203", "NOT NULL"),
        *("DEFAULT (CURRENT_DATE())", "DEFAULT _UTF8MB4'2020-01-01'", "DEFAULT (NOW())", "NOT NULL ON UPDATE CURRENT_TIMESTAMP()"),
    ),
    "DATETIME(3)": (
        *("DEFAULT CURRENT_TIMESTAMP(3)", "DEFAULT CURRENT_TIMESTAMP(3) ON UPDATE CURRENT_TIMESTAMP(3)"),
        "DEFAULT _UTF8MB4'2020-01-01 01:02:03.456'",
    ),
    "TIMESTAMP": (
        *("DEFAULT CURRENT_TIMESTAMP()", "NULL", "NOT NULL", "NULL DEFAULT NULL", "DEFAULT _UTF8MB4'2020-01-01 01:02:03'"),
        *("NOT NULL DEFAULT CURRENT_TIMESTAMP() ON UPDATE CURRENT_TIMESTAMP()", "DEFAULT _UTF8MB4'0000-00-00 00:00:00'"),
        *("NULL ON UPDATE CURRENT_TIMESTAMP()", "NOT NULL DEFAULT 0"),
    ),
    "TIMESTAMP(6)": ("DEFAULT CURRENT_TIMESTAMP(6) ON UPDATE CURRENT_TIMESTAMP(6)",),
    "TIME": ("DEFAULT _UTF8MB4'01:02:03'", "DEFAULT 10203", "NOT NULL", "DEFAULT _UTF8MB4'-838:59:59'"),
    "YEAR": ("DEFAULT 2020", "DEFAULT _UTF8MB4'2020'", "NOT NULL", "DEFAULT 0", "DEFAULT 70"),
}  # fmt: skip
KEYS = (
    *("PRIMARY KEY", "PRIMARY KEY /*T![clustered_index] CLUSTERED */", "PRIMARY KEY /*T![clustered_index] NONCLUSTERED */"),
    *("NOT NULL PRIMARY KEY", "AUTO_INCREMENT PRIMARY KEY", "PRIMARY KEY AUTO_INCREMENT", "PRIMARY KEY GLOBAL", "PRIMARY KEY COMMENT 'x'"),
    *("PRIMARY KEY /*T![auto_rand] AUTO_RANDOM(5) */", "/*T![auto_rand] AUTO_RANDOM(5, 54) */ PRIMARY KEY /*T![clustered_index] CLUSTERED */"),
    *("PRIMARY KEY DEFAULT 5", "PRIMARY KEY CHECK(`id`>-100) ENFORCED", "UNIQUE KEY", "NOT NULL UNIQUE KEY", "PRIMARY KEY UNIQUE KEY"),
    *("DEFAULT (NEXTVAL(`sq`)) PRIMARY KEY", "PRIMARY KEY DEFAULT (NEXTVAL(`g`.`sq`))"),
)  # fmt: skip
_PAIRED = (
    *("NOT NULL", "DEFAULT 1", "AUTO_INCREMENT", "UNIQUE KEY", "COMMENT 'x'", "COLLATE utf8mb4_bin", "COLUMN_FORMAT FIXED"),
    *("CHECK(`c`>-10) ENFORCED", "STORAGE DISK", "REFERENCES `p`(`id`)", "DEFAULT (NEXTVAL(`sq`))"),
    *("GENERATED ALWAYS AS(`id`+1) STORED", "GENERATED ALWAYS AS(`id`+1) VIRTUAL", "UNIQUE KEY GLOBAL", "NULL"),
    *("PRIMARY KEY", "PRIMARY KEY /*T![clustered_index] NONCLUSTERED */"),
)  # fmt: skip
_OF_GENERATED = ("", " NOT NULL", " NULL", " UNIQUE KEY", " NOT NULL UNIQUE KEY", " COMMENT 'x'", " CHECK(`g`>-99) ENFORCED", " COLLATE utf8mb4_bin")  # fmt: skip
_SEQUENCE = "CREATE SEQUENCE `sq`"
_PARENT = "CREATE TABLE `p` (`id` INT PRIMARY KEY)"
_CHANCE = ("UUID", "RAND", "USER()")


def column_forms() -> Iterator[Form]:
    """All forms of columns."""
    for kind in TYPES:
        yield from _everywhere("column type", kind)
    yield from _with_options()
    yield from _generated()
    for option in KEYS:
        yield _of("key in a column", f"CREATE TABLE `t` (`id` BIGINT {option},`v` INT)")
    yield _of(
        "key in a column", "CREATE TABLE `t` (`id` BIGINT,`k` VARCHAR(20) PRIMARY KEY COLLATE utf8mb4_general_ci)"
    )
    for one, other in permutations(_PAIRED, 2):
        if "GENERATED" in one and "GENERATED" in other:
            continue
        yield _of("pair of column options", f"CREATE TABLE `t` (`id` INT,`c` INT {one} {other})")


def _of(group: str, *statements: str) -> Form:
    """A form whose last statement is what it is about."""
    *before, last = statements
    made = [text for word, text in (("`sq`", _SEQUENCE), ("`p`", _PARENT)) if any(word in one for one in statements)]
    return Form(
        group=group, before=[*made, *before], statements=[last], by_chance=any(word in last for word in _CHANCE)
    )


def _everywhere(group: str, definition: str) -> Iterator[Form]:
    """A column in each place where one may be defined."""
    column = f"`c` {definition}"
    yield _of(group, f"CREATE TABLE `t` (`id` INT PRIMARY KEY,{column})")
    places = [column, f"({column}, `d` INT)"]
    places += [f"{column} FIRST", f"{column} AFTER `id`"] if group == "column type" else []
    for place in places:
        yield _of(group, TABLE, f"ALTER TABLE `t` ADD COLUMN {place}")


def _with_options() -> Iterator[Form]:
    for kind, options in {"INT": ON_NUMBERS, **OTHERS}.items():
        for option in options:
            yield from _everywhere("column option", f"{kind} {option}")
            yield _of(
                "changed column",
                f"CREATE TABLE `t` (`id` INT PRIMARY KEY,`c` {kind})",
                f"ALTER TABLE `t` MODIFY COLUMN `c` {kind} {option}",
            )
            yield _of(
                "changed column",
                f"CREATE TABLE `t` (`id` INT PRIMARY KEY,`b` {kind})",
                f"ALTER TABLE `t` CHANGE COLUMN `b` `c` {kind} {option}",
            )
            if option.startswith("DEFAULT"):
                value = option.removeprefix("DEFAULT ")
                value = f"({value})" if value.startswith(("-", "CURRENT")) else value
                yield _of(
                    "changed column",
                    f"CREATE TABLE `t` (`id` INT PRIMARY KEY,`c` {kind})",
                    f"ALTER TABLE `t` ALTER COLUMN `c` SET DEFAULT {value}",
                )
        yield _of("changed column", f"CREATE TABLE `t` (`id` INT PRIMARY KEY,`c` {kind})", "ALTER TABLE `t` ALTER COLUMN `c` DROP DEFAULT")  # fmt: skip


def _generated() -> Iterator[Form]:
    rest = "`id` INT PRIMARY KEY,`v` INT,`s` VARCHAR(20)"
    for kind, expressions in (("BIGINT", GENERATED), ("VARCHAR(200)", OF_TEXT)):
        for expression in expressions:
            for how in ("VIRTUAL", "STORED"):
                column = f"`g` {kind} GENERATED ALWAYS AS({expression}) {how}"
                yield _of("generated column", f"CREATE TABLE `t` ({rest},{column})")
                yield _of("generated column", TABLE, f"ALTER TABLE `t` ADD COLUMN {column}")
    for how in ("VIRTUAL", "STORED"):
        for option in _OF_GENERATED:
            column = f"`g` INT GENERATED ALWAYS AS(`id`+1) {how}{option}"
            yield _of("option of a generated column", f"CREATE TABLE `t` ({rest},{column})")
            yield _of("option of a generated column", f"CREATE TABLE `t` ({column},{rest})")
            yield _of("option of a generated column", TABLE, f"ALTER TABLE `t` ADD COLUMN {column}")
            yield _of("option of a generated column", TABLE, f"ALTER TABLE `t` ADD COLUMN ({column}, `d` INT)")
            plain = f"`g` INT GENERATED ALWAYS AS(`id`+1) {how}"
            yield _of(
                "option of a generated column",
                f"CREATE TABLE `t` ({rest},{plain})",
                f"ALTER TABLE `t` MODIFY COLUMN {column}",
            )
        for key in (
            "PRIMARY KEY",
            "PRIMARY KEY /*T![clustered_index] CLUSTERED */",
            "NOT NULL PRIMARY KEY /*T![clustered_index] NONCLUSTERED */",
        ):
            yield _of("key in a column", f"CREATE TABLE `t` (`id` INT,`g` INT GENERATED ALWAYS AS(`id`+1) {how} {key})")  # fmt: skip
