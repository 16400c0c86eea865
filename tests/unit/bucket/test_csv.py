"""CSV settings are found by elimination: what the files prove is inferred, what they leave open is named."""

from __future__ import annotations

import pytest

from storage_consumer.cli.bucket_commands import command, lines_of
from tests.unit.bucket.building import (
    CREATE,
    ID_NAME,
    TS,
    bucket_of,
    csv_bucket,
    data_path,
    look,
    schema_file,
    setting,
    shown,
)

ROW = f'"I","orders","shop",{TS},1,"one"\r\n'
NULL_ROW = f'"I","orders","shop",{TS},2,\\N\r\n'


def test_ticdcs_defaults_are_found() -> None:
    """Two ordinary rows show every setting but the binary encoding, which stays unsaid while no value needs it."""
    bucket = look(csv_bucket(ROW, NULL_ROW))
    assert shown(bucket) | {"date-separator": "day"} == {
        "protocol": "csv",
        "terminator": "\r\n",
        "delimiter": ",",
        "quote": '"',
        "null": "\\N",
        "include-commit-ts": True,
        "binary-encoding-method": "",
        "output-old-value": False,
        "output-handle-key": False,
        "output-field-header": False,
        "date-separator": "day",
        "enable-partition-separator": None,
    }
    assert bucket.missing == ()
    assert setting(bucket, "null").origin == f"{data_path()} row 2"


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ((f"'I'|+|'orders'|+|'shop'|+|{TS}|+|1|+|'one'\n", f"'D'|+|'orders'|+|'shop'|+|{TS}|+|7|+|null\n", f"'D'|+|'orders'|+|'shop'|+|{TS}|+|8|+|null\n"), {"delimiter": "|+|", "quote": "'", "terminator": "\n", "null": "null"}),
        ((f'"D","orders","shop",{TS},true,1,"one"\r\n', f'"I","orders","shop",{TS},true,1,"x"\r\n'), {"output-old-value": True, "include-commit-ts": True}),
        ((f'"I","orders","shop",{TS},"1",1,"one"\r\n', f'"I","orders","shop",{TS},"22",22,"x"\r\n'), {"output-handle-key": True, "output-old-value": False}),
        (('"I","orders","shop",1,"one"\r\n', '"I","orders","shop",22,"x"\r\n'), {"include-commit-ts": False}),
        ((f'"I","orders","shop",{TS},1,"one"', f'"I","orders","shop",{TS},22,"x"'), {"terminator": ""}),
        (
            (
                "ticdc-meta$operation,ticdc-meta$table,ticdc-meta$schema,ticdc-meta$commit-ts,id,name\r\n",
                ROW,
                NULL_ROW,
            ),
            {"output-field-header": True, "include-commit-ts": True},
        ),
    ],
    ids=["dialect", "old-value", "handle-key", "no-commit-ts", "no-terminator", "header"],
)  # fmt: skip
def test_other_settings_are_found(rows: tuple[str, ...], expected: dict[str, object]) -> None:
    """Each setting shows in the rows that were written with it."""
    bucket = look(csv_bucket(*rows))
    assert {name: shown(bucket).get(name, "not inferred") for name in expected} == expected


def test_a_text_that_looks_like_a_row_changes_nothing() -> None:
    """Line ends, quotes and the beginning of a row inside a text are text."""
    text = f'a""\r\n""I"",""orders"",""shop"",{TS}\r\n'
    bucket = look(csv_bucket(f'"I","orders","shop",{TS},1,"{text}"\r\n', ROW))
    assert (shown(bucket)["terminator"], shown(bucket)["include-commit-ts"]) == ("\r\n", True)


@pytest.mark.parametrize(
    "columns", [ID_NAME, (*ID_NAME, {"ColumnName": "n", "ColumnType": "INT"})], ids=["text", "number"]
)
def test_a_null_marker_that_no_row_shows_is_assumed(columns: tuple[dict[str, str], ...]) -> None:
    """With a quote and without a NULL in the rows, TiCDC's default is taken, and said to be an assumption."""
    query = CREATE if len(columns) == len(ID_NAME) else CREATE[:-1] + ", `n` INT)"
    row = ROW if len(columns) == len(ID_NAME) else ROW.replace("\r\n", ",0\r\n")
    bucket = look(csv_bucket(row, columns=columns, query=query))
    assert (setting(bucket, "null").state, setting(bucket, "null").value) == ("assumed", "\\N")
    assert (bucket.missing, bucket.upstream.csv.null, bucket.inferred["null"]) == (
        (),
        "\\N",
        setting(bucket, "null").origin,
    )
    assert "assumed: --null \\N (no sampled row holds a NULL" in "\n".join(lines_of(bucket))
    assert "--null" not in command(bucket)
    told = look(csv_bucket(row, columns=columns, query=query), null="0x")
    assert (setting(told, "null").state, told.assumed) == ("given", ())


def test_a_number_as_null_marker_is_never_inferred() -> None:
    """A bare number among texts would be the marker; no such option is read, so nothing is inferred from it."""
    bucket = look(csv_bucket(ROW, NULL_ROW.replace("\\N", "0")))
    assert "null" in [each.name for each in bucket.missing]


