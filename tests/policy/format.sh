#!/usr/bin/env bash
# Fails if clang-format would change a file, naming it.
set -euo pipefail
cd "$(dirname "$0")/../.."
git ls-files --cached --others --exclude-standard '*.h' '*.cpp' '*.cu' '*.cuh' |
  xargs -r clang-format --dry-run -Werror
