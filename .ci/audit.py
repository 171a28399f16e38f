"""Looks for known weaknesses: in what the lock installs, and in the workflows. Ends with 1 when there is one.

Where nobody can be asked (no network, or a mirror that knows nothing of weaknesses) that part is skipped, and says so.
"""

import json
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parent.parent
UV: Final = Path(sysconfig.get_path("scripts")) / "uv"
PACKAGES: Final = ("pip-audit@2.10.1", "-r", "requirements-dev.txt", "--require-hashes", "--disable-pip")
WORKFLOWS: Final = ("zizmor@1.32.0", "--offline", "--persona=pedantic", "--no-progress", ".github")
SECONDS: Final = 300


def main() -> int:
    """Look at both; returns the exit code."""
    found = [_packages(), _workflows()]
    return int(any(found))


def _packages() -> bool:
    """Say whether a locked package has a known weakness."""
    done = _run(*PACKAGES, "--progress-spinner=off", "--format=json")
    answers = _answers(done.stdout) if done is not None else None
    if answers is None:
        return _skip("packages", done)
    asked = [one for one in answers if "skip_reason" not in one]
    weak = [one for one in asked if one["vulns"]]
    for one in weak:
        for fault in one["vulns"]:
            mended = ", ".join(fault["fix_versions"]) or "nothing yet"
            _say(f"{one['name']} {one['version']}: {fault['id']}, mended in {mended}")
    if not asked:
        return _skip("packages", None)
    _say(f"packages: {len(asked)} of {len(answers)} were asked about, {len(weak)} have a known weakness")
    return bool(weak)


def _answers(text: str) -> list[dict[str, Any]] | None:
    try:
        return list(json.loads(text)["dependencies"])
    except (ValueError, KeyError, TypeError):
        return None


def _workflows() -> bool:
    """Say whether a workflow has a weakness."""
    done = _run(*WORKFLOWS)
    if done is None or (done.returncode and "findings" not in done.stdout + done.stderr):
        return _skip("workflows", done)
    _say(f"workflows: {(done.stdout.strip() or 'no findings').splitlines()[-1]}")
    if done.returncode:
        _say(done.stdout)
    return bool(done.returncode)


def _run(tool: str, *words: str) -> "subprocess.CompletedProcess[str] | None":
    """Run a tool of its own environment; None where it cannot be had."""
    command = [str(UV), "tool", "run", tool, *words]
    try:
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None


def _skip(what: str, done: "subprocess.CompletedProcess[str] | None") -> bool:
    last = done.stderr.strip().splitlines()[-1:] if done is not None else []
    _say(f"skipped: {what} could not be asked about" + "".join(f" ({line[:200]})" for line in last))
    return False


def _say(words: str) -> None:
    sys.stdout.write(f"{words}\n")


if __name__ == "__main__":
    sys.exit(main())
