"""A world that obeys `main` at once: real git, and an engine that serves what is written."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from mlgitops.adapters.repository.bare import init_bare
from mlgitops.adapters.repository.git import open_repository
from mlgitops.app.context import Context, View, World, look
from mlgitops.app.reconciling import Pass, reconcile
from mlgitops.core import ledger as ledgers
from mlgitops.core.configuration import MetricsSource
from mlgitops.core.errors import NotFound, Unavailable
from mlgitops.core.ledger import EnvironmentState
from mlgitops.core.manifest import owned
from mlgitops.core.manifest.fields import LEDGER, MAIN
from mlgitops.core.names import Digest
from mlgitops.core.release import Release, Submission
from mlgitops.ports.cluster import Applied, JobObservation, JobPhase, LogPart
from mlgitops.ports.evaluator import EvaluationOutcome, EvaluationRequest
from mlgitops.ports.metrics import Sample
from mlgitops.ports.observer import Silent
from mlgitops.ports.repository import Change, Person, Repository
from mlgitops.ports.serving import Arm, Replayed, ReplayRequest, ServiceObservation, ServingObservation
from tests.support.memory import MemoryRepository

MODEL = "digits"
FOLDER = f"environments/production/{MODEL}"
IDENTITY = Person(name="mlgitops", email="m@x")
START = datetime(2026, 11, 30, 12, tzinfo=UTC)
ENVIRONMENTS = """\
apiVersion: mlgitops.dev/v1
kind: Environments
environments:
  - name: production
    namespace: production
    plan: quick
    probationSeconds: 60
    gates:
      - metric: accuracy
        minimum: 0.5
      - metric: accuracy
        maximumLoss: 0.02
plans:
  - name: quick
    alpha: 0.01
    dispersion: 1.0
    steps:
      - {weight: 10, seconds: 10}
      - {weight: 50, seconds: 10}
      - {weight: 95, seconds: 10}
    metrics:
      - {kind: errors, effect: 3}
      - {kind: labels, effect: 3}
    insufficientData: wait
    extendSeconds: 600
    maximumAgeSeconds: 86400
"""
CONFIGURATION = """\
apiVersion: mlgitops.dev/v1
kind: Model
metadata:
  name: digits
inputs: [train.py]
data:
  - path: data/train.npz
requirements: requirements.txt
image:
  builder: embedded
  repository: digits
training:
  script: train.py
  replicas: {chief: 1, worker: 1}
evaluation:
  data: data/evaluation.npz
  task: classification
  inputs: x
  labels: 'y'
