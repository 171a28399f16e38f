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
from mlgitops.core.errors import NotFound
from mlgitops.core.ledger import EnvironmentState
from mlgitops.core.manifest import owned
from mlgitops.core.manifest.fields import LEDGER, MAIN
from mlgitops.core.names import Digest
from mlgitops.core.release import Release, Submission
from mlgitops.ports.cluster import Applied, JobObservation, JobPhase
from mlgitops.ports.evaluator import EvaluationOutcome, EvaluationRequest
from mlgitops.ports.metrics import Sample
from mlgitops.ports.observer import Silent
from mlgitops.ports.repository import Change, Person, Repository
from mlgitops.ports.serving import Arm, ServiceObservation, ServingObservation

MODEL = "digits"
FOLDER = f"environments/production/{MODEL}"
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

    def quality(self, release: str) -> Quality:
        return self.qualities.setdefault(release, Quality())

    # cluster
    def job(self, environment: str, name: str) -> JobObservation | None:
        main = self.repository.snapshot(MAIN)
        folder = f"environments/training/{MODEL}"
        listing = main.read(f"{folder}/kustomization.yaml")
        listed = listing is not None and "tfjob.yaml" in owned.listed_resources(listing, "k")
        data = main.read(f"{folder}/tfjob.yaml")
        if data is not None and listed:
            fields = owned.read_tfjob(data, "t")
            job = f"{MODEL}-{fields.release}"
            if job not in self.jobs:
                self.trained.append(fields.release)
                self.jobs[job] = JobPhase.SUCCEEDED if self.quality(fields.release).trains else JobPhase.FAILED
        if name not in self.jobs:
            return None
        return JobObservation(name=name, phase=self.jobs[name], reason="Error", started_at=START, result={})

    def logs(self, environment: str, name: str) -> Mapping[str, bytes]:
        return {f"{name}-chief-0": b"trained\n"}

    def applied(self, environment: str) -> Applied:
        return Applied(revision=self.repository.snapshot(MAIN).revision)

    def sync(self) -> None:
        pass

    # serving
    def observe(self, environment: str, model: str) -> ServingObservation:
        main = self.repository.snapshot(MAIN)
        route = main.read(f"{FOLDER}/route.yaml")
        fields = owned.read_route(route, "r") if route else None
        return ServingObservation(
            baseline=self._service(main.read(f"{FOLDER}/inferenceservice.yaml")),
            canary=self._service(main.read(f"{FOLDER}/inferenceservice-canary.yaml")),
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

    # metrics
    def samples(self, environment: str, model: str, rollout: int) -> Sequence[Sample]:
        state = self._state()
        one = state.rollouts[rollout]
        if one.proposal.champion is None:
            return ()
        champion = state.rollouts[one.proposal.champion].release
        rows = []
        for step, weight in enumerate(one.proposal.weights[: one.step + 1], start=1):
            for arm, release, share in ((Arm.CANARY, one.release, weight), (Arm.BASELINE, champion, 100 - weight)):
                quality, total = self.quality(release), self.requests * share // 100
                rows += [self._sample(f"{rollout}-{step}", step, arm, quality, total, part) for part in (0.0, 0.5, 1.0)]
        return rows

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

    def _state(self) -> EnvironmentState:
        snapshot = self.repository.snapshot(LEDGER)
        return ledgers.Ledger(snapshot.read, snapshot.paths, snapshot.revision).state("production", MODEL)

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
        return ()

    def delete(self, uri: str) -> int:
        return 0

    # evaluator
    def evaluate(self, request: EvaluationRequest) -> EvaluationOutcome | None:
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


def world_of(tmp_path: Path, person: str = "Ada") -> tuple[World, Engine]:
    """Return a world on a fresh environment repository."""
    path = tmp_path / "environment.git"
    if not path.exists():
        init_bare(path)
        first = open_repository(str(path), identity=Person(name="mlgitops", email="m@x"), cache=tmp_path / "c")
        first.create(
            {
                MAIN: Change(message="init", files={"environments.yaml": ENVIRONMENTS.encode()}),
                LEDGER: Change(message="init", files=ledgers.first_files()),
            }
        )
    repository = open_repository(str(path), identity=Person(name="mlgitops", email="m@x"), cache=tmp_path / "c")
    clock = Clock()
    engine = Engine(repository=repository, clock=clock)
    world = World(
        repository=repository,
        clock=clock,
        person=Person(name=person, email=f"{person.lower()}@example.org"),
        sleep=lambda _: None,
        observer=Silent(),
        cluster=engine,
        serving=engine,
        metrics=engine,
        store=engine,
        evaluator=engine,
    )
    return world, engine


def push(context: Context, code: str, data: str = "data", *, quality: Quality | None = None, engine: Engine) -> Release:
    """Submit a release as `mlgitops train` does, without building anything."""
    from mlgitops.app import submitting

    draft = Submission(
        model=MODEL,
        code_digest=str(Digest.of(code.encode())),
        data_digest=str(Digest.of(data.encode())),
        specification_digest=str(Digest.of(b"spec")),
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
        evaluation_uri="pvc://mlgitops-store/evaluation/x",
        evaluation_digest=str(Digest.of(b"evaluation")),
        configuration=CONFIGURATION,
    )
    import dataclasses

    name = draft.identity.hex[:12]
    draft = dataclasses.replace(draft, artifact_uri=f"pvc://mlgitops-store/models/{MODEL}/{name}")
    if quality is not None:
        engine.qualities[name] = quality
    recorded = submitting._record(context, draft, new=True)
    assert recorded is not None
    return recorded


def settle(world: World, engine: Engine, seconds: float = 0, *, passes: int = 12) -> list[Pass]:
    """Reconcile until nothing moves, letting `seconds` go by before each pass."""
    done: list[Pass] = []
    for _ in range(passes):
        engine.clock.pass_seconds(seconds)
        done.append(reconcile(world))
        if len(done) > 1 and not any(one.moves or one.problems for one in done[-2:]):
            break
    return done


def state_of(context: Context) -> EnvironmentState:
    return look(context).ledger.state("production", MODEL)


def view_of(context: Context) -> View:
    return look(context)
