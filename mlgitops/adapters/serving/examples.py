"""The first examples of an evaluation set as V1 requests, one a line; a process of its own, started by the router.

    python -m mlgitops.adapters.serving.examples FILE SPECIFICATION COUNT

It needs numpy and reads a file that a model's author wrote, neither of which the router should: it is bounded in
memory, and whoever starts it bounds its time.
"""

import json
import resource
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from mlgitops.core.errors import InvalidInput

MEMORY_BYTES: Final = 8 << 30
"""Address space, most of which libraries reserve and do not use."""


def bodies(file: Path, specification: Mapping[str, Any], count: int) -> Iterator[bytes]:
    """Return one request for each of the first examples, in their order.

    Raises:
        InvalidInput: It is no evaluation set.
    """
    from mlgitops.adapters.dataset import read_set

    for example in read_set(file, specification).inputs[:count]:
        yield json.dumps({"instances": [_text(example.tolist())]}, separators=(",", ":")).encode()


def _text(value: Any) -> Any:
    if isinstance(value, list):
        return [_text(one) for one in value]
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def main(arguments: Sequence[str]) -> int:
    """Write the requests to standard output; returns the exit code, with the reason on standard error."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    file, specification, count = arguments
    try:
        for body in bodies(Path(file), json.loads(specification), int(count)):
            sys.stdout.buffer.write(body + b"\n")
    except InvalidInput as error:
        sys.stderr.write(" ".join(str(error).split())[:500])
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