"""


class Clock:
    """Time that tests move."""

    def __init__(self) -> None:
        self.time = START

    def now(self) -> datetime:
        self.time += timedelta(milliseconds=10)
        return self.time

    def pass_seconds(self, seconds: float) -> None:
        self.time += timedelta(seconds=seconds)


@dataclass
class Quality:
    """How a release behaves."""

    accuracy: float = 0.95
    wrong: float = 0.05
    failed: float = 0.001
    trains: bool = True
    replayed: Replayed | None = None
    """What replays to it find; None while they go on."""


@dataclass
class Engine:
    """Trains, evaluates, serves and counts, exactly as `main` says."""

    repository: Repository
    clock: Clock
    qualities: dict[str, Quality] = field(default_factory=dict)
    trained: list[str] = field(default_factory=list)
    broken: bool = False
    """A canary never becomes ready."""
    requests: int = 40_000
    jobs: dict[str, JobPhase] = field(default_factory=dict)
    canary_share: float | None = None
    """Share of the requests that the canary really gets; None for what `main` says."""
    metrics_problem: str = ""
    """Why the source of metrics could judge nothing."""
    served: dict[int, list[Sample]] = field(default_factory=dict)
    """Counts of rollouts that serve everything, by number, beside those of their steps."""
    metrics_down: bool = False
    """Nobody can say what users met."""
    slow_evaluations: int = 0
    """Times that an evaluation is not ready yet when it is asked for."""
    evaluation_error: str = ""
    """Why evaluations give no answer."""
    evaluated: dict[str, EvaluationOutcome] = field(default_factory=dict)
    """How evaluations went, by key: each runs once."""
    evaluation_sets: list[str] = field(default_factory=list)
    """What evaluations that ran read, in order."""
    trains_at_once: bool = True
    """Jobs that start end at once; else they run until `finish`."""
    deleted: list[str] = field(default_factory=list)
    counted: list[Sample] = field(default_factory=list)
    """What else users met; of each rollout, the samples of its cohorts."""
    replays: list[ReplayRequest] = field(default_factory=list)
    """What was asked to be replayed, each key once."""

    def quality(self, release: str) -> Quality:
        return self.qualities.setdefault(release, Quality())

    # cluster
    def job(self, environment: str, name: str) -> JobObservation | None:
        self.train()
        if name not in self.jobs:
            return None
        return JobObservation(name=name, phase=self.jobs[name], reason="Error", started_at=START, result={})

    def train(self) -> None:
        """Start what `main` lists, as an engine does."""
        main = self.repository.snapshot(MAIN)
        for path in main.paths("environments/training"):
            folder, _, name = path.rpartition("/")
            listing = main.read(f"{folder}/kustomization.yaml")
            data = main.read(path)
            if name != "tfjob.yaml" or data is None or listing is None:
                continue
            if name in owned.listed_resources(listing, "k"):
                self._start(owned.read_tfjob(data, "t"))

    def _start(self, fields: owned.TrainingFields) -> None:
        job = f"{fields.model}-{fields.release}"
        if job not in self.jobs:
            self.trained.append(fields.release)
            self.jobs[job] = JobPhase.RUNNING
            if self.trains_at_once:
                self.finish(job)

    def finish(self, job: str) -> None:
        """End a job."""
        good = self.quality(job.rpartition("-")[2]).trains
        self.jobs[job] = JobPhase.SUCCEEDED if good else JobPhase.FAILED

    def logs(self, environment: str, name: str) -> Mapping[str, bytes]:
        return {f"{name}-chief-0": b"trained\n"}

    def log_parts(self, environment: str, name: str, after: Mapping[str, int]) -> Mapping[str, Sequence[LogPart]]:
        return {
            pod: [LogPart(position=after.get(pod, 0), data=log[after.get(pod, 0) :])]
            for pod, log in self.logs(environment, name).items()
        }

    def applied(self, environment: str) -> Applied:
        return Applied(revision=self.repository.snapshot(MAIN).revision)

    def sync(self) -> None:
        pass

    # serving
    def observe(self, environment: str, model: str) -> ServingObservation:
        main = self.repository.snapshot(MAIN)
        folder = f"environments/{environment}/{model}"
        route = main.read(f"{folder}/route.yaml")
        fields = owned.read_route(route, "r") if route else None
        return ServingObservation(
            baseline=self._service(main.read(f"{folder}/inferenceservice.yaml")),
            canary=self._service(main.read(f"{folder}/inferenceservice-canary.yaml")),
            weight_percent=fields.canary_weight_percent if fields else None,
            cohort=fields.cohort if fields else None,
        )

    def _service(self, data: bytes | None) -> ServiceObservation | None:
        if data is None:
            return None
        fields = owned.read_service(data, "s")
        return ServiceObservation(
            ready=not (self.broken and fields.name.endswith("-canary")),
            serving=True,
            storage_uri=fields.storage_uri,
            artifact_digest=fields.artifact_digest,
            release=fields.release,
            message="it does not load" if self.broken else "",
        )

    def predict(self, environment: str, model: str, arm: Arm, body: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"predictions": []}

    def replay(self, request: ReplayRequest) -> Replayed | None:
        if request.key not in [one.key for one in self.replays]:
            self.replays.append(request)
            return None
        canary = self.observe(request.environment, request.model).canary
        assert canary is not None
        assert canary.artifact_digest == request.canary_digest
        return self.quality(canary.release or "").replayed

    # metrics
    def using(self, source: MetricsSource) -> "Engine":
        return self

    def problem(self, environment: str, model: str) -> str:
        return self.metrics_problem

    def samples(self, environment: str, model: str, rollout: int) -> Sequence[Sample]:
        if self.metrics_down:
            raise Unavailable("prometheus", "nobody answers")
        return [*self._rolling(environment, model, rollout), *self.served.get(rollout, [])]

    def _rolling(self, environment: str, model: str, rollout: int) -> list[Sample]:
        state = self._state(environment, model)
        one = state.rollouts[rollout]
        if one.proposal.champion is None:
            quality = self.quality(one.release)
            return [
                self._sample(f"{rollout}-0", 0, Arm.BASELINE, quality, self.requests, part) for part in (0.0, 0.5, 1.0)
            ]
        champion = state.rollouts[one.proposal.champion].release
        rows: list[Sample] = []
        for step, weight in enumerate(one.proposal.weights[: one.step + 1], start=1):
            given = weight if self.canary_share is None else int(100 * self.canary_share)
            for arm, release, share in ((Arm.CANARY, one.release, given), (Arm.BASELINE, champion, 100 - given)):
                quality, total = self.quality(release), self.requests * share // 100
                rows += [self._sample(f"{rollout}-{step}", step, arm, quality, total, part) for part in (0.0, 0.5, 1.0)]
        return [*rows, *(sample for sample in self.counted if sample.cohort.startswith(f"{rollout}-"))]

    def _sample(self, cohort: str, step: int, arm: Arm, quality: Quality, total: int, part: float) -> Sample:
        return Sample(
            at=START + timedelta(seconds=step * 10 + part),
            cohort=cohort,
            arm=arm,
            total=int(total * part),
            failed=int(total * part * quality.failed),
            labelled=int(total * part),
            incorrect=int(total * part * quality.wrong),
        )

    def _state(self, environment: str, model: str) -> EnvironmentState:
        snapshot = self.repository.snapshot(LEDGER)
        return ledgers.Ledger(snapshot.read, snapshot.paths, snapshot.revision).state(environment, model)

    # store
    def put(self, source: Path, folder: str) -> tuple[str, Digest]:
        raise AssertionError

    def uri(self, path: str) -> str:
        return f"pvc://mlgitops-store/{path}"

    def path(self, uri: str) -> Path:
        raise NotFound("artifact", uri)

    def digest(self, uri: str) -> Digest:
        return Digest.of(uri.encode())

    def paths(self, folder: str) -> tuple[str, ...]:
        trained = self.trained if folder.startswith("models/") else ()
        every = (self.uri(f"{folder}/{release}") for release in trained)
        return tuple(sorted({*every} - {*self.deleted}))

    def size_bytes(self, uri: str) -> int:
        return 1

    def delete(self, uri: str, *, unless_used_since: datetime | None = None) -> int:
        self.deleted.append(uri)
        return 1

    def sweep(self, *, unless_used_since: datetime) -> None:
        pass

    # evaluator
    def evaluate(self, request: EvaluationRequest) -> EvaluationOutcome | None:
        if self.slow_evaluations:
            self.slow_evaluations -= 1
            return None
        if request.key not in self.evaluated:
            self.evaluation_sets.append(request.data_uri)
            self.evaluated[request.key] = self._evaluate(request)
        return self.evaluated[request.key]

    def _evaluate(self, request: EvaluationRequest) -> EvaluationOutcome:
        if self.evaluation_error:
            return EvaluationOutcome(report=None, error=self.evaluation_error)
        release = request.candidate_uri.rpartition("/")[2]
        champion = request.champion_uri.rpartition("/")[2] if request.champion_uri else None
        return EvaluationOutcome(report=report(self.quality(release), self.quality(champion) if champion else None))


def report(candidate: Quality, champion: Quality | None) -> dict[str, Any]:
    """Return an evaluation report as far as gates read it."""
    values = {
        "confidence": 0.95,
        "candidate": {"metrics": {"accuracy": _metric(candidate.accuracy)}, "slices": {}},
        "champion": None,
        "comparison": None,
    }
    if champion is not None:
        difference = candidate.accuracy - champion.accuracy
        pair = {"difference": difference, "low": difference - 0.02, "high": difference + 0.02, "better": "higher"}
        values["champion"] = {"metrics": {"accuracy": _metric(champion.accuracy)}, "slices": {}}
        values["comparison"] = {"metrics": {"accuracy": pair}, "slices": {}}
    return values


def _metric(value: float) -> dict[str, float]:
    return {"value": value, "low": value - 0.02, "high": value + 0.02}


def world_of(
    tmp_path: Path, person: str = "Ada", *, environments: str = ENVIRONMENTS, repository: Repository | None = None
) -> tuple[World, Engine]:
    """Return a world on a fresh environment repository; a real one at `tmp_path` unless one is given."""
    if repository is None:
        path = tmp_path / "environment.git"
        fresh = not path.exists()
        if fresh:
            init_bare(path)
        repository = open_repository(str(path), identity=IDENTITY, cache=tmp_path / "c")
    else:
        fresh = repository.snapshot(MAIN).revision is None
    if fresh:
        repository.create(
            {
                MAIN: Change(message="init", files={"environments.yaml": environments.encode()}),
                LEDGER: Change(message="init", files=ledgers.first_files()),
            }
        )
    engine = Engine(repository=repository, clock=Clock())
    return seen_by(engine, repository, person), engine


def quick_world(environments: str = ENVIRONMENTS) -> tuple[World, Engine]:
    """Return a world on a repository in memory."""
    return world_of(Path(), environments=environments, repository=MemoryRepository(IDENTITY))


def seen_by(engine: Engine, repository: Repository, person: str = "Ada") -> World:
    """Return the world as one process sees it: the same engine, its own way to the repository."""
    return World(
        repository=repository,
        clock=engine.clock,
        person=Person(name=person, email=f"{person.lower()}@example.org"),
        sleep=lambda _: None,
        observer=Silent(),
        cluster=engine,
        serving=engine,
        metrics=engine,
        store=engine,
        evaluator=engine,
    )


def push(
    context: Context,
    code: str,
    data: str = "data",
    *,
    quality: Quality | None = None,
    engine: Engine,
    model: str = MODEL,
    configuration: str = CONFIGURATION,
    specification: str = "spec",
    attempt: int = 1,
    evaluation: str = "evaluation",
) -> Release:
    """Submit a release as `mlgitops train` does, without building anything."""
    from mlgitops.app import submitting

    draft = Submission(
        model=model,
        code_digest=str(Digest.of(code.encode())),
        data_digest=str(Digest.of(data.encode())),
        specification_digest=str(Digest.of(specification.encode())),
        attempt=attempt,
        sequence=0,
        cause=(),
        revision=Digest.of(code.encode()).hex[:40],
        author="Ada <ada@example.org>",
        subject=f"code {code}",
        submitted_at=context.clock.now(),
        image=f"digits@{Digest.of(code.encode())}",
        image_tag="tag",
        variables={"MLGITOPS_DATA_URI": "pvc://mlgitops-store/data/x"},
        artifact_uri="",
        evaluation_uri=f"pvc://mlgitops-store/evaluation/{evaluation}",
        evaluation_digest=str(Digest.of(evaluation.encode())),
        configuration=configuration.replace("name: digits", f"name: {model}"),
    )
    import dataclasses

    name = draft.identity.hex[:12]
    draft = dataclasses.replace(draft, artifact_uri=f"pvc://mlgitops-store/models/{model}/{name}")
    if quality is not None:
        engine.qualities[name] = quality
    return submitting._record(context, draft)


def settle(world: World, engine: Engine, seconds: float = 0, *, passes: int = 12) -> list[Pass]:
    """Reconcile until nothing moves, letting `seconds` go by before each pass."""
    done: list[Pass] = []
    for _ in range(passes):
        engine.clock.pass_seconds(seconds)
        done.append(reconcile(world))
        if len(done) > 1 and not any(one.moves or one.problems for one in done[-2:]):
            break
    return done


def state_of(context: Context, environment: str = "production", model: str = MODEL) -> EnvironmentState:
    return look(context).ledger.state(environment, model)


def live(
    world: World, engine: Engine, code: str, quality: Quality, *, model: str = MODEL, trusted: bool = False
) -> str:
    """Bring a release all the way; returns its name."""
    release = push(world, code, quality=quality, engine=engine, model=model)
    settle(world, engine, 15)
    assert state_of(world, model=model).champion == release.name
    if trusted:
        settle(world, engine, 61, passes=2)
        assert (found := state_of(world, model=model).live) is not None
        assert found.trusted
    return release.name


def view_of(context: Context) -> View:
    return look(context)
