#!/usr/bin/env bash
# Installs what the build, the tests and the quick start need on Debian 12, by package name.
# Does nothing, and needs no network, where everything is there already.
#
#   launch/install.sh [build|test|text]...    default: build
#
# shellcheck disable=SC2034  # the lists are read by name
set -euo pipefail

packages_build=(g++ cmake ninja-build pkg-config ccache mold git ca-certificates
  libopenmpi-dev openmpi-bin libhdf5-dev libyaml-cpp-dev prometheus-cpp-dev libdnnl-dev
  ocl-icd-opencl-dev nlohmann-json3-dev libcli11-dev libspdlog-dev libfmt-dev libpcre2-dev
  libzstd-dev zlib1g-dev libgtest-dev libgmock-dev libbenchmark-dev)
packages_test=(clang-format clang-tidy clang libclang-rt-14-dev prometheus shellcheck iproute2 hdf5-tools)
packages_text=(perl perl-doc bible-kjv bible-kjv-text)

wanted=()
for set in "${@:-build}"; do
  declare -n packages="packages_${set}"
  wanted+=("${packages[@]}")
done

missing=()
for package in "${wanted[@]}"; do
  status=$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null || true)
  [ "$status" = installed ] || missing+=("$package")
done
[ ${#missing[@]} -gt 0 ] || exit 0

as_root=()
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo >/dev/null || {
    echo "install: missing packages: ${missing[*]}; run this as root, or install sudo" >&2
    exit 1
  }
  as_root=(sudo)
fi
echo "install: ${#missing[@]} Debian packages: ${missing[*]}" >&2
export DEBIAN_FRONTEND=noninteractive
log=$(mktemp)
if ! { "${as_root[@]}" apt-get update -qq &&
       "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
         apt-get install -y -qq --no-install-recommends "${missing[@]}"; } >"$log" 2>&1; then
  tail -n 20 "$log" >&2
  echo "install: apt-get failed; the whole log is in $log" >&2
  exit 1
fi
rm -f "$log"
