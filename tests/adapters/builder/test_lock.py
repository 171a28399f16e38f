"""Locked requirements are compared with what the interpreter has, line by line."""

import pytest

from mlgitops.adapters.builder.requirements import check_lock, installed_versions, parse_lock
from mlgitops.core.errors import InvalidInput, Problem

INSTALLED = {"numpy": "2.4.6", "tensorflow-cpu": "2.21.0", "ruamel-yaml": "0.18", "torch": "2.0+cpu"}


def problems(text: str | bytes) -> list[tuple[int | None, str]]:
    data = text if isinstance(text, bytes) else text.encode()
    found = []
    try:
        check_lock(data, "requirements.txt", INSTALLED)
    except InvalidInput as error:
        found = list(error.problems)
    assert all(problem.path == "requirements.txt" and problem.mend for problem in found)
    return [(problem.line, problem.message) for problem in found]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "numpy==2.4.6",
        "\ufeffnumpy==2.4.6\r\n",
        "# comment\n\nnumpy==2.4.6  # why\n",
        "NumPy == 2.4.6",
        "numpy===2.4.6",
        "ruamel.yaml==0.18.0",
        "numpy==2.4.6 --hash=sha256:aa --hash=sha256:bb",
        "numpy==2.4.6 \\\n    --hash=sha256:aa \\\n    --hash=sha256:bb",
        "numpy==2.4.6; python_version >= '3'",
        "absent==1; python_version < '3'",
        "numpy==1; python_version < '3'\nnumpy==2.4.6; python_version >= '3'",
        "tensorflow==2.21.0",
        "torch==2.0",
        "--index-url https://packages.example/simple\n-i https://packages.example\n--require-hashes\nnumpy==2.4.6",
    ],
)
def test_locks_that_hold(text: str) -> None:
    """Hashes, markers, comments, continued lines and index options are no obstacle to a lock that holds."""
    assert problems(text) == []


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("numpy==2.4.5", [1]),
        ("numpy==2.4", [1]),
        ("absent==1", [1]),
        ("torch==2.0+cu12", [1]),
        ("numpy>=2", [1]),
        ("numpy", [1]),
        ("numpy==2.*", [1]),
        ("numpy==2.4.6,>1", [1]),
        ("numpy @ https://example.org/numpy.whl", [1]),
        ("-r other.txt", [1]),
        ("-e .", [1]),
        ("--editable=.", [1]),
        ("-c constraints.txt", [1]),
        ("!!!", [1]),
        ("numpy==2.4.6\nnumpy==2.4.5", [2]),
        ("absent \\\n == 1\nnumpy==1\n\n# x\ntensorflow==2.20.0", [1, 3, 6]),
        (b"\xff\xfe", [None]),
        (b"#" * ((1 << 20) + 1), [None]),
    ],
)
def test_locks_that_do_not_hold(text, lines) -> None:
    """Every line that locks nothing, or locks what is not installed, is named with its number."""
    assert [line for line, _ in problems(text)] == lines


def test_messages_name_both_versions() -> None:
    """A person reads what is locked and what is there."""
    ((_, message),) = problems("numpy==2.4.5")
    assert message == "numpy==2.4.5 is locked, but 2.4.6 is installed"


def test_credentials_of_an_index_are_not_repeated() -> None:
    """A refused line does not bring a password into a log."""
    told = problems("--index-url https://user:secret@packages.example\nnumpy==1\n")
    assert "secret" not in str(told)


def test_installed_versions_are_this_interpreter_s() -> None:
    """Names are normalised as the package index does it."""
    found = installed_versions()
    assert "numpy" in found
    assert all(name == name.lower() and "_" not in name for name in found)


def test_markers_are_kept_apart() -> None:
    """A line whose marker is false is read and does not apply."""
    found: list[Problem] = []
    (item,) = parse_lock(b"numpy==1 ; python_version < '3'", "r", found)
    assert not item.applies
    assert found == []
