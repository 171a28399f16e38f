"""What a release costs: the size of its model, the time of an answer, the hours of its training.

Costs have no interval over examples. Where a gate compares one with the champion's, both were measured by the same
evaluation on the same machine, or come from the clusters' own records of the two trainings.
"""

from collections.abc import Mapping
from typing import Any, Final

from mlgitops.core.configuration import Training
from mlgitops.core.release import Release

SIZE: Final = "size_megabytes"
MEDIAN: Final = "latency_median_milliseconds"
HIGH: Final = "latency_p95_milliseconds"
HOURS: Final = "training_hours"
GPU_HOURS: Final = "gpu_hours"
COSTS: Final[Mapping[str, str]] = {
    SIZE: "Bytes of the SavedModel's files, in millions.",
    MEDIAN: "Median time of a call with one example, in the evaluating process.",
    HIGH: "95th percentile of the same calls.",
    HOURS: "Hours from the start of the training job to its end, restarts included.",
    GPU_HOURS: "Hours of training times the GPUs that its roles ask for; 0 without any.",
}
"""Names by which gates use them, and what they mean; of all of them, less is better."""
_GPU_SUFFIX: Final = "/gpu"
"""`nvidia.com/gpu`, `amd.com/gpu`: how device plugins name what they hand out."""


def cost(report: Mapping[str, Any], side: str, name: str) -> float | None:
    """Return one cost of a side of an evaluation report; None where it was not measured.

    Args:
        report: Schema `evaluation-report`.
        side: `candidate` or `champion`.
        name: One of `COSTS`.
    """
    model: Mapping[str, Any] = report.get(side) or {}
    latency: Mapping[str, Any] = model.get("latencyMilliseconds") or {}
    training: Mapping[str, Any] = (report.get("training") or {}).get(side) or {}
    size = model.get("sizeBytes")
    found = {
        SIZE: None if size is None else size / 1e6,
        MEDIAN: latency.get("median"),
        HIGH: latency.get("p95"),
        HOURS: training.get("hours"),
        GPU_HOURS: training.get("gpuHours"),
    }
    return found[name]


def training_costs(release: Release, training: Training) -> dict[str, float] | None:
    """Return `hours` and `gpuHours` of a release's training; None where its job's times are not known.

    Args:
        release: A trained release.
        training: The `training` section it was submitted with.
    """
    hours = release.training_hours
    if hours is None:
        return None
    return {"hours": round(hours, 6), "gpuHours": round(hours * gpus(training), 6)}


def gpus(training: Training) -> int:
    """Return how many GPUs the roles of a training ask for together."""
    return sum(
        role.replicas * int(amount)
        for role in training.roles.values()
        for resource, amount in role.resources.get("limits", {}).items()
        if resource.endswith(_GPU_SUFFIX) and str(amount).isdigit()
    )
