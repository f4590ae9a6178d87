#!/usr/bin/env bash
# Installs what the build, the tests and the quick start need on Debian 12, by package name.
# Does nothing, and needs no network, where everything is there already.
#
#   launch/install.sh [build|test|text|parquet|slurm|cuda]...    default: build
#
# parquet: Arrow C++ is not in Debian 12, so PyPI's pyarrow lends its libraries, from a Python
# environment in .python/; without it the build refuses Parquet input and all else works.
# cuda: cuobjdump, from PyPI too, by which the tests read what kernels need; not CUDA itself.
#
# shellcheck disable=SC2034  # the lists are read by name
set -euo pipefail

packages_build=(g++ cmake ninja-build pkg-config ccache mold git ca-certificates
  libopenmpi-dev openmpi-bin libhdf5-dev libyaml-cpp-dev prometheus-cpp-dev libcivetweb-dev libdnnl-dev
  ocl-icd-opencl-dev nlohmann-json3-dev libcli11-dev libspdlog-dev libfmt-dev libpcre2-dev
  libzstd-dev zlib1g-dev libgtest-dev libgmock-dev libbenchmark-dev)
packages_test=(clang-format clang-tidy clang libclang-rt-14-dev prometheus shellcheck iproute2 hdf5-tools chromium)
packages_parquet=(python3-venv)
packages_cuda=(python3-venv)
packages_slurm=(munge slurmctld slurmd slurm-client iproute2)  # for a small cluster on this machine, in tests
packages_text=(perl perl-doc bible-kjv bible-kjv-text)

cd "$(dirname "$0")/.."
sets=("${@:-build}")
for set in "${sets[@]}"; do
  case "$set" in
    build | test | text | parquet | slurm | cuda) ;;
    *) echo "usage: launch/install.sh [build|test|text|parquet|slurm|cuda]..." >&2; exit 64 ;;
  esac
done

missing_packages() {
  local set package status
  for set in "${sets[@]}"; do
    local -n packages="packages_${set}"
    for package in "${packages[@]}"; do
      status=$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null || true)
      [ "$status" = installed ] || echo "$package"
    done
  done
}

install_packages() {
  local as_root=() log
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || {
      echo "install: missing packages: $*; run this as root, or install sudo" >&2
      exit 1
    }
    as_root=(sudo)
  fi
  echo "install: $# Debian packages: $*" >&2
  log=$(mktemp)
  if ! { "${as_root[@]}" apt-get update -qq &&
         "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
           apt-get install -y -qq --no-install-recommends "$@"; } >"$log" 2>&1; then
    tail -n 20 "$log" >&2
    echo "install: apt-get failed; the whole log is in $log" >&2
    exit 1
  fi
  rm -f "$log"
}

install_pyarrow() {
  echo "install: pyarrow from PyPI, into .python/" >&2
  if ! { python3 -m venv .python && .python/bin/pip install --quiet --retries 1 pyarrow >&2; }; then
    echo "install: no pyarrow; the build will refuse Parquet input" >&2
    rm -rf .python
  fi
}

# Any of CUDA 13 reads what any other wrote.
install_cuobjdump() {
  echo "install: cuobjdump from PyPI, into .python/" >&2
  if ! { python3 -m venv .python &&
         .python/bin/pip install --quiet --retries 1 --no-deps 'nvidia-cuda-cuobjdump==13.*' >&2; }; then
    echo "install: no cuobjdump; what kernels need is not checked" >&2
  fi
}

mapfile -t missing < <(missing_packages)
[ ${#missing[@]} -eq 0 ] || install_packages "${missing[@]}"
# By what pip puts there last: an environment whose install was interrupted is none.
[[ " ${sets[*]} " != *" parquet "* ]] || compgen -G ".python/lib/python3*/site-packages/pyarrow-*.dist-info" \
  >/dev/null || install_pyarrow
[[ " ${sets[*]} " != *" cuda "* ]] || tests/gpu/cuobjdump.sh >/dev/null || install_cuobjdump
