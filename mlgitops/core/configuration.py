"""The two configuration files as values: what a model repository and an environment repository say."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, time
from typing import Any, Final, Literal, get_args

from mlgitops.core.names import Digest

MetricKind = Literal["errors", "latency", "labels"]
Policy = Literal["wait", "hold"]
AlarmAction = Literal["alert", "hold", "rollback", "retrain"]
NoticeKind = Literal["promoted", "rolled-back", "refused", "errored", "held", "training-failed", "alert"]
NOTICE_KINDS: Final[tuple[NoticeKind, ...]] = get_args(NoticeKind)


@dataclass(frozen=True, kw_only=True)
class DataInput:
    """One data input of training."""

    path: str
    """File or directory in the model repository."""
    variable: str
    """Environment variable that gives the job its URI."""


@dataclass(frozen=True, kw_only=True)
class Role:
    """One replica type of a TFJob."""

    replicas: int = 1
    restart_policy: str = "OnFailure"
    resources: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Kubernetes `resources` (requests, limits; GPUs as `nvidia.com/gpu` limits)."""
    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: Sequence[Mapping[str, Any]] = ()


@dataclass(frozen=True, kw_only=True)
class Training:
    """How a model is trained."""

    command: tuple[str, ...]
    """Command in the image; from `script` or a converted `notebook`."""
    roles: Mapping[str, Role]
    """By replica type: Chief, Worker, PS, Evaluator."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Plain environment variables of every role."""
    volumes: Sequence[Mapping[str, Any]] = ()
    """Extra volumes, each a Kubernetes volume with a `mountPath`."""
    active_deadline_seconds: int = 3600
    start_deadline_seconds: int = 120
    backoff_limit: int = 3
    clean_pod_policy: str = "Running"
    success_policy: str = ""
    newer: Literal["queue", "supersede"] = "queue"
    """What a newer push does to a training that waits: both train in order, or only the newest."""
    notebook: str | None = None
    """Notebook converted to `command`'s script at every build; None for a script."""

    def to_mapping(self) -> dict[str, Any]:
        """Return everything that makes two trainings different, as plain values in a fixed order."""
        return {
            "command": list(self.command),
            "roles": {
                name: {
                    "replicas": role.replicas,
                    "restartPolicy": role.restart_policy,
                    "resources": {kind: dict(values) for kind, values in role.resources.items()},
                    "nodeSelector": dict(role.node_selector),
                    "tolerations": [dict(one) for one in role.tolerations],
                }
                for name, role in sorted(self.roles.items())
            },
            "environment": dict(self.environment),
            "volumes": [dict(volume) for volume in self.volumes],
            "activeDeadlineSeconds": self.active_deadline_seconds,
            "startDeadlineSeconds": self.start_deadline_seconds,
            "backoffLimit": self.backoff_limit,
            "cleanPodPolicy": self.clean_pod_policy,
            "successPolicy": self.success_policy,
        }


@dataclass(frozen=True, kw_only=True)
class Gate:
    """One limit on one metric of the evaluation."""

    metric: str
    minimum: float | None = None
    """The value must be at least this."""
    maximum: float | None = None
    """The value must be at most this."""
    maximum_loss: float | None = None
    """How much worse than the champion it may be, on the interval of the paired difference."""
    maximum_ratio: float | None = None
    """How many times the champion's cost it may be; for costs alone."""
    slice: str | None = None
    """Slice of the evaluation set; None for all of it."""
    measured: bool = False
    """An environment set it: only what mlgitops measured counts, and the model has no say in the confidence."""

    def to_mapping(self) -> dict[str, Any]:
        """Return the gate as written, without what is absent; not who set it."""
        values = {
            "metric": self.metric,
            "minimum": self.minimum,
            "maximum": self.maximum,
            "maximumLoss": self.maximum_loss,
            "maximumRatio": self.maximum_ratio,
            "slice": self.slice,
        }
        return {name: value for name, value in values.items() if value is not None}


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """How a model is evaluated."""

    data: str
    """Evaluation set in the model repository: an `.npz` file."""
    specification: Mapping[str, Any]
    """The section as written, defaults filled in, without `data` and `gates`."""
    gates: tuple[Gate, ...] = ()
    """The model's own limits: failing one ends the release."""


