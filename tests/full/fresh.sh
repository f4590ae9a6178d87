#!/usr/bin/env bash
# Bootstraps a bare Debian 12 beside this system, clones HEAD into it, and runs the two commands of
# a new user there: the quick start and the tests.
#
#   tests/full/fresh.sh [quickstart|tests|shell]...    default: quickstart tests
#
# Needs root and package mirrors; downloaded packages and ccache are shared with this system
# (CCACHE_DISABLE=1 builds everything). AB_FRESH_MINUTES: how long the quick start trains, 0.5.
# Mounts exist only in a mount namespace of its own, so that they end with it however it ends, and
# removing the tree cannot reach through them.
set -euo pipefail
cd "$(dirname "$0")/../.."
project=$PWD
suite=bookworm
archives=/var/cache/apt/archives

# Everything below `inside` runs in the namespace, with the tree's path as first argument.
inside() {
  local tree=$1 what status=0
  shift
  mount -t proc proc "$tree/proc"
  mount --rbind /sys "$tree/sys"
  mount --rbind /dev "$tree/dev"
  mount -t tmpfs -o mode=1777 tmpfs "$tree/dev/shm"
  mount --bind "$archives" "$tree$archives"
  mkdir -p "$tree/ccache"
  mount --bind "$(cache_folder)" "$tree/ccache"
  for what in "$@"; do
    local start=$SECONDS result=passed
    case "$what" in
      quickstart) in_tree "$tree" launch/quickstart.sh --minutes "${AB_FRESH_MINUTES:-0.5}" ;;
      tests) in_tree "$tree" tests/run.sh ;;
      shell) in_tree "$tree" bash ;;
      *) echo "fresh: unknown command '$what'; known: quickstart tests shell" >&2; false ;;
    esac || { result=FAILED; status=1; }
    echo "fresh: $what $result after $((SECONDS - start)) s"
  done
  return "$status"
}

cache_folder() {
  local folder
  folder=$(ccache --get-config cache_dir 2>/dev/null || true)
  [ -n "$folder" ] || folder=$HOME/.cache/ccache
  mkdir -p "$folder"
  echo "$folder"
}

# Runs a command in the clone with a new user's environment, and proxies if there are any.
in_tree() {
  local tree=$1 name keep=()
  shift
  for name in http_proxy https_proxy no_proxy HTTP_PROXY HTTPS_PROXY NO_PROXY CCACHE_DISABLE \
    PIP_CERT PIP_INDEX_URL; do
    [ -z "${!name:-}" ] || keep+=("$name=${!name}")
  done
  chroot "$tree" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 \
    CCACHE_DIR=/ccache "${keep[@]}" bash -c "cd '$project' && exec \"\$@\"" bash "$@"
}

# Files of this system's package sources that are Debian's own.
debian_sources() {
  grep -lsE '(https?|file|mirror\+\w+)://?[^ ]*debian' /etc/apt/sources.list \
    /etc/apt/sources.list.d/*.list /etc/apt/sources.list.d/*.sources | while read -r file; do
    grep -qE "\b$suite\b" "$file" && echo "$file"
  done
}

mirror() {
  local found
  found=$(debian_sources | xargs -r grep -hoE '(https?|file)://[^ ]+/debian/?( |$)' |
    head -n 1 | tr -d ' ')
  echo "${found:-http://deb.debian.org/debian}"
}

# Package sources, proxies and keys as on this system; packages start no services.
configure_tree() {
  local tree=$1 file
  rm -f "$tree/etc/apt/sources.list"
  for file in $(debian_sources); do cp "$file" "$tree$file"; done
  [ -n "$(debian_sources)" ] || echo "deb $(mirror) $suite main" >"$tree/etc/apt/sources.list"
  for file in $(grep -ls 'Acquire::' /etc/apt/apt.conf /etc/apt/apt.conf.d/* || true); do
    grep -q 'rm -f' "$file" || cp "$file" "$tree$file"
  done
  for file in /usr/share/keyrings /etc/apt/keyrings /etc/apt/trusted.gpg.d \
    /usr/local/share/ca-certificates; do
    [ ! -d "$file" ] || { mkdir -p "$tree$file" && cp -R "$file/." "$tree$file/"; }
  done
  cp -L /etc/resolv.conf /etc/hosts "$tree/etc/"
  printf '#!/bin/sh\nexit 101\n' >"$tree/usr/sbin/policy-rc.d"
  chmod +x "$tree/usr/sbin/policy-rc.d"
  echo force-unsafe-io >"$tree/etc/dpkg/dpkg.cfg.d/unsafe-io"  # no fsync: the tree is thrown away
}

if [ "${1:-}" = --inside ]; then
  shift
  inside "$@"
  exit
fi
[ "$(id -u)" -eq 0 ] || { echo "fresh: needs root, for chroot and debootstrap" >&2; exit 1; }
[ $# -gt 0 ] || set -- quickstart tests

if ! command -v debootstrap >/dev/null; then
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends debootstrap
fi
tree=$(mktemp -d "${TMPDIR:-/tmp}/anabranch-fresh-XXXXXX")
chmod 755 "$tree"  # apt fetches as a user of its own
remove() {
  if grep -q " $tree/" /proc/self/mountinfo; then
    echo "fresh: $tree is left behind: something is mounted in it" >&2
  else
    rm -rf --one-file-system "$tree"
  fi
}
trap remove EXIT
trap 'exit 130' INT TERM

start=$SECONDS
debootstrap --variant=minbase --cache-dir="$archives" "$suite" "$tree" "$(mirror)" \
  >"$tree.log" 2>&1 || { tail -n 20 "$tree.log" >&2; rm -f "$tree.log"; exit 1; }
rm -f "$tree.log"
configure_tree "$tree"
mkdir -p "$tree$(dirname "$project")"
git clone --quiet --no-local . "$tree$project"
echo "fresh: Debian $(cat "$tree/etc/debian_version") bootstrapped after $((SECONDS - start)) s"
unshare --mount --pid --fork --kill-child "$project/tests/full/fresh.sh" --inside "$tree" "$@"
