"""An answer and a label are compared whatever numbers they are."""

import pytest

from mlgitops.adapters.serving.outcomes import agrees


@pytest.mark.parametrize(
    ("served", "label", "right"),
    [
        ([1.0], [1.4], True),
        ([1.0], [1.6], False),
        ([10**400], [1.5], False),
        ([1.5], [10**400], False),
        ([1.0], ["1"], None),
    ],
)
def test_a_number_beyond_every_float_is_a_wrong_one(served, label, right: bool | None) -> None:
    """A whole number that no float can hold is far from every float; it ends no request with a fault of the server."""
    assert agrees(served, label, 0.5) is right