@dataclass(frozen=True, kw_only=True)
class DockerBuild:
    """How a Docker Engine builds the image of a model."""

    dockerfile: str = "Dockerfile"
    """Path in the model repository."""
    arguments: Mapping[str, str] = field(default_factory=dict)
    """Values of the Dockerfile's `ARG`s."""
    target: str | None = None
    """Stage to build; None for the last."""
    platform: str | None = None
    """Like `linux/amd64`; None for the engine's own."""

    def to_mapping(self) -> dict[str, Any]:
        """Return what decides, beside the Dockerfile, which image comes of it."""
        return {"arguments": dict(self.arguments), "target": self.target, "platform": self.platform}


@dataclass(frozen=True, kw_only=True)
class ModelConfiguration:
    """`mlgitops.yaml`."""

    name: str
    inputs: tuple[str, ...]
    """Files and folders of the model repository that decide what is trained."""
    data: tuple[DataInput, ...]
    requirements: str
    image_repository: str
    training: Training
    evaluation: Evaluation
    test_command: tuple[str, ...] = ()
    """Command run before anything is built; empty for none."""
    test_timeout_seconds: int = 600
    docker: DockerBuild | None = None
    """How a Docker Engine builds the image; None where the embedded builder does."""
    push: bool = False
    """Whether the image goes to the registry that its repository's name begins with; always, from a Docker Engine."""
    serving: Mapping[str, Any] = field(default_factory=dict)
    """`minReplicas` and `resources` of the InferenceService."""

    @property
    def specification(self) -> Mapping[str, Any]:
        """What, beside code and data, makes another training of it: how it trains, and what its image is built with."""
        training = self.training.to_mapping()
        return training if self.docker is None else {**training, "image": self.docker.to_mapping()}


@dataclass(frozen=True, kw_only=True)
class MetricRule:
    """One metric that judges a canary."""

    kind: MetricKind
    effect: float
    """Odds ratio (canary over baseline) that must be seen; more than 1."""
    margin: float = 1.0
    """Odds ratio that is still tolerated; at least 1."""
    weight: float = 1.0
    """Its part of the plan's α, relative to the weights of the other metrics; more than 0."""
    slice: str | None = None
    """Only requests of this slice are compared; None for all requests."""

    @property
    def name(self) -> str:
        """What tells it from the other metrics of its plan: `labels`, or `labels/mobile` of a slice."""
        return self.kind if self.slice is None else f"{self.kind}/{self.slice}"

    def to_mapping(self) -> dict[str, Any]:
        """Return the rule as the configuration file writes it, without a weight of 1."""
        weight = {} if self.weight == 1 else {"weight": self.weight}
        of = {} if self.slice is None else {"slice": self.slice}
        return {"kind": self.kind, **of, "effect": self.effect, "margin": self.margin, **weight}

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> "MetricRule":
        """Return the rule that a checked configuration file or a plan's mapping writes."""
        return cls(
            kind=values["kind"],
            effect=values["effect"],
            margin=values.get("margin", 1.0),
            weight=values.get("weight", 1.0),
            slice=values.get("slice"),
        )


@dataclass(frozen=True, kw_only=True)
class Step:
    """One stage of a rollout."""

    weight_percent: int
    seconds: float
    """Shortest time at this weight."""


