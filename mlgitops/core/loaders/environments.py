"""`environments.yaml`: what no schema can say about it, and its value."""

import re
from collections.abc import Mapping
from datetime import time
from itertools import pairwise
from typing import Any, Final

from mlgitops.core.configuration import (
    NOTICE_KINDS,
    Environment,
    EnvironmentsConfiguration,
    FreezeWindow,
    HoldBack,
    Limits,
    MetricRule,
    MetricsSource,
    Monitoring,
    Notification,
    Owners,
    Plan,
    PrometheusSource,
    ServiceLimit,
    Shadow,
    Step,
)
from mlgitops.core.loaders.source import Source, gates, parse_moment
from mlgitops.core.manifest.fields import TRAINING
from mlgitops.core.manifest.validate import Path, choose

_DAYS: Final = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_SELECTOR: Final = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*\{[^{}\[\]\n]*\}")
"""An instant selector of one metric, to which a range can be added."""
_OPTIONAL_NUMBERS: Final = {
    "probation_seconds": "probationSeconds",
    "proposal_seconds": "proposalSeconds",
    "start_seconds": "startSeconds",
    "expected_requests_per_second": "expectedRequestsPerSecond",
}


def load(data: bytes, path: str) -> EnvironmentsConfiguration:
    """Return what `environments.yaml` says; raises InvalidInput with every problem."""
    source = Source(data, path, "environments")
    _check_environments(source)
    for at, _ in source.entries("plans"):
        _check_plan(source, ("plans", at))
    _check_selectors(source)
    _check_notifications(source)
    return _build(source.finish())


def _check_environments(source: Source) -> None:
    entries = source.entries("environments")
    where: Path = ("environments",)
    names = [((*where, at, "name"), one["name"]) for at, one in entries]
    source.check_unique(names, "the environment")
    spaces = [((*where, at, "namespace" if "namespace" in one else "name"), _namespace(one)) for at, one in entries]
    source.check_unique(spaces, "the namespace")
    plans = [(("plans", at, "name"), one["name"]) for at, one in source.entries("plans")]
    source.check_unique(plans, "the plan")
    for pointer, name in names:
        if name == TRAINING:
            source.refuse(pointer, "environments/training is where models are trained", "choose another name")
    for at, one in entries:
        pointer = (*where, at)
        known = [name for _, name in plans]
        if one["plan"] not in known and source.sound("plans") is not None:
            source.refuse((*pointer, "plan"), f"there is no plan {one['plan']!r}", choose(one["plan"], known))
        source.check_gates((*pointer, "gates"))
        _check_monitoring(source, (*pointer, "monitoring", "limits"))
        for window, _ in source.entries(*pointer, "freezeWindows"):
            _check_window(source, (*pointer, "freezeWindows", window))


def _check_monitoring(source: Source, pointer: Path) -> None:
    limits = source.entries(*pointer)
    source.check_unique([((*pointer, at, "kind"), _limit(one).name) for at, one in limits], "the limit")
    for at, one in limits:
        if one["kind"] == "latency" and "seconds" not in one:
            source.refuse((*pointer, at), "the limit does not say how long a request may take", "add `seconds:`")
        if one["kind"] != "latency" and "seconds" in one:
            source.refuse((*pointer, at, "seconds"), "only latency has seconds", "remove it")


def _limit(value: Mapping[str, Any]) -> ServiceLimit:
    return ServiceLimit(kind=value["kind"], share=value["share"], action=value["action"], seconds=value.get("seconds"))


def _monitoring(value: Mapping[str, Any]) -> Monitoring:
    return Monitoring(
        limits=tuple(map(_limit, value["limits"])),
        dispersion=value.get("dispersion"),
        **({"alpha": value["alpha"]} if "alpha" in value else {}),
    )


def _namespace(environment: Mapping[str, Any]) -> str:
    name: str = environment.get("namespace", environment["name"])
    return name


def _check_window(source: Source, pointer: Path) -> None:
    window = source.sound(*pointer)
    once, weekly = "start" in window or "end" in window, {"days", "after", "before"} & set(window)
    if once and weekly:
        message = "a window is either from start to end, or weekly on days"
        source.refuse(pointer, message, "make two windows of it")
    elif once:
        _check_once(source, pointer, window)
    elif "days" not in window:
        source.refuse(pointer, "the window has no time", "add start and end, or days")
    elif window.get("after", "00:00") >= window.get("before", "24:00"):
        message = "the window ends before it begins"
        source.refuse(pointer, message, "over midnight it is two windows: one without before, one without after")


