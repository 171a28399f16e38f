"""The table of promises names tests that exist, and no row of it gets lost."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "explanation" / "promises.md"
ROWS = {"U": 33, "F": 27, "S": 35, "N": 25}
"""How many rows each group has: a row that is taken away must be taken away here, too."""
ROW = re.compile(r"^\| ([A-Z]\d+) \| (.+?) \| (.*?) \| (.+?) \|$", re.MULTILINE)
NAMED = re.compile(r"`([\w/]+\.py)::(\w+)`")
WAITS = "waits for "

Row = tuple[str, str, str, str]
"""Id, promise, tests, and what is seen."""


def rows(text: str) -> list[Row]:
    return [(one[0], one[1], one[2], one[3]) for one in ROW.findall(text)]


@cache
def collected(path: Path) -> frozenset[str]:
    """Return the tests that pytest finds in a module: its functions, and none that a later one takes the place of."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return frozenset(one.name for one in tree.body if isinstance(one, ast.FunctionDef) and one.name.startswith("test_"))


def faults(text: str) -> list[str]:
    """Say what is wrong with a page of promises."""
    found = []
    every = rows(text)
    ids = [one[0] for one in every]
    wanted = [f"{group}{number}" for group, count in ROWS.items() for number in range(1, count + 1)]
    told = ", ".join(f"{group}1 to {group}{count}" for group, count in ROWS.items())
    if f"Rows: {told}." not in text:
        found.append(f"the page does not say which rows it has: {told}")
    found += [f"{one} has no row" for one in wanted if one not in ids]
    found += [f"{one} is no row, or there twice" for one in {*ids} if one not in wanted or ids.count(one) > 1]
    for name, _, cell, seen in every:
        tests = NAMED.findall(cell)
        rest = NAMED.sub("", cell).replace("<br>", "").strip()
        if not tests and not rest.startswith(WAITS):
            found.append(f"{name} names neither a test nor what it waits for")
        if rest and not rest.startswith(WAITS):
            found.append(f"{name}: {rest!r} is neither a test nor what it waits for")
        if (seen == "–") != (not tests) or "passed" in seen.split():
            found.append(f"{name} does not say what is seen when the promise is kept")
        for file, test in tests:
            path = ROOT / "tests" / file
            if not path.is_file() or test not in collected(path):
                found.append(f"{name}: there is no test {file}::{test}")
    return found


def test_every_promise_is_kept_by_a_test_that_exists() -> None:
    """Each promise has a row, and each row names tests that are there, or what it waits for."""
    assert not faults(PAGE.read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (r"\| U2 \|.*\n", "", "U2 has no row"),
        (r"\| U2 \|", "| U1 |", "U1 is no row, or there twice"),
        (r"test_order.py::test_freeze_stops_promotions", "test_order.py::test_freezing_stops", "F?: there is no test"),
        (r"`state/test_loop.py::", "`state/test_lop.py::", "there is no test state/test_lop.py"),
        (r"(\| U4 \|[^|]*\|)[^|]*\|", r"\1  |", "U4 names neither a test nor what it waits for"),
        (r"Rows: U1", "Rows: V1", "the page does not say which rows it has"),
        (r"(\| U9 \|.*\| )[^|]*\|\n", r"\1passed |\n", "U9 does not say what is seen"),
    ],
)
def test_a_table_that_is_wrong_is_found(old: str, new: str, said: str) -> None:
    """The check sees a row that is lost or doubled, a test that is not there, and a row that says nothing."""
    text = PAGE.read_text(encoding="utf-8")
    spoilt = re.sub(old, new, text, count=1)
    assert spoilt != text
    assert any(said.removeprefix("F?: ") in one for one in faults(spoilt))
