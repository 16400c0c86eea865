"""What `load --source` does before it asks for a load: it exports the table from the live TiDB into the folder of --dump."""

from __future__ import annotations

import sys
from collections.abc import Mapping

from tqdm import tqdm

from storage_consumer.cli.reading_source import KEYWORDS, rows_per_second_of, server_of, workers_of
from storage_consumer.config.export_uris import export_origin, refuse_inside
from storage_consumer.config.load import load, load_target
from storage_consumer.errors import ConfigError
from storage_consumer.model import TableName
from storage_consumer.operating.exporting import Exported, ExportWishes, exported
from storage_consumer.storage.open import open_folder
from storage_consumer.telemetry import register_secret

_OF_BUCKET = ("upstream_uri", "config")


def check(own: Mapping[str, str]) -> None:
    """Refuse flags that mean nothing without --source or --dump; raise `ConfigError`."""
    for name in KEYWORDS:
        if name in own and not {"source", "dump"} <= own.keys():
            needs = "--dump, the empty folder for the export" if name == "source" else "--source"
            raise ConfigError(f"--{name.replace('_', '-')} goes with {needs}")
    _wishes(own)


def export_table(
    name: TableName, own: Mapping[str, str], options: Mapping[str, object], environ: Mapping[str, str]
) -> Exported:
    """Export a table into the folder that --dump names, with the bucket's credentials, as a consumer will read it. Raises as `exported`.

    `options`: those of the bucket and of the target, files that may be pipes already read.
    """
    bucket = load({key: options[key] for key in _OF_BUCKET if key in options}, environ, target=False)
    for secret in bucket.hidden:
        register_secret(secret)
    target, _, _ = load_target({key: value for key, value in options.items() if key != "upstream_uri"}, environ)
    source = server_of(own, environ, target)
    origin = export_origin(own["dump"], bucket.config.upstream)
    refuse_inside(origin, bucket.config.upstream)
    folder = open_folder(origin, bucket.secrets)
    with tqdm(desc=str(name), unit=" rows", file=sys.stderr, disable=None, leave=False) as bar:
        return exported(source, name, folder, _wishes(own), heard=bar.update)


def _wishes(own: Mapping[str, str]) -> ExportWishes:
    plain = ExportWishes()
    return ExportWishes(
        workers=workers_of(own, plain.workers), rows_per_second=rows_per_second_of(own, plain.rows_per_second)
    )
