"""Private servers for tests: each has its own data, a free port on the loopback, and ends with its context manager.

No server that the machine runs is touched: every process here is a child of this one and is ended by its own id.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pymysql
import pymysql.cursors
import pymysql.err
from pymysql.constants import CLIENT

START_SECONDS = 60
STOP_SECONDS = 30
SYSTEM_SCHEMAS = frozenset({"information_schema", "metrics_schema", "mysql", "performance_schema", "sys"})
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "storage-consumer"
"""Where what took long to get or to make is kept for later runs."""
_SYSTEM_USERS = frozenset({"root", "mariadb.sys", "mysql.infoschema", "mysql.session", "mysql.sys"})
TIDB_PROGRAM = "STORAGE_CONSUMER_TIDB_SERVER"
"""Environment variable: path of a TiDB server's program. Without it, what needs one is left out."""
NEWER_MARIADB = "newer_mariadb"
"""Name of the MariaDB of Debian's unstable release, among `SERVERS` and fixtures."""
MARIADB_IS_NEWER = "STORAGE_CONSUMER_MARIADB_IS_NEWER"
"""Environment variable: when set, that one is meant wherever a MariaDB is asked for."""
INNODB_SMALL_AND_FAST = (
    "--innodb-buffer-pool-size=128M",
    "--innodb-flush-log-at-trx-commit=0",
    "--innodb-doublewrite=0",
)


class ServerDidNotStart(Exception):
    """A test server ended or did not answer in time; the message holds the end of its log."""


@dataclass(slots=True, kw_only=True)
class Child:
    """A server's process, which can be killed and started again over the same data; ended for good by `close`."""

    command: Sequence[str]
    log: Path
    port: int
    _started: ExitStack = field(default_factory=ExitStack)
    _process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it and wait until it listens. Raises `ServerDidNotStart`."""
        self._process = self._started.enter_context(running(self.command, self.log))
        wait_for(self._process, self.port, self.log)

    def kill(self) -> None:
        """Kill -9."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        if self._process is not None:
            self._process.send_signal(number)

    def close(self) -> None:
        """End it as one ends a server."""
        self._started.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseServer:
    """A running database server; user root has no password."""

    kind: str
    """``mariadb``, ``mysql`` or ``tidb``."""
    name: str
    """Which of `SERVERS` it is."""
    port: int
    socket: Path
    """Listens as well; TiDB's tests have no use for it."""
    child: Child = field(compare=False)
    """Its process."""

    @property
    def uri(self) -> str:
        """What ``--downstream-uri`` takes."""
        return f"mysql://root@127.0.0.1:{self.port}/"

    @property
    def socket_uri(self) -> str:
        """The same server through its socket."""
        return f"mysql://root@localhost/?unix-socket={self.socket}"

    def connect(self, **options: Any) -> pymysql.connections.Connection[pymysql.cursors.Cursor]:
        """A connection of the test's own, with autocommit."""
        # Without TLS: PyMySQL reads the machine's certificates anew for each connection, which takes ten times as long.
        own: dict[str, Any] = {"user": "root", "charset": "utf8mb4", "autocommit": True, "ssl_disabled": True}
        return pymysql.connect(host="127.0.0.1", port=self.port, **own | options)

    def query(self, sql: str) -> tuple[tuple[Any, ...], ...]:
        """All rows of one statement."""
        with self.connect() as connection, connection.cursor() as cursor:
            cursor.execute(sql)
            return tuple(cursor.fetchall())

    def allow_snapshots(self) -> None:
        """Let a TiDB be read as of a TSO: its embedded store keeps no safe point, and ignores `tidb_snapshot` without one."""
        self.query("REPLACE INTO mysql.tidb VALUES ('tikv_gc_safe_point', '20260101-00:00:00 +0000', 'for tests')")

    def tso(self) -> int:
        """A TSO of now, of a TiDB."""
        with self.connect() as connection, connection.cursor() as cursor:
            cursor.execute("BEGIN")
            cursor.execute("SELECT @@tidb_current_ts")
            ((found,),) = cursor.fetchall()
            return int(found)

    @property
    def version(self) -> str:
        """As the server says it."""
        return str(self.query("SELECT VERSION()")[0][0])

    def databases(self) -> tuple[str, ...]:
        """The databases that the server did not make itself."""
        return tuple(name for (name,) in self.query("SHOW DATABASES") if name.lower() not in SYSTEM_SCHEMAS)

    def drop_all(self) -> None:
        """Drop all of them."""
        for name in self.databases():
            self.query(f"DROP DATABASE {quoted(name)}")

    def clear(self) -> None:
        """Drop all databases, and the users that tests made; what they set for all sessions is as it was."""
        self.drop_all()
        if self.kind == "tidb":
            self.query("SET GLOBAL tidb_enable_check_constraint = OFF")
        for user, host in self.query("SELECT user, host FROM mysql.user"):
            if user not in _SYSTEM_USERS:
                self.query(f"DROP USER '{user}'@'{host}'")