def test_a_null_marker_without_quotes_needs_a_proof() -> None:
    """Without quotes an unseen marker could be any text; a number's column that holds it proves it."""
    columns = (*ID_NAME, {"ColumnName": "n", "ColumnType": "INT"})
    query = CREATE[:-1] + ", `n` INT)"
    open_rows = [f"I\torders\tshop\t{TS}\t1\tNULL\t5\n", f"U\torders\tshop\t{TS}\t1\tone\t6\n"]
    bucket = look(csv_bucket(*open_rows, columns=columns, query=query))
    assert [each.name for each in bucket.missing] == ["null"]
    proofs = [f"U\torders\tshop\t{TS}\t{number}\tone\tNULL\n" for number in (1, 2)]
    bucket = look(csv_bucket(*open_rows, *proofs, columns=columns, query=query))
    assert shown(bucket)["null"] == "NULL"
    assert any("writes NULL and the text 'NULL' alike" in each for each in bucket.warnings)
    assert not any("alike" in each for each in look(csv_bucket(ROW)).warnings)


@pytest.mark.parametrize("rows", [(ROW, NULL_ROW.replace("\\N", "broken")), (NULL_ROW.replace("\\N", "null"),)])
def test_a_single_field_proves_no_marker_but_ticdcs_own(rows: tuple[str, ...]) -> None:
    """One bare text may be a row that was damaged; TiCDC's default marker may stand alone, any other needs a second field."""
    assert [each.name for each in look(csv_bucket(*rows)).missing] == ["null"]
    assert look(csv_bucket(ROW, NULL_ROW)).missing == ()


@pytest.mark.parametrize(
    ("value", "expected"), [("3q2+7w==", "base64"), ("deadbee0ff", "hex"), ("deadbeef", None), ("", "")]
)
def test_the_binary_encoding_needs_a_proof(value: str, expected: str | None) -> None:
    """What is no hex is base64 and the other way round; what is both stays open; empty values say nothing."""
    columns = (*ID_NAME, {"ColumnName": "b", "ColumnType": "VARBINARY", "ColumnPrecision": "20"})
    query = CREATE[:-1] + ", `b` VARBINARY(20))"
    row = f'"I","orders","shop",{TS},1,"one","{value}"\r\n'
    found = setting(
        look(csv_bucket(row, NULL_ROW[:-2] + ",\\N\r\n", columns=columns, query=query)), "binary-encoding-method"
    )
    assert (found.value, found.is_missing) == (expected, expected is None)


def test_keys_that_look_like_commit_ts_leave_it_open() -> None:
    """A first value that could be a commit ts in every row proves nothing against one."""
    rows = [f'"I","orders","shop",{TS + each},"x{each}"\r\n' for each in range(3)]
    bucket = look(csv_bucket(*rows, query=""))
    assert "include-commit-ts" in [each.name for each in bucket.missing]


def test_a_virtual_column_is_no_missing_field() -> None:
    """A virtual generated column is in the schema file and not in the rows; the statement that made it says so."""
    columns = (*ID_NAME, {"ColumnName": "twice", "ColumnType": "BIGINT"})
    query = CREATE[:-1] + ", `twice` BIGINT GENERATED ALWAYS AS (`id` * 2) VIRTUAL)"
    bucket = look(csv_bucket(ROW, NULL_ROW, columns=columns, query=query))
    assert (shown(bucket)["include-commit-ts"], bucket.missing) == (True, ())


def test_rows_from_before_the_ddl_are_passed_over() -> None:
    """After a restart a directory may hold rows of an older structure; they committed before it."""
    old = f'"I","orders","shop",{TS - 200},"older","structure",1,2\r\n'
    assert look(csv_bucket(ROW, old, NULL_ROW)).missing == ()


def test_a_damaged_file_is_set_aside() -> None:
    """One file that nothing reads is a warning, as long as the others agree."""
    files = [(data_path(number), (ROW + NULL_ROW).encode()) for number in range(1, 3)]
    bucket = look(bucket_of(schema_file(), *files, (data_path(3), b"\x00" * 50)))
    assert bucket.missing == ()
    assert any(data_path(3) in warning for warning in bucket.warnings)


def test_files_written_with_different_settings_are_no_ones() -> None:
    """Two files that need different settings leave everything open, with the path of one that contradicts."""
    other = ROW.replace(",", ";").encode()
    bucket = look(bucket_of(schema_file(), (data_path(1), ROW.encode()), (data_path(2), other)))
    assert "other options" in setting(bucket, "delimiter").origin
    assert setting(bucket, "delimiter").is_missing


def test_what_is_told_and_not_so_contradicts() -> None:
    """A told setting that the files disprove is named with the file and what it shows."""
    told = {"sink": {"csv": {"delimiter": ";", "include-commit-ts": True}}}
    found = look(csv_bucket(ROW, NULL_ROW), config=told).contradictions
    assert [each.name for each in found] == ["delimiter"]
    assert found[0].origin == f"{data_path()} row 1 shows ','"


def test_what_is_told_settles_what_the_files_leave_open() -> None:
    """A told setting counts, and is shown with who told it."""
    rows = [f'"I","orders","shop",{TS + each},"x{each}"\r\n' for each in range(3)]
    bucket = look(csv_bucket(*rows, query=""), include_commit_ts=False)
    assert setting(bucket, "include-commit-ts").origin == "--include-commit-ts"
    assert bucket.missing == ()


@pytest.mark.parametrize("gone", [1, 2, 3, 5, 7, 20, len(ROW) - 1])
@pytest.mark.parametrize("rows", [ROW, ROW + ROW])
def test_a_newest_file_that_is_being_written(rows: str, gone: int) -> None:
    """Its last row shows nothing, wherever it ends: the files before it do."""
    whole, cut = (ROW + NULL_ROW).encode(), rows.encode()[:-gone]
    bucket = look(bucket_of(schema_file(), (data_path(1), whole), (data_path(2), cut)))
    assert bucket.missing == ()
    assert shown(bucket)["terminator"] == "\r\n"
    assert shown(bucket)["null"] == "\\N"
