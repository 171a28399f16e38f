"""A ledger as weeks of work leave it: releases and rollouts in every outcome, made by the machines themselves."""

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

import numpy as np

from mlgitops.app import judging
from mlgitops.app.context import Context, View, World
from mlgitops.core import ledger as ledgers
from mlgitops.core import release as releases
from mlgitops.core import rollout as rollouts
from mlgitops.core.analysis.counts import Arm, Sample
from mlgitops.core.analysis.verdict import Verdict
from mlgitops.core.configuration import Environment
from mlgitops.core.events import Event, stamp
from mlgitops.core.ledger import EnvironmentState, Foreign, Hold, Ledger
from mlgitops.core.loading import load_environments
from mlgitops.core.manifest.fields import LEDGER, MAIN
from mlgitops.core.names import Digest
from mlgitops.core.release import Release, Submission
from mlgitops.core.rollout import Proposal, Rollout
from mlgitops.ports.observer import Silent
from mlgitops.ports.repository import Person
from tests.support.world import CONFIGURATION, ENVIRONMENTS

MODEL = "digits"
START = datetime(2026, 11, 30, 12, tzinfo=UTC)
MODEL_GATES = """\
  gates:
    - {metric: accuracy, minimum: 0.85}
    - {metric: log_loss, maximum: 0.6}
"""
Chances = tuple[float, float]
"""Chance of a failed request, and of a wrong answer."""


class Memory:
    """Two branches in memory, read as an environment repository is."""

    def __init__(self) -> None:
        self.files: dict[str, dict[str, bytes]] = {
            MAIN: {"environments.yaml": ENVIRONMENTS.encode()},
            LEDGER: dict(ledgers.first_files()),
        }

    def snapshot(self, ref: str) -> Any:
        files = self.files[ref]
        revision = Digest.of(json.dumps(sorted(files)).encode()).hex[:40]
        return SimpleNamespace(
            revision=revision,
            read=files.get,
            paths=lambda prefix="": tuple(sorted(path for path in files if path.startswith(prefix))),
        )

    def at(self, revision: str) -> Any:
        del revision
        return self.snapshot(MAIN)


