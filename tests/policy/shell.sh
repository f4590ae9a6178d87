#!/usr/bin/env bash
# Fails if shellcheck -x finds fault with a script.
set -euo pipefail
cd "$(dirname "$0")/../.."
git grep --untracked -I -l -E '^#!/(usr/bin/env (ba)?sh|bin/(ba)?sh)' |
  xargs -r shellcheck -x --severity=warning
