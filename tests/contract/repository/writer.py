"""A process that adds lines to one file of main, a commit each, and decides again whenever it lost a race."""

import json
import sys
from pathlib import Path

from mlgitops.adapters.repository.git import open_repository
from mlgitops.adapters.repository.location import Credentials
from mlgitops.core.errors import Conflict, Unavailable
from mlgitops.ports.repository import Change, Person, Snapshot

MAIN = "refs/heads/main"


def added(before: Snapshot, line: str) -> Change:
    """Return the change that puts a line below those that are there, and writes a file of its own."""
    lines = (before.read("lines") or b"") + line.encode() + b"\n"
    return Change(message=line, files={"lines": lines, f"own/{line}": b"x"})


def main() -> None:
    location, cache, name, count, opens = sys.argv[1:]
    given = json.loads(opens)
    for path in ("key", "known_hosts"):
        given[path] = Path(given[path]) if given.get(path) else None
    repository = open_repository(
        location,
        identity=Person(name=name, email=f"{name}@example.org"),
        cache=Path(cache),
        credentials=Credentials(**given),
    )
    for number in range(int(count)):
        while True:
            try:
                before = repository.snapshot(MAIN)
                repository.update(MAIN, before.revision, [added(before, f"{name}-{number}")])
            except (Conflict, Unavailable):
                continue
            break


main()
