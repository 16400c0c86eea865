#!/usr/bin/env bash
# Installs what storage_consumer needs and makes a virtual environment. Repeatable: what is there is left as it is.
#
#   bash conf/setup.sh                 Java, MariaDB's programs, and .venv with the program
#   bash conf/setup.sh --extra test    the same with what the tests import
#
# STORAGE_CONSUMER_VENV   where the virtual environment is (default: .venv beside this folder)
# PYTHON                  the Python that makes it (default: the first of python3 … that is new enough)
# pip's own variables (PIP_INDEX_URL, PIP_FIND_LINKS …) and apt's sources are used as they are.
# Other scripts source this file for its functions.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
venv=${STORAGE_CONSUMER_VENV:-$here/.venv}
cache=${XDG_CACHE_HOME:-$HOME/.cache}/storage-consumer
export PATH="$PATH:/usr/sbin:/sbin"

say() { echo "setup: $*"; }
fail() { echo "setup: $*" >&2 && exit 1; }
has() { command -v "$1" >/dev/null 2>&1; }

as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"; elif has sudo; then sudo "$@"; else fail "need root or sudo for: $*"; fi
}

# While packages are unpacked, a policy that answers 101 keeps them from starting services; a policy that the
# machine has already is left in force.
apt_install() {
  has apt-get || fail "there is no apt-get here: manually install what these packages hold: $*"
  say "installing $* (apt)"
  local policy=/usr/sbin/policy-rc.d ours='' status=0
  if ! [ -e $policy ]; then
    printf '#!/bin/sh\nexit 101\n' | as_root tee $policy >/dev/null
    as_root chmod 755 $policy
    ours=yes
  fi
  as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq update >/dev/null ||
    say "apt-get update had problems; going on with the package lists as they are"
  as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -y --no-install-recommends install "$@" >/dev/null || status=$?
  if [ -n "$ours" ]; then as_root rm -f $policy; fi
  [ "$status" = 0 ] || fail "apt could not install: $*"
}

java_is_right() {
  local version
  version=$("${JAVA_HOME:+$JAVA_HOME/bin/}java" -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p' | head -n 1)
  [ "${version:-0}" -ge 17 ]
}

install_java() {
  if java_is_right; then return; fi
  apt_install default-jre-headless
  java_is_right || apt_install openjdk-17-jre-headless
  java_is_right || fail "Spark needs Java 17 or newer, but 'java' is older: set JAVA_HOME to a newer one"
}

# The core package has the programs and no service, so there is nothing that could start by itself.
install_mariadb() {
  if has mariadbd && has mariadb-install-db; then return; fi
  apt_install mariadb-server-core mariadb-client-core
  has mariadbd && has mariadb-install-db || fail "the packages are installed, but mariadbd or mariadb-install-db is not on the PATH"
}

find_python() {
  local candidate
  for candidate in ${PYTHON:-python3 python3.13 python3.12 python3.11}; do
    if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
      python=$candidate
      return
    fi
  done
  fail "no Python 3.11 or newer was found: install one, or set PYTHON to it"
}

# The environment is made again when the project's list of packages or the Python changes.
install_venv() {
  local extra=$1 wanted mark
  wanted=$({ cat "$here/pyproject.toml" && "$python" --version && echo "$here"; } | sha256sum | cut -d ' ' -f 1)
  for mark in "$venv"/.setup-"${extra:-}"*; do
    if [ "$(cat "$mark" 2>/dev/null)" = "$wanted" ] && "$venv/bin/python" --version >/dev/null 2>&1; then return; fi
  done
  if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
    apt_install "python$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')-venv"
  fi
  say "making $venv (Spark alone is a download of 450 MB)"
  rm -f "$venv"/.setup-*
  "$python" -m venv "$venv"
  "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --use-pep517 --editable "$here${extra:+[$extra]}" ||
    fail "pip could not install the program into $venv"
  echo "$wanted" >"$venv/.setup-$extra"
}

set_up() {
  local extra=${1:-}
  find_python
  install_java
  install_mariadb
  install_venv "$extra"
  say "ready: $("$venv/bin/python" --version), $(mariadbd --version | sed 's/.*Ver \([^ ]*\).*/\1/'), $venv"
}

if [ "${BASH_SOURCE[0]}" = "$0" ]; then
  case "${1:-}" in
    '') set_up ;;
    --extra) set_up "${2:?--extra needs a name}" ;;
    *) echo "setup: unknown argument $1; known: --extra NAME" >&2 && exit 2 ;;
  esac
fi
