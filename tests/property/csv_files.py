"""Random CSV files under random options, and what reading them must give."""

from __future__ import annotations

import random
import string
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal

from storage_consumer.config.settings import CsvOptions
from storage_consumer.decode.csv_files import AMBIGUOUS, CsvDecoder
from storage_consumer.decode.decoder import Decoder, FileRead, RowChange, RowLayout, Tally
from storage_consumer.decode.kernels.arrays import DELETE, INSERT, UPDATE
from storage_consumer.errors import ConfigError, UndecodableRow
from storage_consumer.model import CommitRange, TableColumn, TableName
from tests.property.csv_encoding import Change, Source, Value

TS = 449_000_000_000_000_000
DELIMITERS = (",", "\t", "|", ";", " ", "\x01", "x", "|+|", "||", "<>", "-|", ",|,", "§", "→", ":::", '"')
QUOTES = ('"', '"', "'", "`", "", "", "~")
NULLS = ("\\N", "\\N", "NULL", "", "nil", "-", "\\", "I", "(null)")
TERMINATORS = ("\r\n", "\r\n", "\n", "\r", "", "||", "|\n", "EOL", ".\n", "<end>", "§", "\x00", "\n\n", " ")
SPECIALS = (
    "\r",
    "\n",
    "\r\n",
    "\\",
    "\\N",
    "\\n",
    "\x00",
    "NULL",
    "",
    "'",
    '"',
    '""',
    "é",
    "日",
    "😀",
    "I",
    "true",
    "0",
    "\t",
    " ",
)
MEMBERS = ("a", 'b"', "c'd", "e f", "\\", "NULL", "")

Draw = Callable[[random.Random, Sequence[str]], Value]
"""A random value of one type; the texts are worth to be in it."""


def _text(chance: random.Random, specials: Sequence[str]) -> str:
    pieces = chance.choices((*specials, "a", "word", "Ünï"), k=chance.choice((0, 1, 1, 1, 2, 3, 6)))
    return "".join(pieces)


def _integer(chance: random.Random, bits: int, *, signed: bool) -> int:
    value = chance.choice((0, 1, 2**bits - 1, chance.getrandbits(bits), chance.randrange(1000)))
    return value - 2 ** (bits - 1) if signed else value


def _single(chance: random.Random) -> float:
    value = chance.choice((0.0, 0.1, 1e6, 999999.5, 1.5e-5, chance.uniform(-1e9, 1e9), 10 ** chance.uniform(-30, 30)))
    return float(struct.unpack("<f", struct.pack("<f", value))[0])


def _double(chance: random.Random) -> float:
    return chance.choice((0.0, -0.5, 1e21, 1e-7, chance.uniform(-1, 1), chance.uniform(-1e300, 1e300), 5e-324))


def _moment(chance: random.Random) -> str:
    day = f"{chance.randrange(10_000):04d}-{chance.randrange(13):02d}-{chance.randrange(29):02d}"
    return f"{day} {chance.randrange(24):02d}:00:{chance.randrange(60):02d}{chance.choice(('', '.5', '.000001'))}"


def _signed(bits: int) -> Draw:
    return lambda chance, _: _integer(chance, bits, signed=True)


def _json(chance: random.Random, specials: Sequence[str]) -> str:
    text = _text(chance, specials).replace("\\", "\\\\").replace('"', '\\"').replace("\r", "\\r").replace("\n", "\\n")
    return f'{{"k": ["{text}", null, {chance.randrange(99)}]}}'


def _bytes(chance: random.Random, _: Sequence[str]) -> bytes:
    return chance.randbytes(chance.choice((0, 1, 3, 8)))


