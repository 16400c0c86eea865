"""Pairs of values that a target may find equal, by the real path on every server: some, and at night many of every collation of TiDB 8.5."""

from __future__ import annotations

import base64
import random
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

import pymysql.err
import pytest

from storage_consumer.checkpoint.store import StateStore
from storage_consumer.config.settings import CsvOptions, Downstream, Upstream
from storage_consumer.decode.csv_files import CsvDecoder
from storage_consumer.errors import NotReplicable
from storage_consumer.model import CommitRange, TableColumn, TableDefinition, TableName, TableVersion
from storage_consumer.plan.steps import RowStep, key_of
from storage_consumer.rows.halves import read_files, write_bucket
from storage_consumer.rows.match import table_work
from storage_consumer.rows.row_order import Place
from storage_consumer.rows.spec import FileReport, JobFile, TablePlan, WriteReport, is_blocked
from storage_consumer.target.bucket_writer import TargetWriter
from storage_consumer.target.database import TargetDatabase
from storage_consumer.target.ddl.translate import action_for
from tests.contract.state_rigs import BUCKET, fenced_spec
from tests.harness.corpora import THOROUGH
from tests.harness.servers import DatabaseServer
from tests.unit.building import data_file

COLLATIONS = (
    "ascii_bin",
    "binary",
    "gb18030_bin",
    "gb18030_chinese_ci",
    "gbk_bin",
    "gbk_chinese_ci",
    "latin1_bin",
    "utf8_bin",
    "utf8_general_ci",
    "utf8_unicode_ci",
    "utf8mb4_0900_ai_ci",
    "utf8mb4_0900_bin",
    "utf8mb4_bin",
    "utf8mb4_general_ci",
    "utf8mb4_unicode_ci",
)
"""Those that TiDB 8.5 has."""
KEYS = {
    "primary": "PRIMARY KEY (`v`)",
    "unique": "PRIMARY KEY (`g`, `id`), UNIQUE KEY `u` (`v`)",
    "composite": "PRIMARY KEY (`g`, `id`), UNIQUE KEY `u` (`g`, `v`)",
    "prefix": "PRIMARY KEY (`g`, `id`), UNIQUE KEY `u` (`v`({}))",
}
_PREFIX, _DIGITS = 10, 6
HOW = ("insert", "update", "together")
"""The second text of a pair comes in a later window, by an update of a row, or in one window with the first."""
NAME = TableName(schema="pairs", table="t")
NOT_WRITTEN = " was not written, for the target holds "
"""What an error says of a row that another one is in the way of."""
_CODECS = {"ascii": "ascii", "gb18030": "gb18030", "gbk": "gbk", "latin1": "cp1252"}
Pair = tuple[str, str]

# what differs

_PLAIN = (
    "a",
    "b",
    "foo",
    "Straße",
    "Ærø",
    "naïve",
    "Å",
    "かな",
    "カナ",
    "ﾊﾟ",
    "中文",
    "한글",
    "ﬁn",
    "ǆ",
    "İi",
    "\u03bf",
    "й",
    "1",
    "½",
    "①",
    "ß",
    "œuf",
)
_BEHIND = (" ", "  ", "\u3000", "\u00a0", "\u2003", "\u200b", "\u00ad", "\u0301", "\u0308", "\ufeff", "\u034f", "\x01", "\t", "\u0640", "\u180e", "\U000e0020")  # fmt: skip
_NEW = ("\u1e9e", "\ua64a", "\ua64b", "\ua7ae", "\u1c90", "\u10d0", "\u1c80", "\u2c6f", "\u2de0", "\u0527", "\ua7b3", "\u08a1", "\u1cf7", "\ufe2e", "\u20bf", "\u32ff")  # fmt: skip
_FAR = ("😀", "😁", "\U0001d49c", "\U0001d41a", "𠀀", "𠀁", "𐐀", "𐐨", "🚚", "𞤀", "𞤢", "🄰", "𐑐", "🇩")
_EXPANDED = {"ß": "ss", "Æ": "AE", "ﬁ": "fi", "ǆ": "dž", "œ": "oe", "ﾊﾟ": "パ", "½": "1\u20442", "①": "1"}
_WIDE = {code: code + 0xFEE0 for code in range(0x21, 0x7F)}
_KANA = {code: code + 0x60 for code in range(0x3041, 0x3097)}