@dataclass
class Story:
    """Tells a ledger's story, one event after another."""

    memory: Memory = field(default_factory=Memory)
    at: datetime = START
    chance: np.random.Generator = field(default_factory=lambda: np.random.default_rng(20261130))
    samples: list[Sample] = field(default_factory=list)

    @property
    def ledger(self) -> Ledger:
        snapshot = self.memory.snapshot(LEDGER)
        return Ledger(snapshot.read, snapshot.paths, snapshot.revision)

    @property
    def environment(self) -> Environment:
        return load_environments(ENVIRONMENTS.encode()).environments[0]

    @property
    def state(self) -> EnvironmentState:
        return self.ledger.state("production", MODEL)

    def context(self) -> Context:
        return cast(
            "Context",
            World(
                repository=cast("Any", self.memory),
                clock=cast("Any", SimpleNamespace(now=lambda: self.at)),
                person=Person(name="Ada", email="ada@example.org"),
                sleep=lambda _: None,
                observer=Silent(),
                cluster=cast("Any", None),
                serving=cast("Any", None),
                metrics=cast("Any", SimpleNamespace(samples=lambda *_: self.samples)),
                store=cast("Any", None),
                evaluator=cast("Any", None),
            ),
        )

    def put(self, write: Callable[[Ledger], None]) -> None:
        ledger = self.ledger
        write(ledger)
        self.memory.files[LEDGER].update({path: data for path, data in ledger.changes.items() if data is not None})

    def later(self, seconds: float) -> datetime:
        self.at += timedelta(seconds=seconds)
        return self.at

    # releases

    def push(self, code: str, **changes: Any) -> Release:
        """Submit a release."""
        digest = Digest.of(code.encode())
        every = self.ledger.releases(MODEL)
        draft = Submission(
            model=MODEL,
            code_digest=str(digest),
            data_digest=str(Digest.of(b"data")),
            specification_digest=str(Digest.of(b"specification")),
            sequence=len(every) + 1,
            cause=("code",) if every else ("first",),
            revision=digest.hex[:40],
            author="Ada Lovelace <ada@example.org>",
            subject=code,
            submitted_at=self.later(60),
            image=f"registry.local/digits@{digest}",
            image_tag=digest.short,
            variables={},
            artifact_uri="",
            evaluation_uri="pvc://mlgitops-store/evaluation/digits",
            evaluation_digest=str(Digest.of(b"evaluation")),
            configuration=CONFIGURATION + MODEL_GATES,
        )
        draft = dataclasses.replace(draft, **changes)
        uri = f"pvc://mlgitops-store/models/{MODEL}/{draft.identity.hex[:12]}"
        release = Release(submission=dataclasses.replace(draft, artifact_uri=uri))
        self.put(lambda ledger: ledger.put_release(release))
        return release

    def move(self, release: Release, *events: Callable[[datetime], Event], seconds: float = 2) -> Release:
        for event in events:
            release = releases.advance(release, event(self.later(seconds)))
        self.put(lambda ledger: ledger.put_release(release))
        return release

    def trained(
        self, code: str, *, epochs: int = 8, history: Sequence[Mapping[str, Any]] | None = None, **changes: Any
    ) -> Release:
        """Submit a release and train it."""
        release = self.push(code, **changes)
        release = self.move(release, lambda at: releases.Queued(at=at), lambda at: releases.TrainingStarted(at=at))
        began = self.at
        told = tuple(learnt(epochs) if history is None else history)

        def succeeded(at: datetime) -> Event:
            return releases.TrainingSucceeded(
                at=at,
                artifact_digest=str(Digest.of(code.encode() + b"model")),
                metrics={"accuracy": 0.97, "loss": 0.11},
                history=told,
                restarts=1,
                started_at=began.isoformat(),
                finished_at=at.isoformat(),
            )

        return self.move(release, succeeded, seconds=42)

    def candidate(self, code: str, accuracy: float = 0.95, **changes: Any) -> Release:
        """Submit, train and evaluate a release."""
        release = self.trained(code, **changes)
        key = f"{release.name}-own"
        self.put(lambda ledger: ledger.put_report(MODEL, key, evaluation_report(key, accuracy)))
        return self.move(release, lambda at: releases.EvaluationPassed(at=at, report=key))

    # rollouts

    def propose(self, release: str, by: str = "mlgitops <mlgitops@localhost>", forced: str = "") -> Rollout:
        state = self.state
        plan = self.environment.plan
        return self.keep(
            Rollout(
                proposal=Proposal(
                    number=state.last_number + 1,
                    environment="production",
                    model=MODEL,
                    release=release,
                    plan=plan.to_mapping(),
                    plan_digest=str(plan.digest),
                    champion=state.live.number if state.live else None,
                    by=by,
                    revision=Digest.of(f"promotion of {release}".encode()).hex[:40],
                    proposed_at=self.later(5),
                    forced=forced,
                )
            )
        )

    def keep(self, rollout: Rollout, **changes: Any) -> Rollout:
        state = dataclasses.replace(self.state.with_rollout(rollout), **changes)
        self.put(lambda ledger: ledger.put_state(state))
        return rollout

    def step(self, rollout: Rollout, event: Callable[[datetime], Event], seconds: float = 1) -> Rollout:
        return self.keep(rollouts.advance(rollout, event(self.later(seconds))))

    def compared(self, rollout: Rollout, accuracy: float, champion: float = 0.95) -> str:
        key = f"{rollout.release}-{rollout.number}"
        self.put(lambda ledger: ledger.put_report(MODEL, key, evaluation_report(key, accuracy, champion)))
        return key

    def first(self, release: Release) -> Rollout:
        """Bring the first release into the environment."""
        rollout = self.propose(release.name)
        rollout = self.step(rollout, lambda at: rollouts.Authorised(at=at, report=release.report or ""), 3)
        rollout = self.step(rollout, lambda at: rollouts.ServingAll(at=at), 4)
        return self.step(rollout, lambda at: rollouts.Trusted(at=at), 60)

    def start(self, release: str, accuracy: float = 0.96, **changes: Any) -> Rollout:
        """Propose, authorise and start a canary; the first split is observed."""
        rollout = self.propose(release, **changes)
        key = self.compared(rollout, accuracy)
        rollout = self.step(rollout, lambda at: rollouts.Authorised(at=at, report=key), 2)
        self.samples = []
        rollout = self.step(rollout, lambda at: rollouts.CanaryReady(at=at), 3)
        return self.step(rollout, lambda at: rollouts.SplitObserved(at=at))

    def traffic(self, rollout: Rollout, canary: Chances, baseline: Chances = (0.002, 0.05), seconds: int = 12) -> None:
        """Let users meet both arms, and count."""
        weight = rollout.proposal.weights[rollout.step]
        cohort = f"{rollout.number}-{rollout.step + 1}"
        totals = {arm: np.zeros(4, dtype=int) for arm in Arm}
        for _ in range(seconds):
            at = self.later(1)
            for arm, share, chances in ((Arm.CANARY, weight, canary), (Arm.BASELINE, 100 - weight, baseline)):
                total = int(self.chance.binomial(1500, share / 100))
                failed, wrong = (int(self.chance.binomial(total, chance)) for chance in chances)
                totals[arm] += (total, failed, total, wrong)
                counts: dict[str, Any] = dict(zip(_COUNTS, map(int, totals[arm]), strict=True))
                self.samples.append(Sample(at=at, cohort=cohort, arm=arm, **counts))

    def decide(self, rollout: Rollout) -> tuple[str, Verdict]:
        """Judge, and keep the record."""
        world = cast("World", self.context())
        verdict = judging.judge(world, rollout)
        record = judging.record(world, cast("View", SimpleNamespace(ledger=self.ledger)), rollout, verdict)
        self.put(lambda ledger: ledger.put_decision("production", MODEL, record.name, record.values, record.words))
        return record.name, verdict

    def passes(self, rollout: Rollout, canary: Chances, steps: int = 3) -> Rollout:
        """Pass some of the steps."""
        for _ in range(steps):
            self.traffic(rollout, canary)
            name, _ = self.decide(rollout)
            if rollout.step + 1 < len(rollout.proposal.weights):
                rollout = self.step(rollout, lambda at, name=name: rollouts.StepPassed(at=at, decision=name), 0.2)  # type: ignore[misc]
                rollout = self.step(rollout, lambda at: rollouts.SplitObserved(at=at))
            else:
                rollout = self.step(rollout, lambda at, name=name: rollouts.LastStepPassed(at=at, decision=name), 0.2)  # type: ignore[misc]
        return rollout

    def complete(self, rollout: Rollout) -> Rollout:
        for _ in range(3):
            rollout = self.step(rollout, lambda at: rollouts.PartReached(at=at))
        former = self.state.live
        rollout = self.step(rollout, lambda at: rollouts.ServingAll(at=at))
        if former is not None:
            self.step(former, lambda at: rollouts.Retired(at=at, by_rollout=rollout.number), 0)
        return rollout

    def back(self, rollout: Rollout, by: str = "mlgitops", reason: str | None = None) -> Rollout:
        """Roll back: by the judge's verdict, or by a person for a reason."""
        name = ""
        if reason is None:
            name, verdict = self.decide(rollout)
            reason = verdict.words
        serving = rollout.was_serving_all
        good = self.state.last_good(rollout.number) if serving else self.state.live
        target = good.number if good else None
        event = rollouts.RollbackDecided(at=self.later(0.3), by=by, reason=reason, target=target, decision=name)
        hold = Hold(by=by, reason=f"release {rollout.release} was rolled back: {reason}", at=stamp(self.at))
        rollout = self.keep(rollouts.advance(rollout, event), hold=hold)
        if not serving:
            rollout = self.step(rollout, lambda at: rollouts.PartReached(at=at), 0.9)
        rollout = self.step(rollout, lambda at: rollouts.RolledBack(at=at), 1.2)
        if serving and good is not None:
            self.step(good, lambda at: rollouts.Restored(at=at, instead_of=rollout.number), 0)
        return rollout


