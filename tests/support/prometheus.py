"""A Prometheus on loopback that answers what tests put into it, and is strict about what it is asked."""

import json
import re
import threading
import urllib.parse
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

QUERY = re.compile(r"(?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(?P<matchers>.*)\})?\[(?P<seconds>\d+)s\]")
MATCHER = re.compile(r'(\w+)(=~|=)"([^"]*)",?')


@dataclass
class Scrapes:
    """What was scraped: values by series, which is a metric's name and its labels."""

    series: dict[frozenset[tuple[str, str]], list[list[Any]]] = field(default_factory=dict)
    answer: tuple[int, bytes] | None = None
    """What to answer instead: status and body."""
    warnings: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    authorization: list[str | None] = field(default_factory=list)
    after: dict[str, Any] = field(default_factory=dict)
    """Called once after a query of the metric of that name was answered."""
    seconds: float = 0.0
    """How long each answer takes."""

    def scrape(self, at: float, values: Mapping[str, float | str], **target: str) -> None:
        """Add one scrape of a process: values by `name{label="value",…}`."""
        for written, value in values.items():
            name, _, rest = written.partition("{")
            labels = dict(re.findall(r'(\w+)="([^"]*)"', rest)) | {"__name__": name} | target
            self.series.setdefault(frozenset(labels.items()), []).append([at, str(value)])

    def query(self, text: str) -> Mapping[str, Any]:
        """Answer a range selector; anything else is refused as Prometheus refuses what it cannot parse."""
        asked = QUERY.fullmatch(text)
        if asked is None:
            return {"status": "error", "errorType": "bad_data", "error": f"parse error: {text}"}
        matchers = MATCHER.findall(asked["matchers"] or "")
        found = [
            {"metric": labels, "values": list(values)}
            for labels, values in ((dict(key), values) for key, values in self.series.items())
            if labels["__name__"] == asked["name"]
            and all(_matches(kind, value, labels.get(name, "")) for name, kind, value in matchers)
        ]
        told = {"status": "success", "data": {"resultType": "matrix", "result": found}}
        return {**told, "warnings": self.warnings} if self.warnings else told


def _matches(kind: str, wanted: str, found: str) -> bool:
    return found == wanted if kind == "=" else re.fullmatch(wanted, found) is not None


@contextmanager
def prometheus() -> Iterator[tuple[str, Scrapes]]:
    """Serve on loopback; gives the address and what it answers from."""
    scrapes, halt = Scrapes(), threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            assert self.headers["Content-Type"] == "application/x-www-form-urlencoded"
            query = dict(urllib.parse.parse_qsl(body))["query"]
            scrapes.asked.append(query)
            scrapes.authorization.append(self.headers["Authorization"])
            status, data = scrapes.answer or (200, json.dumps(scrapes.query(query)).encode())
            known = self.path == "/api/v1/query"
            self.send_response(status if known else 404)
            if status in (301, 302):
                self.send_header("Location", "/api/v1/elsewhere")
            self.end_headers()
            halt.wait(scrapes.seconds)
            self.wfile.write(data)
            then = scrapes.after.pop(query.partition("{")[0], None)
            if then:
                then()

        def log_message(self, *_: object) -> None:
            return

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", scrapes
        finally:
            halt.set()
            server.shutdown()
            thread.join()