@dataclass(frozen=True, kw_only=True)
class HoldBack:
    """A probation in which the release that served before goes on answering a small part of the requests."""

    percent: int
    """Percent of requests that the former release answers, 1 to 5."""
    seconds: float
    """How long the probation lasts, at least."""

    def to_mapping(self) -> dict[str, Any]:
        """Return it as the configuration file writes it."""
        return {"percent": self.percent, "seconds": self.seconds}


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What a release without a champion must keep to be trusted."""

    failed: float | None = None
    """Highest share of requests that may fail; None for no limit."""
    wrong: float | None = None
    """Highest share of labelled requests that may be answered wrongly; None for no limit."""

    def to_mapping(self) -> dict[str, float]:
        """Return the limits as written, without what is absent."""
        values = {"failed": self.failed, "wrong": self.wrong}
        return {name: value for name, value in values.items() if value is not None}


@dataclass(frozen=True, kw_only=True)
class Shadow:
    """Requests that a candidate must answer before any user meets it."""

    requests: Literal["recorded", "evaluation"]
    """The last ones that the router kept, or the examples that releases are evaluated on."""
    count: int = 200
    """Most of them that are replayed."""
    minimum: int = 50
    """Fewest that must be comparable; with fewer there is no answer."""
    per_second: float = 20.0
    """How many are replayed in a second, at most."""
    failed: float = 0.0
    """Highest share that the candidate may fail to answer as the champion does."""
    disagreement: float | None = None
    """Highest share that may get another answer; None for any."""
    latency_ratio: float | None = None
    """How many times as long as the champion it may take; None for any."""

    def to_mapping(self) -> dict[str, Any]:
        """Return the section as the configuration file writes it."""
        limits = {"failed": self.failed, "disagreement": self.disagreement, "latencyRatio": self.latency_ratio}
        return {
            "requests": self.requests,
            "count": self.count,
            "minimum": self.minimum,
            "perSecond": self.per_second,
            "limits": {name: value for name, value in limits.items() if value is not None},
        }

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> "Shadow":
        """Return the section that a checked configuration file or a plan's mapping writes."""
        names = {"requests": "requests", "count": "count", "minimum": "minimum", "perSecond": "per_second"}
        limits = {"failed": "failed", "disagreement": "disagreement", "latencyRatio": "latency_ratio"}
        given = {field: values[key] for key, field in names.items() if key in values}
        return cls(**given, **{limits[key]: value for key, value in values.get("limits", {}).items()})


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How a release gets its traffic, and what judges it."""

    name: str
    steps: tuple[Step, ...]
    metrics: tuple[MetricRule, ...]
    alpha: float = 0.01
    """Chance of ever rolling back a release that is no worse, over the whole rollout."""
    dispersion: float | None = None
    """Long-run variance over binomial variance; None for the documented default."""
    early: bool = False
    """A step passes before its time is over when its own requests rule out every metric's effect."""
    noise_seconds: float = 0
    """How long, after the last step, two services of the new release share the traffic to measure its noise."""
    hold_back: HoldBack | None = None
    """The probation that follows the steps with a baseline of its own; None for one with late labels alone."""
    limits: Limits = field(default_factory=Limits)
    """What a first release must keep, as it has no baseline to be compared with."""
    insufficient_data: Policy = "wait"
    """What happens when a step's time is over without enough data: wait on, or hold for a person."""
    extend_seconds: float = 3600
    """How long a step may wait for data before it holds for a person."""
    maximum_age_seconds: float = 86_400
    """A rollout older than this is rolled back."""
    shadow: Shadow | None = None
    """Requests that are replayed to the candidate before any user meets it; None for none."""

    def to_mapping(self) -> dict[str, Any]:
        """Return the plan as plain values, as the configuration file writes it."""
        return {
            "name": self.name,
            "alpha": self.alpha,
            "steps": [{"weight": step.weight_percent, "seconds": step.seconds} for step in self.steps],
            "metrics": [rule.to_mapping() for rule in self.metrics],
            **({} if self.dispersion is None else {"dispersion": self.dispersion}),
            # Absent as before, so that older plans keep their digest.
            **({"early": True} if self.early else {}),
            **({"noiseSeconds": self.noise_seconds} if self.noise_seconds else {}),
            **({"holdBack": self.hold_back.to_mapping()} if self.hold_back else {}),
            "limits": self.limits.to_mapping(),
            "insufficientData": self.insufficient_data,
            "extendSeconds": self.extend_seconds,
            "maximumAgeSeconds": self.maximum_age_seconds,
            **({} if self.shadow is None else {"shadow": self.shadow.to_mapping()}),
        }

    @property
    def judged_steps(self) -> tuple[Step, ...]:
        """The steps, and the probation with a hold-back as the last of them."""
        return tuple(
            Step(weight_percent=one["weight"], seconds=one["seconds"]) for one in judged_steps(self.to_mapping())
        )

    @property
    def digest(self) -> Digest:
        """Digest of everything the plan says."""
        return Digest.of(canonical(self.to_mapping()))


