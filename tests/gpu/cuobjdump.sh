#!/usr/bin/env bash
# Prints where cuobjdump is: on the path, beside nvcc, or in .python/ (launch/install.sh cuda). Fails where it is nowhere.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
command -v cuobjdump && exit
for file in "${CUDA_HOME:-/usr/local/cuda}/bin/cuobjdump" "$root"/.python/lib/python3*/site-packages/nvidia/*/bin/cuobjdump; do
  if [ -x "$file" ]; then echo "$file"; exit; fi
done
exit 1
