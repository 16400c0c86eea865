"""The settings of the bucket, and which of them were given: the others are inferred from the bucket."""

from __future__ import annotations

from collections.abc import Mapping

from storage_consumer.config import parsers, stores
from storage_consumer.config.format_options import CSV_OPTIONS
from storage_consumer.config.left_out import left_out
from storage_consumer.config.settings import ColumnSelector, CsvOptions, Upstream
from storage_consumer.config.sources import Given, Sources
from storage_consumer.config.table_filter import CarriedColumns, check_selectors
from storage_consumer.config.uris import Uri
from storage_consumer.errors import ConfigError

FORMAT_KEYWORDS: tuple[str, ...] = ("protocol", *CSV_OPTIONS, "enable_tidb_extension")
"""The options without which data files cannot be read."""
_SHOWN_BY_PATHS = ("date_separator", "enable_partition_separator", "tz")
"""Options that need not be given: each path shows the first two, and the last matters only for TIMESTAMP columns."""
DEFAULT_OF_TICDC = "TiCDC's default"


def upstream_settings(sources: Sources, time_zone: str) -> tuple[Upstream, Mapping[str, str]]:
    """Return the bucket, and for each format option that was given: keyword → who gave it.

    An option that was not given has TiCDC's default in the record, which must not be relied on. Raises `ConfigError`.
    """
    uri, carried = sources.upstream, carried_columns(sources)
    given = {keyword: sources.find(keyword) for keyword in FORMAT_KEYWORDS}
    # A changefeed's file is complete: a CSV option that it leaves out has TiCDC's default, and need not be inferred.
    if sink := sources.sink_table():
        silent = Given(value=None, origin=f"{sink}: {DEFAULT_OF_TICDC}")
        for keyword in CSV_OPTIONS:
            if not given[keyword].origin:
                given[keyword] = Given(value=given[keyword].value, origin=silent.origin)
    upstream = Upstream(
        scheme=(store := stores.SCHEMES[uri.scheme]),
        root=uri.path if store == "file" else f"{uri.host}{uri.path}",
        endpoint=stores.endpoint(store, uri.parameters),
        region=uri.parameters.get("region", ""),
        force_path_style=_flag(uri, "force-path-style", default=stores.path_style(uri.parameters)),
        account_name=uri.parameters.get("account-name", ""),
        protocol=given["protocol"].value,
        terminator=given["terminator"].value,
        csv=CsvOptions(**{field: given[keyword].value for keyword, field in CSV_OPTIONS.items()}),
        enable_tidb_extension=given["enable_tidb_extension"].value,
        date_separator=sources.explicit("date_separator"),
        partition_separator=sources.explicit("enable_partition_separator"),
        column_selectors=carried.selectors,
        headerless_selectors=sources.find("headerless_selectors").value,
        left_out=left_out(sources),
        file_expiration_days=_days_kept(sources),
        case_sensitive=carried.case_sensitive,
        time_zone=time_zone,
        allow_missing_commit_ts=sources.find("allow_missing_commit_ts").value,
    )
    given |= {keyword: sources.find(keyword) for keyword in _SHOWN_BY_PATHS}
    origins = {keyword: found.origin for keyword, found in given.items() if found.origin}
    if not unset(upstream, origins):
        require_commit_ts(upstream)
    return upstream, origins


def unset(upstream: Upstream, origins: Mapping[str, str]) -> tuple[str, ...]:
    """Return the keywords of the format options that matter for this protocol and were not given."""
    # Which options matter depends on the protocol, so without it all of them do.
    if "protocol" not in origins:
        return tuple(keyword for keyword in FORMAT_KEYWORDS if keyword not in origins)
    needed = tuple(CSV_OPTIONS) if upstream.protocol == "csv" else ("enable_tidb_extension", "terminator")
    return tuple(keyword for keyword in needed if keyword not in origins)


def require_commit_ts(upstream: Upstream) -> None:
    """Raise `ConfigError` for files without commit-ts, unless they are allowed."""
    if upstream.has_commit_ts or upstream.allow_missing_commit_ts:
        return
    what, remedy = {
        "csv": (
            "CSV rows",
            (
                "`[sink.csv] include-commit-ts = true`, and that file is given here by --config (or give "
                "--include-commit-ts)"
            ),
        ),
        "canal-json": (
            "canal-json messages",
            "`enable-tidb-extension=true` in its sink URI, and so does --upstream-uri here",
        ),
    }[upstream.protocol]
    raise ConfigError(
        f"{what} without commit ts can be neither ordered nor deduplicated: the changefeed needs {remedy}. "
        "--allow-missing-commit-ts accepts such files as they are, with a weaker promise"
    )


