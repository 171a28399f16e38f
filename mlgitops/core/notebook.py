"""From a notebook to the script that trains: pure, and the same notebook gives the same script.

Source: Jupyter notebook format 4, https://nbformat.readthedocs.io/en/latest/format_description.html
"""

import json
import re
import warnings
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any, Final, NoReturn

from mlgitops.core.errors import InvalidInput, Problem

NOTEBOOK_BYTES: Final = 32 << 20
CELLS: Final = 10_000
SKIP_TAG: Final = "skip"
"""Cells with this tag are for people only and stay out of the script."""
_MAGIC: Final = re.compile(r"\s*([%!?]|[\w.]+\s*\?{1,2}\s*$)|\s*[\w, .\[\]]+=\s*[%!]")
"""What IPython adds to Python: `%magic`, `!shell`, `?help`, `name?`, and assignments from the first two."""


def convert(data: bytes, path: str) -> str:
    """Return a Python script with the code cells of a notebook in order, and its Markdown as comments.

    Outputs, raw cells and cells tagged `skip` are left out.

    Args:
        data: The `.ipynb` file.
        path: Its name, for messages and the script's first line.

    Raises:
        InvalidInput: It is no Python notebook of format 4, or holds lines that only IPython understands (`%magic`,
            `!shell`) or that are no Python; every one of them, by cell and line.
    """
    notebook = _parse(data, path)
    cells = notebook.get("cells")
    if not isinstance(cells, list) or len(cells) > CELLS:
        _refuse(path, f"needs a list `cells` of at most {CELLS}", "save it again from Jupyter")
    problems: list[Problem] = []
    blocks: list[str] = []
    for index, cell in enumerate(cells):
        blocks.extend(_convert_cell(cell, index, path, problems))
    if not problems and not any(_is_code(block) for block in blocks):
        message = "has no code to train with"
        problems.append(Problem(message=message, path=path, mend=f"add a code cell without the tag `{SKIP_TAG}`"))
    if problems:
        raise InvalidInput(problems)
    title = "".join(one if one.isprintable() else "?" for one in PurePosixPath(path).name)  # it stays one comment
    script = "\n\n".join((f"# Converted from {title} at the build; edit the notebook.", *blocks)) + "\n"
    if (fault := _syntax_fault(script)) is not None:
        mend = "put `from __future__` imports into the first code cell"
        raise InvalidInput([Problem(message=f"is no script as a whole: {fault.msg}", path=path, mend=mend)])
    return script


def _parse(data: bytes, path: str) -> Mapping[str, Any]:
    if len(data) > NOTEBOOK_BYTES:
        _refuse(path, f"is larger than {NOTEBOOK_BYTES >> 20} MiB", "clear the outputs of its cells")
    try:
        notebook = json.loads(data.decode("utf-8-sig"))
    except UnicodeDecodeError:
        _refuse(path, "is not UTF-8", "save it again from Jupyter")
    except RecursionError:
        _refuse(path, "is nested too deeply", "clear the outputs of its cells")
    except ValueError as error:
        _refuse(path, f"is not JSON: {error}", "save it again from Jupyter")
    if not isinstance(notebook, dict) or notebook.get("nbformat") != 4:
        _refuse(path, "is no notebook of format 4", "open it in Jupyter and save it again")
    language = _language(notebook.get("metadata"))
    if language not in (None, "python"):
        _refuse(path, f"is written in {language!r:.40}", "training needs a Python notebook")
    return notebook


def _language(metadata: Any) -> Any:
    if not isinstance(metadata, dict):
        return None
    for section, key in (("language_info", "name"), ("kernelspec", "language")):
        values = metadata.get(section)
        if isinstance(values, dict) and values.get(key) is not None:
            return str(values[key]).lower()
    return None


def _refuse(path: str, message: str, mend: str) -> NoReturn:
    raise InvalidInput([Problem(message=message, path=path, mend=mend)])


def _convert_cell(cell: Any, index: int, path: str, problems: list[Problem]) -> Iterator[str]:
    """Yield the script's block for one cell, if it has any; what is wrong with it goes to `problems`."""
    pointer = f"cells[{index}]"
    source = _source(cell)
    if source is None:
        message = f"cell {index + 1} has no `cell_type` or no `source` of text"
        problems.append(Problem(message=message, path=path, pointer=pointer, mend="save it again from Jupyter"))
        return
    if not source.strip() or SKIP_TAG in _tags(cell):
        return
    if cell["cell_type"] == "markdown":
        yield "\n".join(f"# {line}".rstrip() for line in source.splitlines())
    elif cell["cell_type"] == "code":
        problems.extend(_code_problems(source, index, path))
        yield source.strip("\n").rstrip()


def _is_code(block: str) -> bool:
    return any(line.strip() and not line.lstrip().startswith("#") for line in block.splitlines())


def _source(cell: Any) -> str | None:
    if not isinstance(cell, dict) or not isinstance(cell.get("cell_type"), str):
        return None
    source = cell.get("source")
    if isinstance(source, list) and all(isinstance(line, str) for line in source):
        source = "".join(source)
    if not isinstance(source, str):
        return None
    return source.replace("\r\n", "\n").replace("\r", "\n")


def _tags(cell: Mapping[str, Any]) -> list[Any]:
    metadata = cell.get("metadata")
    tags = metadata.get("tags") if isinstance(metadata, dict) else None
    return tags if isinstance(tags, list) else []


def _code_problems(source: str, index: int, path: str) -> Iterator[Problem]:
    """Yield what of a code cell is no Python. A cell that is Python has no magic: its `%` lines are operators."""
    fault = _syntax_fault(source)
    if fault is None:
        return
    pointer = f"cells[{index}]"
    magic = [(number, line) for number, line in enumerate(source.splitlines(), 1) if _MAGIC.match(line)]
    for number, line in magic:
        message = f"cell {index + 1}, line {number}: {line.strip()!r:.60} is IPython, not Python"
        mend = f"write it in Python, list packages in the requirements, or tag the cell `{SKIP_TAG}`"
        yield Problem(message=message, path=path, pointer=pointer, mend=mend)
    if not magic:
        message = f"cell {index + 1}, line {fault.lineno or 1}: {fault.msg}"
        yield Problem(message=message, path=path, pointer=pointer, mend=f"mend the cell, or tag it `{SKIP_TAG}`")


def _syntax_fault(source: str) -> SyntaxError | None:
    """Return why `source` does not compile; None when it does. Nothing of it runs."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(source, "<cell>", "exec", dont_inherit=True)
    except SyntaxError as error:
        return error
    except (ValueError, RecursionError, MemoryError, OverflowError) as error:
        return SyntaxError(f"cannot be compiled: {str(error) or type(error).__name__}")
    return None
