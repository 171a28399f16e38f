"""A process that adds numbered files to main, one commit each, and decides again whenever it lost a race."""

import json
import sys
from pathlib import Path

from mlgitops.adapters.repository.git import open_repository
from mlgitops.adapters.repository.location import Credentials
from mlgitops.core.errors import Conflict, Unavailable
from mlgitops.ports.repository import Change, Person


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
        change = Change(message=f"add {name} {number}", files={f"{name}/{number}": b"x"})
        while True:
            before = repository.snapshot("refs/heads/main")
            try:
                repository.update("refs/heads/main", before.revision, [change])
            except (Conflict, Unavailable):
                continue
            break


main()
