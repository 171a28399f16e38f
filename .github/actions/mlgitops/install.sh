#!/usr/bin/env bash
# Two steps around the cache: `place` says where the packages belong and by what they are known; `install` puts them
# there where they are missing, and the tool beside them.
set -euo pipefail

tool=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../.." && pwd)

place() {
    local python lock key
    python=$(python3 -c 'import platform, sys; print(sys.implementation.cache_tag, platform.machine(), sys.platform, sep="-")')
    lock=$(sha256sum "$tool/requirements.txt" | cut -c1-16)
    key="mlgitops-$python-$lock"
    printf 'key=%s\nfolder=%s\n' "$key" "${RUNNER_TOOL_CACHE:-$HOME/.cache}/$key" >>"$GITHUB_OUTPUT"
}

install() {
    local bin="$FOLDER/bin"
    # Complete, or not at all: what was interrupted has no mark, and is made anew.
    if [ ! -e "$FOLDER/complete" ]; then
        python3 -m venv --clear "$FOLDER"
        "$bin/python" -m pip install --quiet --disable-pip-version-check --no-input \
            --require-hashes --only-binary :all: -r "$tool/requirements.txt"
        touch "$FOLDER/complete"
    fi
    # The tool itself is not kept: it is what lies beside this script.
    printf '%s\n' "$tool" >"$("$bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/mlgitops.pth"
    printf '#!%s\nfrom mlgitops.cli.main import main\n\nmain()\n' "$bin/python" >"$bin/mlgitops"
    chmod +x "$bin/mlgitops"
    printf '%s\n' "$bin" >>"$GITHUB_PATH"
    printf 'version=%s\n' "$("$bin/mlgitops" --version)" >>"$GITHUB_OUTPUT"
}

case "${1:-}" in
place) place ;;
install) install ;;
*)
    printf 'usage: %s place|install\n' "$0" >&2
    exit 2
    ;;
esac
