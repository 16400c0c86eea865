"""Exports that real Dumpling wrote: each is read to exactly the rows that it holds, or refused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from storage_consumer.bucket.export import refuse_unsaid
from storage_consumer.bucket.schema_file import parse_schema_file
from storage_consumer.config.settings import Upstream
from storage_consumer.driver.open_copies import with_form
from storage_consumer.errors import ExportRefused, UndecodableRow
from tests.harness.corpora import FIXTURES
from tests.harness.corpora import available as corpora
from tests.harness.dumps import Dump, as_parquet, available, differences

AMBIGUOUS = {
    "extras/csv-nodelim-nobs": "separators are in values, and nothing is around these",
    "types/csv-nodelim-nobs": "separators are in values, and nothing is around these",
    "text_traps/csv-nodelim-nobs": "separators and ends of lines are in values, and nothing is around these",
    "types/csv-tab": "nothing is around texts, and a text equals what stands for NULL",
    "text_traps/csv-tab": "nothing is around texts, and a text equals what stands for NULL",
}
"""Exports whose options do not let one tell what they hold."""
MIXED = {"special/sql-two-in-one-folder"}
"""Exports that are finished, and nonetheless not to be loaded."""
NAMELESS = ("--output-filename-template", "--no-schemas", "--sql")
"""Options after which the files do not say of which table or structure the rows are."""


@pytest.fixture(scope="module")
def dumps(tmp_path_factory: pytest.TempPathFactory) -> Sequence[Dump]:
    """All exports at hand."""
    return available(tmp_path_factory.mktemp("dumps"))


def _is_whole(dump: Dump) -> bool:
    """Return whether an export succeeded and can be loaded by its names."""
    return not dump.about["exit"] and not dump.has_option(*NAMELESS) and str(dump) not in MIXED


@pytest.mark.timeout(900)
def test_rows_are_those_of_the_source(dumps: Sequence[Dump]) -> None:
    """Every export that its options describe holds, value for value, what the source held at the snapshot."""
    # Those with --no-data or --where do not hold all rows of their golden.
    whole = [dump for dump in dumps if _is_whole(dump) and not dump.has_option("--no-data", "--where")]
    wrong = {}
    for dump in whole:
        if str(dump) not in AMBIGUOUS and (found := differences(dump, dump.read())):
            wrong[str(dump)] = found
    assert wrong == {}
    assert len(whole) > 15


@pytest.mark.timeout(900)
@pytest.mark.parametrize("cloud", [False, True])
def test_the_same_rows_as_parquet(dumps: Sequence[Dump], tmp_path: Path, *, cloud: bool) -> None:
    """As Parquet an export has the same values, or the table is refused: by the column whose dates may be lost, or for having no others."""
    seen = set[str]()
    for dump in dumps:
        if not _is_whole(dump) or dump.has_option("--no-data", "--where") or str(dump) in AMBIGUOUS:
            continue
        # One export in several files of each workload, and one in any form.
        if (kind := f"{dump.folder.parent.name} {dump.has_option('-r', '-F')}") in seen:
            continue
        seen.add(kind)
        written = as_parquet(dump, tmp_path / f"{dump}".replace("/", "-"), cloud=cloud)
        export = written.read()
        form = with_form(Upstream(scheme="file", root="/", protocol="dump-sql", time_zone="UTC"), export, "UTC")
        for table in export.tables:
            one = replace(export, tables=(table,))
            try:
                refuse_unsaid(written.storage, one, form, ())
            except ExportRefused as fault:
                assert "may stand for a date such as 0000-00-00" in str(fault)  # noqa: PT017 - a part of them
                continue
            try:
                assert differences(written, one) == []
            except UndecodableRow as fault:
                assert "place of dates" in str(fault) or not table.carried  # noqa: PT017 - likewise
    assert len(seen) > 8


@pytest.mark.parametrize("block", [1, 61, 4093])
def test_blocks_do_not_matter(dumps: Sequence[Dump], block: int) -> None:
    """Where the blocks of a file end is of no importance, be it inside an escape or a character."""
    chosen = {"types/sql", "types/csv-nobs", "text_traps/csv", "text_traps/csv-multidelim", "text_traps/sql-nobs"}
    for dump in dumps:
        if str(dump) in chosen:
            assert differences(dump, dump.read(), block=block) == []


def test_ambiguous_ones(dumps: Sequence[Dump]) -> None:
    """Where separators cannot be told from values the row is refused; where NULL cannot be told from a text, NULL it is."""
    for dump in dumps:
        if str(dump) not in AMBIGUOUS:
            continue
        export = dump.read()
        if "nodelim" in str(dump):
            with pytest.raises(UndecodableRow, match=r"it has \d+ values, but"):
                differences(dump, export)
        else:
            assert len(differences(dump, export)) in (1, 2)


def test_the_snapshot(dumps: Sequence[Dump]) -> None:
    """The snapshot is the TSO that the rows are of, unless the export was told a date."""
    for dump in dumps:
        if _is_whole(dump):
            export = dump.read()
            if "datetime" in str(dump):
                assert (export.snapshot, "is the date" in export.snapshot_hint) == (0, True)
            else:
                assert (str(export.snapshot), export.snapshot_hint) == (dump.about["golden_at"], "")


def test_structures(dumps: Sequence[Dump]) -> None:
    """Tables, their columns, keys and generated columns are those that the source had."""
    for dump in dumps:
        if not _is_whole(dump):
            continue
        export, expected = dump.read(), dump.expected()
        temporary = {name for name in expected if name.table == "gtmp"}
        assert {table.name for table in export.tables} == expected.keys() - temporary, str(dump)
        for table in export.tables:
            columns, _ = expected[table.name]
            assert [(c.name, c.nullable) for c in table.definition.columns] == [
                (c["name"], c["nullable"]) for c in columns
            ]
            assert [c.name for c in table.definition.columns if c.is_pk] == [
                c["name"] for c in columns if c["key"] == "PRI"
            ]
            assert [c.name for c in table.carried] == [
                c["name"] for c in columns if not c["extra"].endswith(" GENERATED")
            ]


def test_columns_as_ticdc_writes_them(dumps: Sequence[Dump], tmp_path: Path) -> None:
    """Columns are described as TiCDC's schema files describe those of the same tables."""
    source = next(each for each in corpora(FIXTURES) if str(each) == "new/types__csv")
    export = next(dump.read() for dump in dumps if str(dump) == "types/sql")
    tables = {table.name: table.definition.columns for table in export.tables}
    compared = 0
    for path in (source.open(tmp_path).folder / "tree").glob("types_db/*/meta/*.json"):
        version = int(path.stem.split("_")[1])
        definition = parse_schema_file(path.read_bytes(), str(path), version, None, "types_db")
        for theirs, ours in zip(definition.columns, tables[definition.name], strict=True):
            # The default of a TIMESTAMP is in a zone that the statement does not name, and TiCDC gives a key of YEAR one.
            if theirs.type not in {"TIMESTAMP", "YEAR"}:
                assert ours == theirs
                compared += 1
    assert compared > 80