KINDS: dict[str, Draw] = {
    **{name: _signed(bits) for name, bits in (("TINYINT", 8), ("SMALLINT", 16), ("MEDIUMINT", 24), ("INT", 32))},
    "BIGINT": lambda chance, _: _integer(chance, 64, signed=chance.random() < 0.5),
    "BIT": lambda chance, _: _integer(chance, 64, signed=False),
    "YEAR": lambda chance, _: chance.choice((0, chance.randint(1901, 2155))),
    "FLOAT": lambda chance, _: _single(chance),
    "DOUBLE": lambda chance, _: _double(chance),
    "DECIMAL": lambda chance, _: f"{Decimal(chance.randrange(-(10**9), 10**9)).scaleb(-4):f}",
    "DATE": lambda chance, _: _moment(chance)[:10],
    "DATETIME": lambda chance, _: _moment(chance),
    "TIMESTAMP": lambda chance, _: _moment(chance),
    "TIME": lambda chance, _: f"{chance.choice(('', '-'))}{chance.randrange(839):02d}:59:59",
    **dict.fromkeys(("CHAR", "VARCHAR", "TINYTEXT", "TEXT", "MEDIUMTEXT", "LONGTEXT"), _text),
    **dict.fromkeys(("BINARY", "VARBINARY", "TINYBLOB", "BLOB", "MEDIUMBLOB", "LONGBLOB"), _bytes),
    "JSON": _json,
    "VECTOR": lambda chance, _: f"[{chance.randrange(99)},-2.5,1e-07]",
    "ENUM": lambda chance, _: chance.choice(MEMBERS[:-1]),
    "SET": lambda chance, _: ",".join(chance.sample(MEMBERS[:3], chance.randrange(4))),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """What a random file must be read as, and what it was read as."""

    what: str
    """The file and how it was written, for the message where the two differ."""
    content: bytes
    decoder: Decoder
    layout: RowLayout
    found: object
    expected: object


def case(chance: random.Random, rows: int) -> Case:
    """A file of about `rows` rows: what was read of it, and what must be."""
    source = random_source(chance)
    specials = [
        *SPECIALS,
        source.options.delimiter,
        source.options.quote,
        source.options.null,
        source.options.terminator,
    ]
    changes = [random_change(chance, source, TS + number, specials) for number in range(rows)]
    if changes and chance.random() < 0.3:  # a text that looks like the row before it
        specials += [row for row in source.rows(changes[0]) if len(row) < 500]
        changes += [random_change(chance, source, TS + rows + number, specials) for number in range(3)]
    data = (source.header() + "".join(row for change in changes for row in source.rows(change))).encode()
    layout = RowLayout(table=source.table, columns=source.columns)
    size = chance.choice((1, 2, 7, 100, 1 << 20)) if len(data) < 3000 else chance.choice((997, 1 << 16, 1 << 20))
    blocks = (data[start : start + size] for start in range(0, len(data), size))
    tally = Tally()
    expected = _expected(source, changes)
    found: list[RowChange] | str
    decoder = CsvDecoder(source.options)
    try:
        file = FileRead(
            blocks=blocks, source="CDC1.csv", layout=layout, commit_range=CommitRange(low=0, high=2**64), tally=tally
        )
        found = list(decoder.rows(file))
    except UndecodableRow as error:
        found = str(error)
        unheeded = source.options.output_handle_key and not source.handle_key
        if is_open(source.options) or (unheeded and AMBIGUOUS in found):
            expected, found = [], []
    return Case(
        what=f"{source}, blocks of {size} bytes: {data[:4000]!r}",
        content=data,
        decoder=decoder,
        layout=layout,
        found=found,
        expected=expected,
    )


def is_open(options: CsvOptions) -> bool:
    """Whether the format leaves rows under these options open to two readings, so that a file may be refused.

    Without a quote nothing keeps the terminator out of a text, nor a text's end and the delimiter behind it apart.
    """
    delimiter = options.delimiter
    overlaps = any(delimiter.startswith(delimiter[step:]) for step in range(1, len(delimiter)))
    return not options.quote and (overlaps or bool(set(options.terminator) - {"\r", "\n"}))


def _expected(source: Source, changes: list[Change]) -> list[RowChange]:
    expected: list[RowChange] = []
    number = 0
    for change in changes:
        ts = change.ts if source.options.include_commit_ts else 0
        old, new = source.image(change.old), source.image(change.new)
        number += 1
        if old is not None and new is not None and not change.split:
            expected.append((number, ts, UPDATE, new, old if source.options.output_old_value else None))
            number += source.options.output_old_value
        elif old is not None and new is not None:
            expected += [(number, ts, DELETE, old, None), (number + 1, ts, INSERT, new, None)]
            number += 1
        elif new is not None:
            expected.append((number, ts, INSERT, new, None))
        elif old is not None:
            expected.append((number, ts, DELETE, old, None))
    return expected


def random_change(chance: random.Random, source: Source, ts: int, specials: Sequence[str]) -> Change:
    """An insert, an update or a delete."""
    has_old, has_new = chance.choice(((False, True), (True, True), (True, False)))
    return Change(
        ts=ts,
        old=_values(chance, source, specials) if has_old else None,
        new=_values(chance, source, specials) if has_new else None,
        split=chance.random() < 0.3,
    )


def _values(chance: random.Random, source: Source, specials: Sequence[str]) -> tuple[Value, ...]:
    return tuple(
        None if column.nullable and chance.random() < 0.15 else KINDS[column.type](chance, specials)
        for column in source.columns
    )


def random_source(chance: random.Random) -> Source:
    """A table and options."""
    options = _options(chance)
    names = chance.sample(
        ("id", "bb", "c d", "é", "Name", "x,y", "ticdc-meta$table", 'q"', *string.ascii_uppercase), k=12
    )
    columns = tuple(
        TableColumn(name=names[index], type=kind, nullable=chance.random() < 0.7)
        for index, kind in enumerate(chance.choices(sorted(KINDS), k=chance.randint(1, 6)))
    )
    order = list(range(len(columns)))
    plain_names = not any(set(column.name) & set(options.delimiter + options.terminator) for column in columns)
    if options.output_field_header and options.terminator and plain_names and chance.random() < 0.5:
        chance.shuffle(order)
    table, schema = chance.choices(("orders", "shop", "a b", 'o"r', "d,e|+|", "back\\slash", "I", "née"), k=2)
    return Source(
        options=options,
        handle_key=options.output_handle_key and chance.random() < 0.5,
        table=TableName(schema=schema, table=table),
        columns=columns,
        written=tuple(order),
    )


def _options(chance: random.Random) -> CsvOptions:
    """Options that are not refused."""
    while True:
        options = CsvOptions(
            delimiter=chance.choice(DELIMITERS),
            quote=chance.choice(QUOTES),
            null=chance.choice(NULLS),
            terminator=chance.choice(TERMINATORS),
            include_commit_ts=chance.random() < 0.7,
            binary_encoding_method=chance.choice(("base64", "hex")),
            output_old_value=chance.random() < 0.4,
            output_handle_key=chance.random() < 0.3,
            output_field_header=chance.random() < 0.3,
        )
        try:
            CsvDecoder(options)
        except ConfigError:
            continue
        return options
