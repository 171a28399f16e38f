"""The ledger that these tests report is built by a plain module beside them."""

import pytest

from mlgitops.adapters.report.html import render
from mlgitops.app.reporting import Values, collect
from tests.adapters.report.report_ledger import MODEL, Story, every_outcome


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
