"""The bounds of the histograms: of latency, and of how late labels come."""

from typing import Final

LATENCY_BUCKETS_SECONDS: Final = (
    *(0.001, 0.0015, 0.002, 0.003, 0.004, 0.005, 0.0075),
    *(0.01, 0.015, 0.02, 0.03, 0.04, 0.05, 0.075),
    *(0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75),
    *(1.0, 1.5, 2.0, 3.0, 5.0, 7.5, 10.0),
)
"""Upper bounds from 1 ms to 10 s, seven to a decade: neighbours differ by a third to a half, which is what a judge of
tail latency can tell apart. They are part of the metrics' contract: changing them starts new series."""

LABEL_DELAY_BUCKETS_SECONDS: Final = (1.0, 10.0, 60.0, 600.0, 3_600.0, 21_600.0, 43_200.0, 86_400.0)
"""Upper bounds from a second to a day, the oldest request that takes a label."""
