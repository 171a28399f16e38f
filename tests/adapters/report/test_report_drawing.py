import math
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlgitops.adapters.report import plots, svg
from mlgitops.adapters.report.characters import visible
from mlgitops.adapters.report.svg import LARGEST, Scale

numbers = st.floats(-LARGEST, LARGEST, allow_nan=False, exclude_min=True, exclude_max=True)


@given(st.lists(numbers, min_size=1, max_size=8), numbers)
def test_scale_stays_inside(values: list[float], other: float) -> None:
    """Whatever is drawn on whatever range lies inside the drawing."""
    scale = Scale(*svg.padded(values), 10, 600)
    assert all(10 <= scale(one) <= 600 for one in (*values, other))


@given(numbers, numbers, st.integers(1, 8))
def test_ticks_are_few_and_inside(low: float, high: float, most: int) -> None:
    """Ticks are finite, in order, inside the range, and no more than asked for (and one)."""
    found = svg.ticks(low, high, most)
    assert len(found) <= most + 1
    assert found == sorted(found)
    room = abs(high - low) * 1e-6 + 1e-290
    assert all(math.isfinite(one) and (low - room <= one <= high + room or found == [low]) for one in found)


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [(0, 1, [0, 0.2, 0.4, 0.6, 0.8, 1]), (-5, 5, [-4, -2, 0, 2, 4]), (0.85, 0.99, [0.85, 0.9, 0.95])],
)
def test_ticks_are_round(low: float, high: float, expected: list[float]) -> None:
    """Ticks are numbers that people count in."""
    assert svg.ticks(low, high) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("seconds", "step", "name"), [(21, 5, "5 s"), (300, 60, "1 min"), (7000, 1800, "30 min"), (400_000, 86_400, "1 d")]
)
def test_time_is_told_in_units_people_count_in(seconds: float, step: int, name: str) -> None:
    """Steps of time are seconds, minutes, hours or days, never 100 seconds."""
    assert svg.round_seconds(seconds) == step
    assert svg.elapsed(step) == name


@given(st.floats(1, 1e8))
def test_clock_has_ticks_inside(seconds: float) -> None:
    """Times on the axis lie between its ends."""
    start = datetime(2026, 11, 30, 12, 3, 7, tzinfo=UTC)
    end = start + timedelta(seconds=seconds)
    found = svg.clock_ticks(start, end)
    assert all(start <= at <= end for at, _ in found)
    assert len(found) <= 6


@given(st.text())
def test_visible_text_hides_nothing(text: str) -> None:
    """Nothing that is not seen, or that moves other characters, is left in a text; letters stay as they are."""
    shown = visible(text)
    assert not any(ord(one) < 32 and one != "\n" for one in shown)
    assert not {"\u202e", "\u2066", "\u200b", "\ufeff", "\x7f"} & set(shown)
    shown.encode()
    assert visible("Ünïcode 日本 👩\u200d💻 שלום") == "Ünïcode 日本 👩\u200d💻 שלום"


def test_differences_are_turned() -> None:
    """A loss that falls is drawn as better, with its interval the other way round."""
    row = {"metric": "log_loss", "better": "lower", "difference": {"value": -0.2, "low": -0.3, "high": -0.1}}
    found = plots.turned(row)
    assert found == {"value": 0.2, "low": 0.1, "high": 0.3}
    assert plots.told_apart(found) == "better"
    assert plots.difference_words(row) == "+0.2 (+0.1 to +0.3)"
    worse = {"metric": "accuracy", "better": "higher", "difference": {"value": -0.02, "low": -0.03, "high": -0.01}}
    assert plots.told_apart(plots.turned(worse) or {}) == "worse"
    assert plots.difference_words(worse) == "-2 (-3 to -1)"