def _expanded(text: str, _: random.Random) -> str:
    for sign, letters in _EXPANDED.items():
        text = text.replace(sign, letters)
    return text


def _one_of(signs: Sequence[str]) -> Callable[[str, random.Random], str]:
    return lambda text, chance: text + chance.choice(signs)


def _stripped(text: str, _: random.Random) -> str:
    return "".join(sign for sign in unicodedata.normalize("NFD", text) if not unicodedata.combining(sign))


_CHANGES: tuple[Callable[[str, random.Random], str], ...] = (
    lambda text, _: text.swapcase(),
    lambda text, _: text.upper(),
    lambda text, _: unicodedata.normalize("NFD", text),
    lambda text, _: unicodedata.normalize("NFKC", text),
    lambda text, _: text.translate(_WIDE),
    lambda text, _: text.translate(_KANA),
    _expanded,
    _stripped,
    _one_of(_BEHIND),
    _one_of(_BEHIND),
    _one_of(_NEW),
    _one_of(_FAR),
    lambda text, chance: chance.choice(_BEHIND) + text,
    lambda text, chance: text[:1] + chance.choice(_BEHIND) + text[1:],
    lambda _, chance: chr(chance.choice((chance.randrange(0x21, 0x7F), chance.randrange(0xA0, 0x250), chance.randrange(0x370, 0x1F00)))),
    lambda _, chance: chr(chance.choice((chance.randrange(0x4E00, 0x9FA6), chance.randrange(0xAC00, 0xD7A4), chance.randrange(0x10000, 0x1F900)))),
)  # fmt: skip


def pairs(collation: str, chance: random.Random, count: int, key: str) -> list[Pair]:
    """Pairs of different texts of the collation's character set."""
    charset = collation.partition("_")[0]
    found: list[Pair] = []
    while len(found) < count:
        one = chance.choice((*_PLAIN, *_NEW, *_FAR, ""))
        one = chance.choice(_CHANGES)(one, chance) if chance.random() < 0.5 else one
        other = chance.choice(_CHANGES)(one, chance)
        if chance.random() < 0.1:
            other = chance.choice(_CHANGES)(chance.choice(_PLAIN), chance)
        texts = [text[: _PREFIX - _DIGITS] if key == "prefix" else text for text in (one, other)]
        # A key over the beginning of bytes counts bytes.
        if key == "prefix" and charset == "binary":
            texts = [text.encode()[: _PREFIX - _DIGITS].decode(errors="ignore") for text in texts]
        if texts[0] != texts[1] and all(_fits(text, charset) for text in texts):
            found.append((texts[0], texts[1]))
    return found


def _fits(text: str, charset: str) -> bool:
    if any(unicodedata.category(sign) in ("Cs", "Cn") for sign in text) or '"' in text:
        return False
    if charset == "utf8":
        return all(sign <= "\uffff" for sign in text)
    try:
        return text.encode(_CODECS.get(charset, "utf-8")).decode(_CODECS.get(charset, "utf-8")) == text
    except UnicodeError:
        return False


# what becomes of them


@dataclass(slots=True)
class Found:
    """What became of some pairs."""

    pairs: int = 0
    kept: int = 0
    """Pairs of which the target has both."""
    said: int = 0
    """Pairs of which it has the first, and the second was reported as not written."""
    lost: list[str] = field(default_factory=list)
    """All others."""

    def add(self, other: Found) -> None:
        """Sum up."""
        self.pairs, self.kept, self.said = self.pairs + other.pairs, self.kept + other.kept, self.said + other.said
        self.lost += other.lost


def body_of(collation: str, key: str) -> str:
    """Return what stands between the parentheses of the table's CREATE TABLE."""
    charset = collation.partition("_")[0]
    kind = "VARBINARY(200)" if charset == "binary" else f"VARCHAR(60) CHARACTER SET {charset} COLLATE {collation}"
    return f"`g` INT NOT NULL, `id` INT NOT NULL, `v` {kind} NOT NULL, {KEYS[key].format(_PREFIX)}"


Row = tuple[str, int, int, int, str]
"""Operation, commit-ts, number of the pair, id, text."""