def _days_kept(sources: Sources) -> int:
    """Return the days after which TiCDC deletes files, 0 for never: it deletes only with daily folders. Raise `ConfigError`."""
    name = "file-expiration-days"
    value, source = sources.settings.get(f"sink.cloud-storage-config.{name}", (0, ""))
    origin = f"{source}: [sink.cloud-storage-config] {name}"
    if name in sources.upstream.parameters:
        value, origin = sources.upstream.parameters[name], f"--upstream-uri: parameter `{name}`"
    try:
        days = int(str(parsers.integer(low=0, high=100_000)(value)))
    except ValueError as error:
        raise ConfigError(f"{origin}: {error}") from None
    # If it was not given, the bucket may have a folder for each day.
    return days if sources.explicit("date_separator") in (None, "day") else 0


def raw_updates_origin(sources: Sources) -> str:
    """Return who configured TiCDC not to split updates that change a key; empty if nobody did. Raise `ConfigError`."""
    name = "output-raw-change-event"
    value, source = sources.settings.get(f"sink.cloud-storage-config.{name}", (False, ""))
    given = [(value, f"{source}: [sink.cloud-storage-config] {name}")]
    given.append((sources.upstream.parameters.get(name) or False, f"--upstream-uri: parameter `{name}`"))
    for text, origin in given:
        try:
            if parsers.boolean(text):
                return origin
        except ValueError as error:
            raise ConfigError(f"{origin}: {error}") from None
    return ""


def refuse_lost_keys(upstream: Upstream, raw_updates: str) -> None:
    """Raise `ConfigError` if an update that changes a key would carry only the new key, so that the old row would stay.

    `raw_updates`: who configured TiCDC not to split such updates. Canal-json carries the row before the update anyway.
    """
    if raw_updates and upstream.protocol == "csv" and not upstream.csv.output_old_value:
        raise ConfigError(
            f"{raw_updates} = true with CSV and without `output-old-value`: an update that changes a key carries "
            "only the new one, so nobody can tell which row it replaced. The changefeed needs `[sink.csv] "
            "output-old-value = true`, "
            "or `[sink.cloud-storage-config] output-raw-change-event = false`, and a new bucket, because the files "
            "written until then lack the old keys"
        )


def weaker_promise(upstream: Upstream) -> str:
    """Return what is promised of files without commit-ts, for the log; empty if rows carry one."""
    if upstream.has_commit_ts:
        return ""
    return (
        "--allow-missing-commit-ts: rows do not say when they committed. Between rounds the target may run ahead of its "
        "checkpoint, repeated deliveries are applied again in the order of files, and tables without a key halt"
    )


def carried_columns(sources: Sources) -> CarriedColumns:
    """Return which columns rows carry, with the selectors in the order of the changefeed's file."""
    found: list[ColumnSelector] = []
    for document in sources.documents:
        sink = document.content.get("sink")
        entries = sink.get("column-selectors") if isinstance(sink, Mapping) else None
        for entry in entries or ():
            texts = [entry.get(key) if isinstance(entry, Mapping) else None for key in ("matcher", "columns")]
            if not all(isinstance(each, list) and all(isinstance(text, str) for text in each) for each in texts):
                raise ConfigError(
                    f"{document.source}: [[sink.column-selectors]] needs `matcher` and `columns`, each a list of texts"
                )
            matcher, columns = texts
            found.append(ColumnSelector(matcher=tuple(matcher or ()), columns=tuple(columns or ())))
    check_selectors(found)
    case_sensitive = sources.settings.get("case-sensitive", (False, ""))[0] is True
    return CarriedColumns(selectors=tuple(found), case_sensitive=case_sensitive)


def _flag(uri: Uri, parameter: str, *, default: bool) -> bool:
    try:
        return parsers.boolean(uri.parameters.get(parameter) or default)
    except ValueError as error:
        raise uri.error(f"parameter `{parameter}`: {error}") from None
