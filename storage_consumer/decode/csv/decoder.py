r"""Decode TiCDC's CSV: ``op,table,schema[,commit-ts][,is-update][,handle-key],value...``, under every set of its options.

Layout and options determine what each column's field may look like. So one regular expression reads a whole row, checks
its form, and keeps NULL and text apart. Text that it does not match is examined field by field, to say what is wrong.

What the format itself leaves open:

* Without a quote, a text that equals the null marker is written like NULL, unless the marker is ``\N``. It is read as
  NULL in a nullable column, and as text in any other.
* Without a quote, a text that ends in a part of a delimiter such as ``|+|`` may be read in two ways: such a row is
  refused.
* Without a terminator rows run together, and a row ends where another begins. So a row of another table version cannot
  be skipped; it halts its table. And the last row of a torn file may seem complete.
* ``output-handle-key`` is obeyed by the classic architecture and ignored by the new one. The number of fields in a
  file's first row shows which one wrote it. If a virtual generated column that is one on one side only could explain
  the difference, some row of the file must have a form that rules this out.
* The handle key may be bytes that are not text; no other field may.
* A header line names the columns of the file's first row. If its order differs from the layout's, it holds only if that
  row is inside the commit range: a row from before a reordering of the columns may precede rows from after it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from storage_consumer.config.settings import CsvOptions
from storage_consumer.decode.csv.dialect import dialect_of
from storage_consumer.decode.csv.options import check_options
from storage_consumer.decode.csv.row_pattern import FileForm, Shape, shape
from storage_consumer.decode.csv.scan import Scan
from storage_consumer.decode.decoder import Batch, FileRead, FilesBatch, RowChange, RowLayout
from storage_consumer.model import CommitRange


class CsvDecoder:
    """Decodes CSV files written under one set of options."""

    def __init__(self, options: CsvOptions) -> None:
        """Initialize; raise `ConfigError`, naming TiCDC's option, for options under which rows cannot be read for certain."""
        check_options(options)
        self.options = options
        self._latest: tuple[RowLayout, Shape] | None = None

    def changes(self, file: FileRead) -> Iterator[RowChange | Batch]:
        """See `Decoder.changes`. The key does not matter: an update with its old row is two rows here."""
        return self._scan(file, at_once=True).changes()

    def together(
        self,
        contents: Sequence[bytes],
        layout: RowLayout,
        commit_range: CommitRange,
        key: Sequence[int],  # noqa: ARG002 - as in `changes`
    ) -> FilesBatch | None:
        """See `Decoder.together`."""
        from storage_consumer.decode.csv.csv_bulk import csv_row_form, read_csv_together  # noqa: PLC0415 - late, see `jit`

        # These hold for a whole file: a header line, what its first row shows of the handle key, and old values.
        options = self.options
        by_itself = options.output_field_header or options.output_handle_key or options.output_old_value
        form = None if by_itself else csv_row_form(self._shape(layout))
        return read_csv_together(form, contents, commit_range) if form else None

    def rows(self, file: FileRead) -> Iterator[RowChange]:
        """See `Decoder.rows`. I and U rows are kept apart, but mean the same.

        An update has old values with ``output-old-value``: its D and I rows become one change with the D row's number.
        So the first change of a file always has number 1, which shows that a transaction continues there. If the rows
        have no commit-ts, the changes have 0, and the commit range excludes none of them.
        """
        return self._scan(file).changes()

    def _scan(self, file: FileRead, *, at_once: bool = False) -> Scan:
        """Return the state to read one file."""
        return Scan(
            blocks=iter(file.blocks),
            shape=self._shape(file.layout),
            commit_range=file.commit_range,
            tally=file.tally,
            source=file.source,
            form_confirmed=not self.options.output_handle_key,
            at_once=at_once,
        )

    def _shape(self, layout: RowLayout) -> Shape:
        """Return the shape of a file with neither a handle key nor its own column order; the latest one is cached for the next file."""
        # The files of one directory share the layout object, so identity is enough.
        if self._latest is None or self._latest[0] is not layout:
            names = (dialect_of(self.options).encode(name) for name in (layout.table.table, layout.table.schema))
            form = FileForm(
                options=self.options,
                layout=layout,
                names=self.options.delimiter.join(names),
                order=tuple(range(len(layout.columns))),
                handle_key=False,
            )
            self._latest = layout, shape(form)
        return self._latest[1]