def judged_steps(plan: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """Return the steps of a plan's mapping, and its probation with a hold-back as the last of them.

    What is held back answers beside the release as in any other step, so the same evidence grows, and rolls back.
    """
    steps, held = plan["steps"], plan.get("holdBack")
    return [*steps, {"weight": 100 - held["percent"], "seconds": held["seconds"]}] if held else steps


@dataclass(frozen=True, kw_only=True)
class FreezeWindow:
    """A time in which nothing is promoted; rollbacks are never frozen."""

    name: str
    start: datetime | None = None
    """With `end`: one window, aware."""
    end: datetime | None = None
    days: tuple[int, ...] = ()
    """With `after` and `before`: weekdays, Monday 0, UTC."""
    after: time | None = None
    before: time | None = None

    def covers(self, moment: datetime) -> bool:
        """Say whether `moment` (aware) lies in the window; its start is in, its end is not."""
        if self.start is not None and self.end is not None:
            return self.start <= moment < self.end
        after, before = self.after or time.min, self.before or time.max
        return moment.weekday() in self.days and after <= moment.time() < before


@dataclass(frozen=True, kw_only=True)
class ServiceLimit:
    """What a release that serves must keep, and what follows where it does not."""

    kind: MetricKind
    share: float
    """Highest share of requests that may fail, be slower than `seconds`, or be answered wrongly; between 0 and 1."""
    action: AlarmAction
    seconds: float | None = None
    """For latency: what a request may take; None elsewhere."""

    @property
    def name(self) -> str:
        """What tells its alarms from those of other limits of the environment."""
        return f"{self.kind}/{self.action}"

    def to_mapping(self) -> dict[str, Any]:
        """Return the limit as written."""
        seconds = {} if self.seconds is None else {"seconds": self.seconds}
        return {"kind": self.kind, **seconds, "share": self.share, "action": self.action}


@dataclass(frozen=True, kw_only=True)
class Monitoring:
    """How what serves is watched after promotion."""

    limits: tuple[ServiceLimit, ...]
    alpha: float = 0.01
    """Chance of ever raising an alarm on a release that keeps all limits, for as long as it serves."""
    dispersion: float | None = None
    """Long-run variance over binomial variance; None for that of the plan, or the documented default."""


@dataclass(frozen=True, kw_only=True)
class Environment:
    """One target of rollouts."""

    name: str
    namespace: str
    plan: Plan
    automatic: bool = True
    """Reconcile promotes new candidates by itself; else a person does."""
    write_mode: Literal["direct", "pull-request"] = "direct"
    """How a promotion reaches `main`: as a commit at once, or by a pull request that somebody merges."""
    approvals: int = 0
    """People who must approve a rollout before it starts."""
    freeze_windows: tuple[FreezeWindow, ...] = ()
    gates: tuple[Gate, ...] = ()
    """Minima of this environment; a model's own gates can only add to them."""
    evaluation_sets: Mapping[str, str] = field(default_factory=dict)
    """Digest of the evaluation set that a model must be evaluated on here, by the model's name."""
    probation_seconds: float = 86_400
    """How long a LIVE rollout is on probation before it is trusted."""
    proposal_seconds: float = 2_592_000
    """How long a rollout may wait for people before it is withdrawn."""
    start_seconds: float = 600
    """How long a canary may take to become ready before the rollout ends."""
    monitoring: Monitoring | None = None
    """What is watched after promotion; None for nothing."""
    expected_requests_per_second: float | None = None
    """What a model gets here, both arms together; for lint and simulations, None where nobody says."""

    @property
    def by_pull_request(self) -> bool:
        """Whether promotions are proposed by pull requests."""
        return self.write_mode == "pull-request"


@dataclass(frozen=True, kw_only=True)
class Owners:
    """Who must approve pull requests to the environment repository."""

    default: tuple[str, ...]
    """Of everything that no model's owners are named for."""
    models: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By the model's name."""


def _selector(metric: str) -> str:
    return metric + '{environment="$environment",model="$model",cohort=~"$cohort"}'


@dataclass(frozen=True, kw_only=True)
class PrometheusSource:
    """What a Prometheus server is asked: instant selectors of counters with the labels `cohort` and `arm`."""

    requests: str = _selector("mlgitops_requests_total")
    """Requests by `outcome`: `failed` is bad."""
    latency: str = _selector("mlgitops_request_seconds_bucket")
    """Cumulative buckets by `le`, in seconds."""
    labelled: str = _selector("mlgitops_labelled_total")
    """Requests whose label came, by `outcome`: `incorrect` is bad."""
    slice_requests: str = _selector("mlgitops_slice_requests_total")
    """The same as `requests`, of each slice, by the label `slice`; empty for nothing."""
    slice_latency: str = _selector("mlgitops_slice_request_seconds_bucket")
    """The same as `latency`, of each slice; empty for nothing."""
    slice_labelled: str = _selector("mlgitops_slice_labelled_total")
    """The same as `labelled`, of each slice; empty for nothing."""
    lines: str = "mlgitops_router_info"
    """What tells by its label `epoch` when a process began to count anew; empty for nothing."""
    same_process: tuple[str, ...] = ("prometheus", "prometheus_replica", "replica")
    """Labels in which two scrapers of one process differ."""
    lookback_seconds: int = 180_000
    """How far back is asked for: longer than a rollout and its labels take."""
    timeout_seconds: float = 10.0
    """For each answer."""


@dataclass(frozen=True, kw_only=True)
class MetricsSource:
    """Where counts of what users met come from."""

    source: Literal["engine", "prometheus", "command"] = "engine"
    """The embedded engine's own, a Prometheus server, or a command of whoever runs mlgitops."""
    prometheus: PrometheusSource = field(default_factory=PrometheusSource)


@dataclass(frozen=True, kw_only=True)
class Notification:
    """One address that is told what happens."""

    name: str
    variable: str
    """Environment variable of whoever reconciles that holds the address; it never stands in the repository."""
    events: tuple[NoticeKind, ...] = NOTICE_KINDS
    """What it is told."""
    environments: tuple[str, ...] = ()
    """Only of these; empty for all."""
    models: tuple[str, ...] = ()
    """Only of these; empty for all."""


@dataclass(frozen=True, kw_only=True)
class EnvironmentsConfiguration:
    """`environments.yaml`."""

    environments: tuple[Environment, ...]
    """In promotion order."""
    plans: tuple[Plan, ...] = ()
    """Every plan, also one that no environment follows."""
    training_namespace: str = "training"
    claim: str = "mlgitops-store"
    """Volume claim that data and models live in."""
    keep_releases: int = 10
    """Releases that `gc` lets keep everything per model, beside champions and last-good ones."""
    keep: Mapping[str, int] = field(default_factory=dict)
    """Newest releases per model that keep a kind of thing (`data`, `logs`, …); `keep_releases` for the others."""
    unused_seconds: float = 86_400.0
    """How long nobody may have used what a push in progress could use, before `gc` deletes it."""
    metrics: MetricsSource = field(default_factory=MetricsSource)
    owners: Owners | None = None
    """Who must approve changes; None where nobody in particular must."""
    notifications: tuple[Notification, ...] = ()

    def environment(self, name: str) -> Environment | None:
        """Return the environment of that name."""
        return next((one for one in self.environments if one.name == name), None)

    def before(self, name: str) -> Environment | None:
        """Return the environment in which a release must be trusted first; None for the first one."""
        names = [one.name for one in self.environments]
        position = names.index(name)
        return self.environments[position - 1] if position else None


def canonical(value: Any) -> bytes:
    """Return plain values as JSON with sorted keys and no spaces: the same values, the same bytes."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def fingerprint(value: Any) -> str:
    """Return the SHA-256 hex of `canonical(value)`."""
    return hashlib.sha256(canonical(value)).hexdigest()
