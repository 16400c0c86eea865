#!/usr/bin/env bash
# Sets up everything the tests need and runs them all; arguments go to pytest. The exit code is pytest's.
#
# STORAGE_CONSUMER_CORPORA   a folder of unpacked corpora: the corpus tests use it instead of fixtures/
# STORAGE_CONSUMER_MYSQL     where the MySQL server for the tests is kept (default: below ~/.cache/storage-consumer)
set -euo pipefail

started=$SECONDS
# shellcheck source=conf/setup.sh
source "$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)/conf/setup.sh"
export STORAGE_CONSUMER_MYSQL=${STORAGE_CONSUMER_MYSQL:-$cache/mysql}

# Debian mirrors that this machine's package lists come from, then the public one.
mirrors() {
  { apt-get indextargets --format '$(REPO_URI)' 2>/dev/null || true; } |
    sed 's#/*$##' | grep -E '^https?://[^ ]*/debian$' | sort -u || true
  echo http://deb.debian.org/debian
}

# A fresh server lets root in through the socket only.
allow_loopback() {
  echo "CREATE USER root@'127.0.0.1';"
  echo "GRANT ALL ON *.* TO root@'127.0.0.1' WITH GRANT OPTION;"
}

# MySQL is in Debian's unstable release only. It gets a root folder of its own, so that nothing here changes.
install_mysql() {
  local root=$STORAGE_CONSUMER_MYSQL mirror
  if as_root test -e "$root/srv/ready"; then return; fi
  has debootstrap || apt_install debootstrap debian-archive-keyring
  for mirror in $(mirrors); do
    say "unpacking a MySQL server for the tests into $root, from $mirror"
    as_root rm -rf --one-file-system "$root"
    as_root mkdir -p "$root"
    if as_root debootstrap --variant=minbase --include=mysql-server-core,libaio1t64 sid "$root" "$mirror" >"$root.log" 2>&1 &&
      allow_loopback | as_root tee "$root/srv/users.sql" >/dev/null &&
      as_root chroot "$root" mysqld --no-defaults --user=root --initialize-insecure --datadir=/srv/empty \
        --init-file=/srv/users.sql >>"$root.log" 2>&1; then
      as_root touch "$root/srv/ready"
      return
    fi
  done
  tail -n 20 "$root.log" >&2 || true
  fail "no MySQL server could be unpacked; the tests need one (the whole log: $root.log)"
}

mkdir -p "$cache" "$(dirname "$STORAGE_CONSUMER_MYSQL")"
has git || apt_install git # the guards ask it which files belong to the repository
set_up test
install_mysql
say "set up in $((SECONDS - started)) s"

cd "$here"
status=0
tests_started=$SECONDS
"$venv/bin/python" -m pytest "$@" || status=$?
echo "tests: $((SECONDS - tests_started)) s, exit code $status"
exit "$status"
