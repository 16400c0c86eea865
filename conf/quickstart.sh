#!/usr/bin/env bash
# Shows storage_consumer at work: a private MariaDB, a recorded TiCDC bucket that grows in five steps, and the rows.
#
#   bash conf/quickstart.sh                sets up what is missing, replays the bucket, leaves the server running
#   bash conf/quickstart.sh --with-copy    the same from the second step on, which an export brings into an empty database
#   bash conf/quickstart.sh --clean        stops that server and removes its folder
#
# Everything but the installed packages is in one folder: STORAGE_CONSUMER_QUICKSTART, by default
# quickstart/ below ~/.cache/storage-consumer. The server listens on a socket in it and on no port.
set -euo pipefail

# shellcheck source=conf/setup.sh
source "$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/setup.sh"
work=${STORAGE_CONSUMER_QUICKSTART:-$cache/quickstart}
socket=$work/mariadb.sock
pidfile=$work/mariadb.pid
corpus=$here/fixtures/shop/new/shop__csv
with_copy=()

# The server's process id, if the process with that id still is our server.
server_pid() {
  local pid
  pid=$(cat "$pidfile" 2>/dev/null) || return 1
  tr '\0' '\n' <"/proc/$pid/cmdline" 2>/dev/null | grep -qxF -- "--pid-file=$pidfile" && echo "$pid"
}

stop_server() {
  local pid
  if pid=$(server_pid); then
    echo "stopping MariaDB (process $pid)"
    kill "$pid"
    while [ -e "/proc/$pid" ]; do sleep 0.1; done
  fi
}

start_server() {
  local user='' waited=0
  if server_pid >/dev/null; then return; fi
  if [ "$(id -u)" = 0 ]; then user=--user=root; fi
  if ! [ -d "$work/data/mysql" ]; then
    rm -rf "$work/data"
    # A server that starts removes the temporary tables of every server that shares its tmpdir.
    mariadb-install-db --no-defaults --datadir="$work/data" --tmpdir="$work" --auth-root-authentication-method=normal \
      --force --skip-test-db $user >"$work/mariadb.log" 2>&1 || fail "MariaDB could not be prepared: see $work/mariadb.log"
  fi
  rm -f "$socket"
  nohup mariadbd --no-defaults $user --datadir="$work/data" --tmpdir="$work" --socket="$socket" --pid-file="$pidfile" --skip-networking \
    --local-infile=ON --skip-log-bin --innodb-buffer-pool-size=128M </dev/null >>"$work/mariadb.log" 2>&1 &
  until [ -S "$socket" ] && server_pid >/dev/null; do
    sleep 0.1
    waited=$((waited + 1))
    [ $waited -lt 600 ] || fail "MariaDB did not start: see $work/mariadb.log"
  done
}

case "${1:-}" in
  '') ;;
  --with-copy) with_copy=(--exports "$here/fixtures/exports/handovers.txz") ;;
  --clean)
    stop_server
    rm -rf "$work"
    echo "removed $work"
    exit 0
    ;;
  *) echo "quickstart: unknown argument $1; known: --with-copy, --clean" >&2 && exit 2 ;;
esac

if [ "${#socket}" -gt 100 ]; then fail "the path $socket is too long for a socket: set STORAGE_CONSUMER_QUICKSTART to a shorter one"; fi
set_up
mkdir -p "$work"
start_server
echo
"$venv/bin/python" "$here/conf/demo.py" --corpus "$corpus" --work "$work" --socket "$socket" "${with_copy[@]}"

command=("$venv/bin/storage-consumer" run --upstream-uri "file://$work/bucket?protocol=csv" --config "$work/changefeed.toml"
  --downstream-uri "mysql://root@localhost/?unix-socket=$socket" --tz UTC --once)
echo
echo "The same from the shell; everything is applied already, so there is nothing left to do:"
echo
printf ' %q' "${command[@]}" && echo && echo
"${command[@]}"
cat <<EOF

Your own bucket: take --sink-uri and the changefeed.toml of your changefeed as they are, give the zone of TiCDC's servers
by --tz, and leave out --once to follow it.

  $venv/bin/storage-consumer run --upstream-uri "s3://bucket/prefix?protocol=csv" --config changefeed.toml \\
      --downstream-uri "mysql://user@host:3306/" --downstream-password-file FILE --tz UTC

Look around:  mariadb --socket=$socket -u root shop
Clean up:     bash conf/quickstart.sh --clean
EOF