def test_refused(dumps: Sequence[Dump]) -> None:
    """What failed, was killed, lies beside another export or does not say whose rows it has is refused by name."""
    refused = 0
    for dump in dumps:
        if not _is_whole(dump):
            with pytest.raises(ExportRefused):
                dump.read()
            refused += 1
    assert refused >= 5


def test_cut_files(dumps: Sequence[Dump], tmp_path: Path) -> None:
    """A file that lost its last bytes is refused, or its last row is reported; rows are never left out silently."""
    chosen = {"types/sql", "types/csv-bigquery", "extras/csv-zstd", "extras/csv-snappy", "shop/sql-gzip"}
    for dump in dumps:
        if str(dump) not in chosen:
            continue
        export = dump.read()
        table = max(export.tables, key=lambda each: sum(part.size for part in each.parts))
        copy = tmp_path / dump.folder.parent.name / dump.folder.name
        copy.mkdir(parents=True)
        (copy / "about.json").write_text((dump.folder / "about.json").read_text())
        (copy / "golden").symlink_to(dump.folder / "golden")
        (copy / "dump").mkdir()
        for path in (dump.folder / "dump").iterdir():
            content = path.read_bytes()
            (copy / "dump" / path.name).write_bytes(content[:-3] if path.name == table.parts[0].path else content)
        with pytest.raises((ExportRefused, UndecodableRow)):
            differences(Dump(copy), Dump(copy).read())