def quoted(name: str) -> str:
    """A name as an SQL identifier."""
    return "`" + name.replace("`", "``") + "`"


def free_port() -> int:
    """A TCP port on the loopback that nobody used a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def _serving(
    kind: str, command: Sequence[str], home: Path, port: int, socket: Path, *, name: str = ""
) -> Iterator[DatabaseServer]:
    """A server that runs inside the block, with its log in `home`."""
    with closing(Child(command=command, log=home / "log", port=port)) as child:
        child.start()
        yield DatabaseServer(kind=kind, name=name or kind, port=port, socket=socket, child=child)


@contextmanager
def running(command: Sequence[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A child process with its output in `log`; asked to end at the exit of the block, and killed if it does not."""
    with log.open("ab") as output:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT)
    try:
        yield process
    finally:
        stop(process)


def stop(process: subprocess.Popen[bytes]) -> None:
    """End one child: SIGTERM, then SIGKILL after a while."""
    with suppress(ProcessLookupError, PermissionError):
        process.send_signal(signal.SIGCONT)
        process.terminate()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def wait_for(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    """Return when something listens on `port`; raise `ServerDidNotStart` when the process ends or takes too long."""
    deadline = time.monotonic() + START_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.05)
    raise ServerDidNotStart(
        f"{process.args!r}: exit code {process.returncode}\n{log.read_text(errors='replace')[-4000:]}"
    )