def _check_once(source: Source, pointer: Path, window: Mapping[str, Any]) -> None:
    moments = []
    for key in ("start", "end"):
        if key not in window:
            source.refuse(pointer, f"{key} is missing", f'add `{key}:`, like "2026-12-20T00:00:00Z"')
            continue
        moment = parse_moment(window[key])
        if moment is None:
            message = f"{window[key]!r:.60} is not a moment with an offset"
            source.refuse((*pointer, key), message, 'write it like "2026-12-20T00:00:00Z"')
        else:
            moments.append(moment)
    if len(moments) == 2 and moments[0] >= moments[1]:
        source.refuse((*pointer, "end"), "the window ends before it begins", "swap start and end")


def _check_plan(source: Source, pointer: Path) -> None:
    steps = [((*pointer, "steps", at, "weight"), one) for at, one in source.entries(*pointer, "steps")]
    for (_, one), (place, two) in pairwise(steps):
        if two["weight"] <= one["weight"]:
            message = f"weight {two['weight']} does not follow {one['weight']}: weights must rise"
            source.refuse(place, message, "order the steps by weight, each once")
    rules = source.entries(*pointer, "metrics")
    named = [((*pointer, "metrics", at, "kind"), MetricRule.from_mapping(one).name) for at, one in rules]
    source.check_unique(named, "the metric")
    for at, one in rules:
        margin = one.get("margin", 1)
        if one["effect"] <= margin:
            message = f"effect {one['effect']} must be more than the margin {margin}"
            source.refuse((*pointer, "metrics", at, "effect"), message, "name a larger effect, or a smaller margin")
    age, total = source.sound(*pointer, "maximumAgeSeconds"), sum(one["seconds"] for _, one in steps)
    total += source.sound(*pointer, "noiseSeconds") or 0
    held = source.sound(*pointer, "holdBack")
    if held is not None:
        total += held["seconds"]
        place, one = steps[-1]
        if one["weight"] + held["percent"] > 100:
            message = f"weight {one['weight']} leaves less than the {held['percent']} % that holdBack holds back"
            source.refuse(place, message, f"write {100 - held['percent']} at most")
    if (86_400 if age is None else age) <= total:
        place = (*pointer, "maximumAgeSeconds") if age is not None else pointer
        message = f"all of it takes {total} seconds, and a rollout older than maximumAgeSeconds is rolled back"
        source.refuse(place, message, f"write more than {total}")
    _check_shadow(source, (*pointer, "shadow"), 86_400 if age is None else age)


def _check_shadow(source: Source, pointer: Path, age_seconds: float) -> None:
    written = source.sound(*pointer)
    if not isinstance(written, Mapping) or "requests" not in written:
        return
    shadow = Shadow.from_mapping(written)
    if shadow.minimum > shadow.count:
        message = f"minimum {shadow.minimum:g} is more than count, {shadow.count:g}"
        source.refuse((*pointer, "minimum"), message, "replay more requests, or ask for fewer")
    if shadow.count / shadow.per_second >= age_seconds:
        message = f"{shadow.count:g} requests at {shadow.per_second:g} in a second take longer than maximumAgeSeconds"
        source.refuse(pointer, message, "write a higher perSecond, or a lower count")


def _build(value: Mapping[str, Any]) -> EnvironmentsConfiguration:
    plans = {one["name"]: _plan(one) for one in value["plans"]}
    training, kept = value.get("training", {}), value.get("retention", {})
    return EnvironmentsConfiguration(
        environments=tuple(_environment(one, plans) for one in value["environments"]),
        plans=tuple(plans.values()),
        training_namespace=training.get("namespace", "training"),
        claim=training.get("claim", "mlgitops-store"),
        keep_releases=int(value.get("keepReleases", 10)),
        keep={kind: int(newest) for kind, newest in kept.items() if kind != "unusedSeconds"},
        **({"unused_seconds": kept["unusedSeconds"]} if "unusedSeconds" in kept else {}),
        metrics=_metrics_source(value.get("metrics", {})),
        owners=_owners(value["owners"]) if "owners" in value else None,
        notifications=tuple(map(_notification, value.get("notifications", ()))),
    )


