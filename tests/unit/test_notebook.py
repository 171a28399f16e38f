"""Notebooks become scripts: code in order, people's notes as comments, and nothing that only IPython reads."""

import json
import time

import pytest

from mlgitops.core.errors import InvalidInput
from mlgitops.core.notebook import convert


def notebook(*cells, **members) -> bytes:
    whole = {
        "nbformat": 4,
        "nbformat_minor": 5,
        "metadata": {"language_info": {"name": "python"}},
        "cells": list(cells),
    }
    return json.dumps({**whole, **members}).encode()


def code(source, *tags) -> dict[str, object]:
    return {"cell_type": "code", "source": source, "metadata": {"tags": list(tags)}, "outputs": [{"text": "%ls"}]}


def markdown(source) -> dict[str, object]:
    return {"cell_type": "markdown", "source": source, "metadata": {}}


def test_code_in_order_markdown_as_comments() -> None:
    """Code cells follow each other, Markdown explains them, outputs and raw cells are gone."""
    data = notebook(
        markdown(["# Digits\n", "\n", "Read them."]),
        code(["import math\n", "x = 1"]),
        {"cell_type": "raw", "source": "raw stuff", "metadata": {}},
        code("print(x)\n\n"),
    )
    assert convert(data, "nb/train.ipynb") == (
        "# Converted from train.ipynb at the build; edit the notebook.\n\n"
        "# # Digits\n#\n# Read them.\n\n"
        "import math\nx = 1\n\n"
        "print(x)\n"
    )


def test_the_same_notebook_gives_the_same_script() -> None:
    """Outputs and execution counts change nothing, so running a notebook makes no new release."""
    one = code("x = 1")
    run = {**one, "outputs": [{"data": "other"}], "execution_count": 7}
    assert convert(notebook(one), "a.ipynb") == convert(notebook(run), "a.ipynb")


def test_cells_tagged_skip_stay_out() -> None:
    """A cell for people only, magic and all, is left out."""
    script = convert(notebook(code("%matplotlib inline\nplot()", "skip"), code("x = 1")), "a.ipynb")
    assert "matplotlib" not in script
    assert "x = 1" in script


@pytest.mark.parametrize(
    "line",
    [
        "%matplotlib inline",
        "%%time",
        "!pip install x",
        "  !ls",
        "?len",
        "len?",
        "len??",
        "files = !ls",
        "t = %time f()",
    ],
)
def test_ipython_lines_are_refused_by_cell_and_line(line: str) -> None:
    """Each line that is no Python is named by cell and line, with what to do."""
    with pytest.raises(InvalidInput) as caught:
        convert(notebook(code("x = 1"), code(f"y = 2\n{line}")), "a.ipynb")
    (problem,) = caught.value.problems
    assert "cell 2, line 2" in problem.message
    assert problem.pointer == "cells[1]"
    assert "skip" in str(problem.mend)


def test_all_ipython_lines_at_once() -> None:
    """Nobody has to build once per mistake."""
    with pytest.raises(InvalidInput) as caught:
        convert(notebook(code("%a\n!b"), code("x = 1"), code("%c")), "a.ipynb")
    assert len(caught.value.problems) == 3


def test_percent_and_exclamation_in_python_are_kept() -> None:
    """A `%` that starts a line as an operator, or stands in a text, is Python."""
    source = 'x = (7\n% 4)\ntext = """\n!not shell\n%not magic\n"""'
    assert source in convert(notebook(code(source)), "a.ipynb")


def test_syntax_errors_are_told_by_cell_and_line() -> None:
    """A cell that is no Python is refused before anything is built."""
    with pytest.raises(InvalidInput, match="cell 1, line 2"):
        convert(notebook(code("x = 1\ny = = 2")), "a.ipynb")


def test_markdown_cannot_become_code() -> None:
    """No line end of any kind lets Markdown leave its comment."""
    text = "note\rimport os\u2028import sys\x0cimport re\x0bimport io\r\nimport json"
    script = convert(notebook(markdown(text), code("x = 1")), "a.ipynb")
    compiled = compile(script, "script", "exec")
    assert compiled.co_names == ("x",)


def test_hostile_title_cannot_become_code() -> None:
    """A file name with a line break adds no line to the script."""
    script = convert(notebook(code("x = 1")), "a\nimport os\n.ipynb")
    assert "os" not in compile(script, "script", "exec").co_names


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff\xfe",
        b"[]",
        b"null",
        b"{",
        b"[" * 500_000,
        b'{"a":' * 100_000,
        notebook(nbformat=3),
        notebook(nbformat="4"),
        notebook(cells={}),
        notebook(cells=None),
        notebook(5),
        notebook({"cell_type": 5, "source": ""}),
        notebook({"cell_type": "code", "source": [1]}),
        notebook({"cell_type": "code", "source": None}),
        notebook({"cell_type": "code"}),
        notebook(code("x = 1"), metadata={"language_info": {"name": "R"}}),
        notebook(code("x = 1"), metadata={"kernelspec": {"language": "julia"}}),
        notebook(code("x = '\ud800'")),
        notebook(code("x = 1\0")),
        notebook(code("(" * 5000)),
        notebook(code("-" * 200_000 + "1")),
        notebook(code("return 1")),
        notebook(code("await f()")),
        notebook(*[code("x = 1")] * 10_001),
        notebook(markdown("only notes")),
        notebook(code("# only a comment")),
        notebook(),
        b" " * (33 << 20),
    ],
)
def test_hostile_notebooks_are_refused_quickly(data) -> None:
    """Whatever the file holds, the answer is a clear refusal that names it."""
    started = time.monotonic()
    with pytest.raises(InvalidInput) as caught:
        convert(data, "a.ipynb")
    assert time.monotonic() - started < 5
    assert all(problem.path == "a.ipynb" and problem.mend for problem in caught.value.problems)


def test_odd_metadata_is_no_obstacle() -> None:
    """Metadata of an unexpected form is passed over."""
    cell = {"cell_type": "code", "source": "x = 1", "metadata": []}
    assert "x = 1" in convert(notebook(cell, metadata=[]), "a.ipynb")


def test_code_that_begins_with_a_comment_counts() -> None:
    """A notebook whose only code cell starts with a comment has code."""
    assert "x = 1" in convert(notebook(code("# first\nx = 1")), "a.ipynb")