def run(command: Sequence[str], seconds: float = START_SECONDS) -> str:
    """Run a program to its end; what it printed. Raise `ServerDidNotStart` with that if it fails or takes too many `seconds`."""
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=seconds
        )
    except subprocess.TimeoutExpired as error:
        raise ServerDidNotStart(f"{error}\n{error.output!r}\n{error.stderr!r}") from error
    if done.returncode:
        raise ServerDidNotStart(f"{' '.join(command)}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def program(name: str, folder: Path | None = None) -> str:
    """Path of a server's program, which may lie where only root's PATH reaches; that of an installation in `folder` if it is given."""
    path = shutil.which(
        name, path=f"{folder}/sbin:{folder}/bin" if folder else f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    )
    if path is None:
        raise ServerDidNotStart(f"{name} is not installed; bash conf/setup.sh installs it")
    return path


@contextmanager
def mariadb(
    *,
    local_infile: bool = True,
    options: Sequence[str] = (),
    innodb: Sequence[str] = INNODB_SMALL_AND_FAST,
    folder: Path | None = None,
    newer: bool = False,
) -> Iterator[DatabaseServer]:
    """A MariaDB server with its own data, in `folder` if it is given; `innodb`: options for its memory, log and safety.

    `newer`: the one that lies in the `Jail`, and runs outside of it, rather than this machine's.
    """
    there = Jail().outside("/opt/mariadb/usr") if newer or MARIADB_IS_NEWER in os.environ else None
    with tempfile.TemporaryDirectory(prefix="mariadb-", ignore_cleanup_errors=True, dir=folder) as name:
        home = Path(name)
        data, socket, port = home / "data", home / "socket", free_port()
        # A server that starts removes the temporary tables in its tmpdir: those of a server that shares it, too.
        base = [f"--datadir={data}", f"--tmpdir={home}", *([f"--basedir={there}"] if there else [])]
        if os.geteuid() == 0:
            base.append("--user=root")
        install = [program("mariadb-install-db", there), "--no-defaults", *base, "--skip-test-db", "--force"]
        run([*install, "--auth-root-authentication-method=normal"])
        command = [
            program("mariadbd", there),
            "--no-defaults",
            *base,
            f"--socket={socket}",
            f"--pid-file={home / 'pid'}",
            f"--port={port}",
            "--bind-address=127.0.0.1",
            "--skip-name-resolve",
            "--innodb-log-file-size=64M",
            "--max-allowed-packet=64M",
            f"--local-infile={int(local_infile)}",
            *innodb,
            *options,
        ]
        with _serving("mariadb", command, home, port, socket, name=NEWER_MARIADB if there else "") as server:
            yield server


class Jail:
    """The root folder of an own Debian with MySQL, MariaDB and an S3 server in it, which ``tests/run.sh`` unpacks."""

    def __init__(self) -> None:
        """Raise `ServerDidNotStart` where the folder is missing."""
        self.root = Path(os.environ.get("STORAGE_CONSUMER_SERVERS") or CACHE / "servers")
        if not (self.root / "srv" / "ready").exists():
            raise ServerDidNotStart(f"there are no servers in {self.root}; bash tests/run.sh all unpacks them")
        self._sudo = [] if os.geteuid() == 0 else ["sudo", "-n"]

    @property
    def command(self) -> list[str]:
        """What runs the program that follows inside the folder; only root may do that."""
        return [*self._sudo, program("chroot"), str(self.root)]

    def outside(self, inside: str) -> Path:
        """The path by which a file inside the folder is reached from here."""
        return self.root / inside.lstrip("/")

    def copy(self, source: Path, inside: str) -> None:
        """Copy a file or folder of this machine into the folder."""
        run([*self._sudo, "cp", "-a", str(source), str(self.outside(inside))])

    @contextmanager
    def home(self, template: Path, port: int) -> Iterator[str]:
        """A copy of `template` inside the folder for one server, by its path inside; removed at the end."""
        inside = f"/srv/run-{os.getpid()}-{port}"
        try:
            self.copy(template, inside)
            yield inside
        finally:
            run([*self._sudo, "rm", "-rf", "--one-file-system", str(self.outside(inside))])


@contextmanager
def mysql(*, local_infile: bool = True, options: Sequence[str] = ()) -> Iterator[DatabaseServer]:
    """A MySQL server that runs inside the `Jail`, with its own data."""
    jail, port = Jail(), free_port()
    with tempfile.TemporaryDirectory(prefix="mysql-") as folder, jail.home(jail.outside("/srv/empty"), port) as home:
        command = [
            *jail.command,
            "/usr/sbin/mysqld",
            "--no-defaults",
            "--user=root",
            f"--datadir={home}",
            f"--socket={home}/socket",
            f"--pid-file={home}/pid",
            f"--port={port}",
            "--bind-address=127.0.0.1",
            "--skip-name-resolve",
            "--mysqlx=OFF",
            "--secure-file-priv=NULL",
            f"--tmpdir={home}",
            "--skip-log-bin",
            "--innodb-redo-log-capacity=64M",
            "--max-allowed-packet=64M",
            f"--local-infile={int(local_infile)}",
            *INNODB_SMALL_AND_FAST,
            *options,
        ]
        socket = jail.outside(f"{home}/socket")
        with _serving("mysql", command, Path(folder), port, socket) as server:
            yield server


def tidb_program() -> str | None:
    """Return the TiDB server that the environment names, else one on the PATH; None if there is none."""
    return os.environ.get(TIDB_PROGRAM) or shutil.which("tidb-server")


@contextmanager
def tidb(*, options: Sequence[str] = (), folder: Path | None = None) -> Iterator[DatabaseServer]:
    """A TiDB server with an embedded store, in `folder` if it is given, of the program that `tidb_program` finds; emptied."""
    path = Path(tidb_program() or "tidb-server")
    if not path.is_file():
        raise ServerDidNotStart(f"no TiDB server: {path} is no file; put one on the PATH or name it in {TIDB_PROGRAM}")
    with tempfile.TemporaryDirectory(prefix="tidb-", ignore_cleanup_errors=True, dir=folder) as name:
        home, port = Path(name), free_port()
        command = [
            str(path),
            "-store=unistore",
            f"-path={home / 'data'}",
            "-host=127.0.0.1",
            f"-P={port}",
            "-report-status=false",
            f"-socket={home / 'socket'}",
            f"-temp-dir={home / 'temp'}",
            f"-log-slow-query={home / 'slow'}",
            "-L=error",
            *options,
        ]
        with _serving("tidb", command, home, port, home / "socket") as server:
            server.drop_all()
            yield server


def learn_zone(server: DatabaseServer, zone: str) -> None:
    """Have a server know a time zone by name; a new MySQL or MariaDB knows none. The tool is MySQL's: its SQL suits both."""
    with (
        server.connect(client_flag=CLIENT.MULTI_STATEMENTS, database="mysql") as connection,
        connection.cursor() as cursor,
    ):
        try:
            cursor.execute("SET time_zone = %s", (zone,))
        except pymysql.err.MySQLError:
            source = ["/usr/share/zoneinfo/" + zone, zone]
            sql = run([*Jail().command, "/usr/bin/mysql_tzinfo_to_sql", *source])
            cursor.execute(sql.replace(" Offset,", " `Offset`,"))  # a reserved word in MariaDB
            while cursor.nextset():
                pass


SERVERS: Mapping[str, Callable[..., AbstractContextManager[DatabaseServer]]] = {
    "mariadb": mariadb,
    "mysql": mysql,
    "tidb": tidb,
    NEWER_MARIADB: partial(mariadb, newer=True),
}
"""Name → what starts one."""
KINDS = tuple(kind for kind in SERVERS if kind != NEWER_MARIADB and (kind != "tidb" or tidb_program()))
"""Those that tests run on here; each is the name of a fixture."""