def _check_selectors(source: Source) -> None:
    """Refuse queries that would mix models or rollouts, or that are more than the selector of a counter."""
    kinds = ("requests", "latency", "labelled")
    for key in (*kinds, *(f"slice{kind.capitalize()}" for kind in kinds)):
        pointer: Path = ("metrics", "prometheus", key)
        written = source.sound(*pointer)
        if not isinstance(written, str):
            continue
        missing = [name for name in ("$environment", "$model", "$cohort") if name not in written]
        if missing:
            source.refuse(pointer, f"the query does not use {', '.join(missing)}", "select what is judged, and no more")
        if not _SELECTOR.fullmatch(written):
            mend = 'write one like name_total{model="$model",cohort=~"$cohort"}; a recording rule can prepare it'
            source.refuse(pointer, "the query is no selector of a counter", mend)


def _check_notifications(source: Source) -> None:
    entries = source.entries("notifications")
    source.check_unique([(("notifications", at, "name"), one["name"]) for at, one in entries], "the notification")
    known = [one["name"] for _, one in source.entries("environments")]
    for at, one in entries:
        for place, name in enumerate(one.get("environments", ())):
            if name not in known and source.sound("environments") is not None:
                pointer: Path = ("notifications", at, "environments", place)
                source.refuse(pointer, f"there is no environment {name!r}", choose(name, known))


def _notification(value: Mapping[str, Any]) -> Notification:
    return Notification(
        name=value["name"],
        variable=value["variable"],
        events=tuple(value.get("events", NOTICE_KINDS)),
        environments=tuple(value.get("environments", ())),
        models=tuple(value.get("models", ())),
    )


def _metrics_source(value: Mapping[str, Any]) -> MetricsSource:
    slices = {f"slice{kind.capitalize()}": f"slice_{kind}" for kind in ("requests", "latency", "labelled")}
    names = slices | {
        "sameProcess": "same_process",
        "lookbackSeconds": "lookback_seconds",
        "timeoutSeconds": "timeout_seconds",
    }
    asked = {names.get(key, key): one for key, one in value.get("prometheus", {}).items()}
    if "same_process" in asked:
        asked["same_process"] = tuple(asked["same_process"])
    return MetricsSource(source=value.get("source", "engine"), prometheus=PrometheusSource(**asked))


def _owners(value: Mapping[str, Any]) -> Owners:
    models = {name: tuple(owners) for name, owners in value.get("models", {}).items()}
    return Owners(default=tuple(value["default"]), models=models)


def _environment(value: Mapping[str, Any], plans: Mapping[str, Plan]) -> Environment:
    return Environment(
        name=value["name"],
        namespace=_namespace(value),
        plan=plans[value["plan"]],
        automatic=value.get("automatic", True),
        write_mode=value.get("writeMode", "direct"),
        approvals=int(value.get("approvals", 0)),
        freeze_windows=tuple(_window(one) for one in value.get("freezeWindows", ())),
        gates=gates(value.get("gates", ()), by_environment=True),
        evaluation_sets=dict(value.get("evaluationSets", {})),
        monitoring=_monitoring(value["monitoring"]) if "monitoring" in value else None,
        **{field: value[key] for field, key in _OPTIONAL_NUMBERS.items() if key in value},
    )


def _window(value: Mapping[str, Any]) -> FreezeWindow:
    return FreezeWindow(
        name=value["name"],
        start=parse_moment(value["start"]) if "start" in value else None,
        end=parse_moment(value["end"]) if "end" in value else None,
        days=tuple(_DAYS.index(one) for one in value.get("days", ())),
        after=time.fromisoformat(value["after"]) if "after" in value else None,
        before=time.fromisoformat(value["before"]) if "before" in value else None,
    )


def _plan(value: Mapping[str, Any]) -> Plan:
    numbers = {
        "extend_seconds": "extendSeconds",
        "maximum_age_seconds": "maximumAgeSeconds",
        "noise_seconds": "noiseSeconds",
        "alpha": "alpha",
    }
    return Plan(
        name=value["name"],
        steps=tuple(Step(weight_percent=int(one["weight"]), seconds=one["seconds"]) for one in value["steps"]),
        metrics=tuple(map(MetricRule.from_mapping, value["metrics"])),
        dispersion=value.get("dispersion"),
        early=value.get("early", False),
        hold_back=HoldBack(**value["holdBack"]) if "holdBack" in value else None,
        limits=Limits(**value.get("limits", {})),
        insufficient_data=value.get("insufficientData", "wait"),
        shadow=Shadow.from_mapping(value["shadow"]) if "shadow" in value else None,
        **{field: value[key] for field, key in numbers.items() if key in value},
    )