_COUNTS = ("total", "failed", "labelled", "incorrect")


def learnt(epochs: int) -> list[dict[str, float]]:
    """Return the history of a training that goes well."""
    return [
        {
            "epoch": epoch,
            "loss": round(0.08 + 1.6 * 0.6**epoch, 5),
            "accuracy": round(0.985 - 0.5 * 0.6**epoch, 5),
            "val_loss": round(0.14 + 1.5 * 0.62**epoch, 5),
            "val_accuracy": round(0.965 - 0.5 * 0.62**epoch, 5),
            "seconds": 1.25,
        }
        for epoch in range(1, epochs + 1)
    ]


def evaluation_report(key: str, accuracy: float, champion: float | None = None) -> dict[str, Any]:
    """Return an evaluation report as the evaluator writes it, of a classifier of ten classes."""
    candidate = _measured(accuracy)
    values: dict[str, Any] = {
        "apiVersion": "mlgitops.dev/v1",
        "kind": "EvaluationReport",
        "key": key,
        "createdAt": "2026-11-30T12:00:00+00:00",
        "task": "classification",
        "data": {"uri": "pvc://mlgitops-store/evaluation/x", "digest": str(Digest.of(b"evaluation")), "examples": 540},
        "confidence": 0.95,
        "candidate": {"uri": "x", "metrics": candidate, "slices": {"thin": {"examples": 80, "metrics": candidate}}},
        "champion": None,
        "comparison": None,
        "selfReported": None,
        "probe": {"protocol": "v1", "status": 200, "milliseconds": 3.1, "shape": [10]},
    }
    if champion is not None:
        other = _measured(champion)
        pairs = {name: _pair(candidate[name], other[name]) for name in candidate}
        values["champion"] = {"uri": "y", "metrics": other, "slices": {"thin": {"examples": 80, "metrics": other}}}
        values["comparison"] = {"metrics": pairs, "slices": {"thin": {"examples": 80, "metrics": pairs}}}
    return values


