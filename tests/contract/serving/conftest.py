"""Helpers of this suite are plain modules beside it; the engine is shared where tests do not break it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.serving.serving_kit import Engine


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    """An engine of its own, on a free port, with linear models instead of SavedModels."""
    with Engine(tmp_path) as one:
        yield one


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """One engine for the tests of a module, each with an environment of its own."""
    with Engine(tmp_path_factory.mktemp("serving")) as one:
        yield one
