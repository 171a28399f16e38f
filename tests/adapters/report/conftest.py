"""The ledger that these tests report is built by a plain module beside them."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from report_ledger import MODEL, Story, every_outcome

from mlgitops.adapters.report.html import render
from mlgitops.app.reporting import Values, collect


@pytest.fixture(scope="session")
def story() -> Story:
    """A ledger with every outcome; not to be changed."""
    return every_outcome()


@pytest.fixture(scope="session")
def values(story: Story) -> Values:
    return collect(story.context(), MODEL, None)


@pytest.fixture(scope="session")
def page(values: Values) -> str:
    return render(values)