class Pairs:
    """One table of a server, made by the program from the source's statement, and its writers."""

    def __init__(self, server: DatabaseServer, collation: str, key: str) -> None:
        """Create the table anew. Raise what the program says, or the server, if it cannot be made."""
        self._key, self._is_binary, self._server = key, collation == "binary", server
        body = body_of(collation, key)
        keyed = ("v",) if key == "primary" else ("g", "id")
        types = {"g": "INT", "id": "INT", "v": "VARBINARY" if self._is_binary else "VARCHAR"}
        self._definition = TableDefinition(
            name=NAME,
            version=TableVersion(1),
            query=f"CREATE TABLE `t` ({body})",
            ddl_type=3,
            columns=tuple(
                TableColumn(name=name, type=type_, nullable=False, is_pk=name in keyed) for name, type_ in types.items()
            ),
            path="pairs/t/meta/schema_1_1.json",
            checksum=1,
        )
        server.query("CREATE DATABASE IF NOT EXISTS pairs CHARACTER SET utf8mb4 COLLATE utf8mb4_bin")
        server.query("DROP TABLE IF EXISTS pairs.t")
        with server.connect(database="pairs") as connection, connection.cursor() as cursor:
            cursor.execute(action_for(self._definition, server.kind, "utf8mb4_bin").statement)
        self._downstream = Downstream(port=server.port, connect_timeout=60)
        self._state = StateStore(self._downstream, "")
        self._state.open(BUCKET)
        self._state.lease.acquire("pairs", 600)
        database = TargetDatabase(self._downstream, "")
        self._there = database.read([NAME])[NAME]
        database.close()
        self._tick = 10
        # Two tasks, so that a row in the way may be another one's.
        partitions = 1 if key == "primary" else 2
        window = self._state.lease.open_window(partitions, 0)
        spec = fenced_spec(self._downstream, epoch=self._state.lease.epoch, window_id=window)
        self._writers = [TargetWriter(replace(spec, partitions=partitions), "", task) for task in range(partitions)]

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Let the connections go."""
        for writer in self._writers:
            writer.close()
        self._state.close()

    def run(self, texts: Sequence[Pair], how: str) -> Found:
        """Write pairs; say what became of them."""
        self._server.query("DELETE FROM pairs.t")
        first_ts = 20 if how == "together" else 10
        firsts: list[Row] = [
            ("I", first_ts, number, 0, self._text(number, one)) for number, (one, _) in enumerate(texts)
        ]
        others: list[Row] = [("I", 10, number, 1, self._text(number, "~x")) for number in range(len(texts))]
        seconds: list[list[Row]] = []
        for number, (_, other) in enumerate(texts):
            gone: list[Row] = []
            if (how, self._key) == ("update", "primary"):
                gone.append(("D", 20, number, 1, self._text(number, "~x")))
            operation = "U" if how == "update" and not gone else "I"
            seconds.append([*gone, (operation, 20, number, 1, self._text(number, other))])
        if how == "together":
            seconds = [[first, *rows] for first, rows in zip(firsts, seconds, strict=True)]
        else:
            assert self._job([*firsts, *(others if how == "update" else [])]) == []
        if self._key == "primary":
            # Each alone, since the first that is not written ends the transaction.
            return self._counted(texts, how, [bool(self._job(rows)) for rows in seconds])
        errors = self._job([row for rows in seconds for row in rows])
        found = self._counted(texts, how)
        if found.said != self._blocked:
            found.lost.append(f"{self._blocked} were reported, and {found.said} are missing")
        if bool(errors) != bool(found.said):
            found.lost.append(f"{found.said} are blocked, and the second job says {errors}")
        return found

    def _counted(self, texts: Sequence[Pair], how: str, reported: Sequence[bool] = ()) -> Found:
        """Compare what is there with what should be. `reported`: of each pair, where it is known, whether its second was."""
        there: Counter[tuple[int, int, str]] = Counter()
        for number, identity, text in self._server.query("SELECT g, id, v FROM pairs.t"):
            there[number, identity, text.decode() if isinstance(text, bytes) else text] += 1
        found = Found(pairs=len(texts))
        for number, (one, other) in enumerate(texts):
            first, second = ((number, n, self._text(number, text)) for n, text in enumerate((one, other)))
            if there[first] == there[second] == 1:
                found.kept += 1
                if reported and reported[number]:
                    found.lost.append(f"{one!r} and {other!r} are both there, and one is said not to be")
            elif reported and not reported[number]:
                found.lost.append(
                    f"{one!r} and {other!r}: nothing was said of {[row for row in there if row[0] == number]}"
                )
            # In one window nothing says which of the two comes first.
            elif (
                there[first] == 1
                or (how == "together" and there[first] + there[second] == 1)
                or (how == "together" and self._key == "primary")
            ):
                found.said += 1
            else:
                found.lost.append(f"{one!r} and {other!r}: {[row for row in there if row[0] == number]}")
        return found

    def _text(self, number: int, text: str) -> str:
        return text if self._key == "composite" else f"{number:0{_DIGITS}d}{text}"

    _blocked = 0

    def _job(self, rows: Sequence[Row]) -> list[str]:
        """Write rows as one commit range; return the errors, of the second job if there is one."""
        low, self._tick = self._tick, self._tick + 100
        folder = ("pairs/t", 1)
        content = "".join(self._line(row, low) for row in rows).encode()
        upstream = Upstream(scheme="file", root="/b", protocol="csv", csv=CsvOptions(include_commit_ts=True))
        step = RowStep(
            table_key=key_of(NAME),
            name=NAME,
            commit_range=CommitRange(low=low, high=self._tick),
            current=self._definition,
            definitions={(TableVersion(1), folder[0]): self._definition},
            files=(),
        )
        work = table_work(0, step, self._there, upstream)
        file = data_file(folder[0], 1, 1)
        split = JobFile(
            table=0, file=replace(file, stored=replace(file.stored, size=len(content))), rank=0, newest=False
        )
        reports = self._written(work, split, content)
        self._blocked = sum(report.blocked for report in reports if isinstance(report, WriteReport))
        if is_blocked(reports):
            reports = self._written(replace(work, is_settled=True), split, content)
        errors = [report.error for report in reports if report.error]
        # Another reason is none, though the row is not written either.
        assert all(NOT_WRITTEN in error and "= ?" not in error for error in errors), errors
        return errors

    def _line(self, row: Row, low: int) -> str:
        operation, ts, number, identity, text = row
        shown = base64.b64encode(text.encode()).decode() if self._is_binary else text
        return f'"{operation}","t","pairs",{low + ts},{number},{identity},"{shown}"\r\n'

    def _written(self, work: TablePlan, split: JobFile, content: bytes) -> list[FileReport | WriteReport]:
        decoder, partitions = CsvDecoder(_OPTIONS), len(self._writers)
        items = sorted(read_files([split], {0: work}, partitions, lambda _: iter([content]), decoder), key=_place)
        return [
            report
            for bucket, writer in enumerate(self._writers)
            for report in write_bucket((item for item in items if item[0][0] == bucket), {0: work}, writer)
        ]


def _place(item: tuple[Place, object]) -> Place:
    return item[0]


_OPTIONS = CsvOptions(include_commit_ts=True)


COUNT = 1_000 if THOROUGH else 25
"""Pairs by each kind of key and each way to write."""
EQUAL = {
    "ascii_bin": True,
    "utf8mb4_unicode_ci": True,
    "utf8mb4_0900_ai_ci": True,
    "gbk_chinese_ci": True,
    "utf8mb4_0900_bin": False,
}
"""Collation → whether its name finds texts equal that differ in their bytes."""


@pytest.mark.slow
@pytest.mark.server
@pytest.mark.parametrize("collation", COLLATIONS if THOROUGH else EQUAL)
def test_no_row_goes_without_a_word(server: DatabaseServer, collation: str) -> None:
    """Of each pair the target has both, or has one and the other was reported, by each kind of key and each way to write."""
    said = 0
    for key in KEYS:
        try:
            table = Pairs(server, collation, key)
        except (NotReplicable, pymysql.err.MySQLError):
            # A server may lack a collation, and then refuses the table.
            assert collation not in EQUAL
            continue
        with table as made:
            for how in HOW:
                chance = random.Random(f"{collation} {key} {how}")  # noqa: S311 - data, not a secret
                found = made.run(pairs(collation, chance, COUNT, key), how)
                assert found.lost == [], (key, how)
                assert found.kept + found.said == COUNT
                said += found.said
    assert bool(said) == EQUAL.get(collation, bool(said))
