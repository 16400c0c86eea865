"""The table of checks: what each looks at, what it means, and what to do. The reference page is made from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

GROUPS: Mapping[str, str] = MappingProxyType(
    {
        "bucket": "What TiCDC writes, and what of it can be read.",
        "target": "The database server, its settings, and our account's rights.",
        "spark": "What Spark needs on this machine, and on executors.",
        "network": "How the bucket and the target are reached.",
        "state": "What earlier runs left in the target.",
    }
)
"""Group → what it is about."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One check."""

    looks_at: str
    meaning: str
    """When it warns or fails, and what would happen."""
    remedy: str

    @property
    def columns(self) -> tuple[str, str, str]:
        """Return what the reference page shows of it."""
        return self.looks_at, self.meaning, self.remedy


def _check(looks_at: str, meaning: str, remedy: str) -> Check:
    return Check(looks_at=looks_at, meaning=meaning, remedy=remedy)


CHECKS: Mapping[str, Check] = MappingProxyType(
    {
        "bucket-reachable": _check("one page of a listing", "Fails if the store does not answer, refuses the keys or the right to list, or the bucket or folder does not exist. A run would end.", "Correct the URI or the keys, or grant ListBucket."),
        "bucket-metadata": _check("the file `metadata`", "Fails if it is absent, cannot be read, or holds no checkpoint. Nothing would be applied.", "Give the changefeed's own folder, or repair the changefeed."),
        "bucket-clock": _check("the time of the checkpoint, beside this machine's clock", "Fails if the checkpoint lies in the future. It would not be believed.", "Set the clock that is wrong."),
        "bucket-checkpoint-age": _check("the age of the checkpoint", "Warns from 5 minutes on: the source itself is behind, or stopped.", "Look at the changefeed."),
        "bucket-layout": _check("all paths, by one listing, and a sample of files, as `inspect`", "Warns of objects that are skipped and of oddities; fails if the bucket cannot be inspected.", "See `storage-consumer inspect`."),
        "bucket-schema-file": _check("one schema file", "Fails if it can be listed but not read.", "Grant GetObject, or mend the file's mode."),
        "bucket-data-file": _check("one byte of one data file", "Fails if it can be listed but not read. Its table would halt.", "Grant GetObject, or mend the file's mode."),
        "bucket-settings": _check("the settings, beside what the files show", "Fails if they contradict each other, or if one is missing that no file shows. Warns of what is assumed.", "Give the changefeed's TOML file with `--config`, and `--tz`."),
        "bucket-tables-from-before": _check("the first schema file of up to 100 tables", "Warns, while nothing is applied, of tables that no statement creates: their rows from before the changefeed are in no file. A first run stops.", "Begin with `--dump` or `--source`."),
        "bucket-expiry": _check("`file-expiration-days`, beside the age of the state's checkpoint", "Warns from half the expiry on, and fails beyond it: files are deleted unread.", "Raise the expiry until the program has caught up."),
        "bucket-missing-files": _check("the numbers of all files that are not finished, of tables that are not left out", "Fails if one is missing: its table would halt.", "Restore the files, or reload the tables."),
        "target-reachable": _check("a login", "Fails if the server does not answer, or refuses the login.", "Correct address, account or password."),
        "target-version": _check("`VERSION()`", "Warns of versions older than any that was tried.", "Use a version that is tested."),
        "target-read-only": _check("`read_only` and its kin", "Fails if no row can be written, and warns if only this account may.", "Point at the primary, or make the server writable."),
        "target-rights": _check("`SHOW GRANTS`, for each replicated database", "Fails if a right is missing. Tables would halt.", "Run the GRANT that is shown."),
        "target-state-rights": _check("`SHOW GRANTS`, for the state schema", "Fails if a right is missing. A run would end.", "Run the GRANT that is shown."),
        "target-session": _check("the variables that our session could not set", "Fails if an inherited value refuses writes or tables.", "Run the SET GLOBAL that is shown, or grant the right to set it."),
        "target-packet": _check("`max_allowed_packet`", "Warns below 16 MiB: a large row halts its table.", "Run the SET GLOBAL that is shown."),
        "target-local-infile": _check("`local_infile`", "Warns on MySQL and TiDB if it is off: rows are written more slowly.", "Run the SET GLOBAL that is shown."),
        "target-collation": _check("the collation utf8mb4_bin", "Fails if the server lacks it.", "Use a server with utf8mb4."),
        "target-names": _check("names of tables in the target, and `lower_case_table_names`", "Fails if two differ only in case.", "Rename one with `--route`."),
        "target-time-zone": _check("the time zone of `--tz`", "Warns if the server does not know it by name: backfilled defaults are off by the shift of summer time.", "Load the time zone tables."),
        "target-triggers": _check("triggers on replicated tables", "Warns of each: it acts on every row that is written.", "Drop it."),
        "target-events": _check("scheduled events in replicated databases", "Warns of each that is enabled while the scheduler runs.", "Disable it."),
        "target-foreign-keys": _check("foreign keys of tables outside that refer to replicated ones", "Warns of each: it is neither checked nor cascaded.", "Drop it."),
        "target-keys": _check("the unique keys of existing tables, beside those that the last statement left", "Fails if somebody added one, or if a view stands in a table's place. The table would halt.", "Drop the key, or accept it."),
        "target-binlog": _check("the binary log and its format", "Says what is written to replicas.", "Nothing to do; a format that refuses rows shows in `target-session`."),
        "target-innodb": _check("InnoDB's row format, page size and recovery mode, and MariaDB's `innodb_force_primary_key`", "Fails if InnoDB takes no writes; warns if keys are shorter than the source's, or tables without a key refused.", "Run the SET GLOBAL that is shown."),
        "target-connections": _check("connections in use, and the server's limits", "Warns if the workers may not find enough.", "Run the SET GLOBAL that is shown, or lower `--worker-count`."),
        "target-disk": _check("the size of the replicated databases, and free space where it is visible", "Warns if the bucket's content may not fit.", "Make room."),
        "spark-pyspark": _check("the version of PySpark", "Fails if it is missing or not supported.", "Install it with pip."),
        "spark-java": _check("`java -version`, by JAVA_HOME or PATH", "Fails without Java 17 or newer.", "Install it, or set JAVA_HOME."),
        "spark-memory": _check("the memory of this machine or container", "Warns below 2 GiB, or below 1 GiB available.", "Give it more."),
        "spark-cores": _check("the processors that this process may use", "Warns if it is one.", "Give it two or more."),
        "spark-local-dirs": _check("SPARK_LOCAL_DIRS, or the folder for temporary files", "Fails if it cannot be written or has less than 256 MiB free; warns below 2 GiB.", "Set SPARK_LOCAL_DIRS."),
        "spark-executors": _check("with a remote `--spark-master`: one task that opens the bucket and the target", "Fails if executors lack Python, packages, secrets or a way to either side.", "See the [cluster page](../cluster.md)."),
        "network-bucket": _check("the endpoint of the store", "Warns if rows come in plain text from another machine.", "Use https."),
        "network-target": _check("TLS of the connection to the target", "Warns if rows travel in plain text to another machine, or if the server is not verified.", "Give `--ssl-mode verify-identity`."),
        "network-round-trip": _check("five short queries", "Warns from 50 ms on.", "Run nearer to the target."),
        "network-clock": _check("the target's clock", "Warns if it differs from ours by more than 10 s.", "Set both by a time server."),
        "state-schema": _check("the version of the state", "Fails if this program cannot use it; warns if the next run migrates it. None is fine: the first run creates it.", "Use the right program, or another `--state-schema`."),
        "state-bucket": _check("the bucket that the state belongs to", "Fails if it is another one.", "Give a state of its own, or `storage-consumer rebind`."),
        "state-lease": _check("the lease: its holder, and whether it runs", "Warns if the last writer ended without releasing it.", "See its log; start `storage-consumer run`."),
        "state-tables": _check("tables that are halted or paused, or have rows in the quarantine", "Fails for halted ones, warns of the others.", "`storage-consumer status` has the reason and the next command."),
        "state-statements": _check("the journal of statements", "Fails if one failed, warns if a writer that is gone had started one.", "`storage-consumer ddl`."),
        "state-decisions": _check("decisions of operators", "Warns if one waits or was refused.", "Start `storage-consumer run`."),
        "state-checkpoint": _check("the checkpoint in the state", "Fails if it lies in the future: a damaged `metadata` was believed.", "As the message says."),
    }
)  # fmt: skip
"""Name → check. A name begins with its group."""


def group_of(check: str) -> str:
    """Return the group of a check."""
    return check.partition("-")[0]