def _measured(accuracy: float) -> dict[str, dict[str, Any]]:
    shares = {"accuracy": accuracy, "macro_f1": accuracy - 0.004}
    shares |= {f"recall:{digit}": min(1.0, accuracy - 0.02 + digit * 0.005) for digit in range(10)}
    found = {name: _metric(value, 0.018, "higher") for name, value in shares.items()}
    found["log_loss"] = _metric(1.35 - 1.3 * accuracy, 0.05, "lower")
    found["calibration_error"] = _metric(0.021, 0.006, "lower")
    return found


def _metric(value: float, half: float, better: str) -> dict[str, Any]:
    return {"value": value, "low": value - half, "high": min(value + half, 1.0), "method": "wilson", "better": better}


def _pair(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    difference = one["value"] - other["value"]
    half = (one["high"] - one["low"]) * 0.6
    return {
        "difference": difference,
        "low": difference - half,
        "high": difference + half,
        "method": "newcombe-paired",
        "better": one["better"],
    }


def every_outcome() -> Story:
    """Tell a story with each way that releases and rollouts end."""
    story = Story()
    base = story.candidate("Add a model of digits")
    story.first(base)
    better = story.candidate("Train a wider network", 0.965)
    story.later(1800)
    story.complete(story.passes(story.start(better.name, 0.965), (0.002, 0.035)))
    story.later(70)
    story.step(story.state.rollouts[2], lambda at: rollouts.Trusted(at=at))
    story.later(900)
    skewed = story.candidate(
        "Scale inputs by 255 twice in the server", 0.968, author="Grace Hopper <grace@example.org>"
    )
    rollout = story.passes(story.start(skewed.name, 0.968, by="Grace Hopper <grace@example.org>"), (0.002, 0.045), 1)
    story.traffic(rollout, (0.004, 0.16), seconds=6)
    story.back(rollout)
    story.later(600)
    worse = story.candidate("Halve the layers", 0.87)
    refused = story.propose(worse.name, by="Grace Hopper <grace@example.org>")
    key = story.compared(refused, 0.87, 0.965)
    reason = "accuracy is 0.095 worse than the champion's; at most 0.02 worse is allowed"
    story.step(refused, lambda at: rollouts.Refused(at=at, reason=reason, report=key))
    _endings(story)
    story.later(300)
    forced = story.start(skewed.name, 0.968, by="Ada Lovelace <ada@example.org>", forced="the server is mended now")
    story.complete(story.passes(forced, (0.002, 0.04)))
    story.later(400)
    story.back(story.state.rollouts[forced.number], "Ada Lovelace <ada@example.org>", "users complain about sevens")
    story.later(500)
    third = story.candidate("Augment with rotations", 0.97)
    story.passes(story.start(third.name, 0.97), (0.002, 0.03), 1)
    story.later(4)
    return story


def _endings(story: Story) -> None:
    """Let releases end in every way that is no candidate, and rollouts before anything moved."""
    queued = (lambda at: releases.Queued(at=at), lambda at: releases.TrainingStarted(at=at))
    broken = story.move(story.push("Import a module that is not there"), *queued)
    story.move(broken, lambda at: releases.Failed(at=at, reason="training ended Error: ModuleNotFoundError"))
    lost = story.move(story.push("Lose the evaluation set"), *queued[:1])
    story.move(lost, lambda at: releases.Errored(at=at, reason="the store cannot be reached"))
    stopped = story.push("Train for a year")
    by = "Ada Lovelace <ada@example.org>"
    story.move(stopped, *queued, lambda at: releases.Aborted(at=at, by=by, reason="too long"))
    refused = story.candidate("Use data that must not be used", 0.99)
    story.move(refused, lambda at: releases.Rejected(at=at, by=by, reason="its data was never ours"))
    low = story.trained("Shuffle the labels", epochs=1)
    key = f"{low.name}-own"
    story.put(lambda ledger: ledger.put_report(MODEL, key, evaluation_report(key, 0.3)))
    story.move(low, lambda at: releases.Failed(at=at, reason="accuracy is 0.3, below the minimum 0.85", report=key))
    one = story.propose(refused.name)
    story.step(one, lambda at: rollouts.Withdrawn(at=at, by=by, reason="asked for by hand"))
    two = story.propose("0123456789ab")
    story.step(two, lambda at: rollouts.Refused(at=at, reason=f"there is no release {two.release} of {MODEL}"))
    three = story.propose(refused.name)
    story.step(three, lambda at: rollouts.Errored(at=at, reason="the evaluation gave no report"))
    story.push("Wait for a turn")


def hand_made_change(story: Story) -> None:
    """Let somebody edit `main` by hand."""
    difference = f"environments/production/{MODEL}/route.yaml: weight is 30, not 10"
    foreign = Foreign(revision="f" * 40, by="Mallory <m@example.org>", differences=(difference,), at=stamp(story.at))
    state = dataclasses.replace(story.state, foreign=foreign)
    story.put(lambda ledger: ledger.put_state(state))
