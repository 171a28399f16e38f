"""Whoever may push to one model's repository decides about that model alone, and not about the rules that bind it."""

import dataclasses
from pathlib import Path

import pytest

from mlgitops.adapters.source.checkout import Checkout
from mlgitops.app import deciding, rollbacks, submitting
from mlgitops.app.absorbing import waiting_for
from mlgitops.app.confining import confined
from mlgitops.app.context import Context, look
from mlgitops.app.submitting import Workshop
from mlgitops.core.configuration import Gate
from mlgitops.core.errors import Denied, InvalidInput
from mlgitops.core.evaluation.gates import judge_gates
from mlgitops.core.loading import load_environments
from mlgitops.core.manifest.fields import LEDGER, MAIN
from mlgitops.core.names import Digest
from mlgitops.core.owners import codeowners
from mlgitops.core.rollout import RolloutPhase
from mlgitops.ports.repository import Change
from mlgitops.ports.source import SourceCommit
from tests.support.values import submission
from tests.support.world import (
    CONFIGURATION,
    ENVIRONMENTS,
    Quality,
    live,
    push,
    quick_world,
    settle,
    state_of,
    world_of,
)

OWN = Digest.of(b"evaluation")
OTHER = Digest.of(b"an easier one")
METRIC = {"value": 0.9, "low": 0.85, "high": 0.95, "better": "higher"}


def report(*, confidence: float = 0.95, reported: dict[str, float] | None = None, **metrics: object):
    loss = {"difference": -0.2, "low": -0.9, "high": 0.5, "better": "higher"}
    return {
        "confidence": confidence,
        "candidate": {"metrics": metrics, "slices": {}},
        "champion": {"metrics": metrics, "slices": {}},
        "comparison": {"metrics": {"accuracy": loss}, "slices": {}},
        "selfReported": {"metrics": reported or {}},
    }


def gates_of(text: str) -> tuple[Gate, ...]:
    extra = ENVIRONMENTS.replace("      - metric: accuracy\n        minimum: 0.5\n", text)
    return load_environments(extra.encode()).environments[0].gates


def test_what_a_model_reports_of_itself_passes_no_gate_of_an_environment() -> None:
    """A metric that only the model's own command reports fails an environment's gate that does not ask for it."""
    told = report(reported={"fairness": 1.0})
    gate, loss = gates_of("      - {metric: fairness, minimum: 0.5}\n")
    (result,) = judge_gates(told, [gate])
    assert not result.passed
    assert "self-reported" in result.reason
    assert loss.measured
    (taken, _) = gates_of("      - {metric: fairness, minimum: 0.5, selfReported: true}\n")
    assert judge_gates(told, [taken])[0].passed
    assert judge_gates(told, [Gate(metric="fairness", minimum=0.5)])[0].passed, "the model's own gate"


def test_a_model_cannot_make_every_loss_uncertain() -> None:
    """With a confidence at which no loss could ever be shown, an environment's limit against the champion fails."""
    gate = Gate(metric="accuracy", maximum_loss=0.01, measured=True)
    assert judge_gates(report(accuracy=METRIC), [gate])[0].passed
    (result,) = judge_gates(report(accuracy=METRIC, confidence=0.9999), [gate])
    assert not result.passed
    assert "0.95" in result.reason


@pytest.mark.parametrize(("digest", "phase"), [(OWN, RolloutPhase.STARTING), (OTHER, RolloutPhase.REFUSED)])
def test_an_environment_names_the_evaluation_set(digest: Digest, phase: RolloutPhase) -> None:
    """Where an environment names a model's evaluation set, a release that was evaluated on another one is refused."""
    named = ENVIRONMENTS.replace("    gates:\n", f"    evaluationSets:\n      digits: {digest}\n    gates:\n")
    world, engine = quick_world(named)
    push(world, "one", quality=Quality(), engine=engine)
    settle(world, engine, 1, passes=6)
    rollout = state_of(world).rollouts[1]
    assert (rollout.phase is RolloutPhase.REFUSED) == (phase is RolloutPhase.REFUSED)
    assert phase is not RolloutPhase.REFUSED or str(OTHER) in rollout.reason


def test_a_models_author_cannot_lower_a_minimum() -> None:
    """A model's own gate that is laxer than its environment's changes nothing: both must be kept."""
    strict = ENVIRONMENTS.replace("minimum: 0.5", "minimum: 0.99")
    lax = CONFIGURATION.rstrip() + "\n  gates:\n    - {metric: accuracy, minimum: 0.1}\n"
    world, engine = quick_world(strict)
    push(world, "one", quality=Quality(0.9, 0.1), engine=engine, configuration=lax)
    settle(world, engine, 15)
    assert state_of(world).champion is None
    assert "below the minimum 0.99" in state_of(world).rollouts[1].reason


PATHS = [
    (MAIN, "environments/production/other/rollout.yaml"),
    (MAIN, "environments/production/digits-canary/rollout.yaml"),
    (MAIN, "environments/production/digits/../other/rollout.yaml"),
    (MAIN, "environments/production/digits"),
    (MAIN, "environments.yaml"),
    (MAIN, ".github/CODEOWNERS"),
    (MAIN, "policies/allow.yaml"),
    (LEDGER, "models/other/last-submitted"),
    (LEDGER, "models/digits"),
    (LEDGER, "models/digits/../other/last-submitted"),
    (LEDGER, "environments/production/other/state.yaml"),
    (LEDGER, "ledger.yaml"),
    ("refs/heads/elsewhere", "environments/production/digits/rollout.yaml"),
]


@pytest.mark.parametrize(("ref", "path"), PATHS)
def test_one_models_identity_changes_no_other_models_files(ref: str, path: str) -> None:
    """Whoever acts for one model can write nothing but its own folders and its own files in the ledger."""
    world, _ = quick_world()
    repository = confined(world, "digits").repository
    own = "environments/production/digits/rollout.yaml" if ref != LEDGER else "models/digits/last-submitted"
    before = world.repository.snapshot(ref).revision
    with pytest.raises(Denied, match="does not belong to model digits"):
        repository.update(ref, before, [Change(message="x", files={own: b"x", path: b"x"})])
    assert world.repository.snapshot(ref).revision == before


def test_what_people_decide_is_confined_to_the_model_they_name() -> None:
    """Every decision about a model, and every submission, works where nothing else can be written."""
    world, engine = quick_world()
    live(world, engine, "one", Quality())
    second = push(confined(world, "digits"), "two", quality=Quality(), engine=engine).name
    own, foreign = confined(world, "digits"), confined(world, "other")
    with pytest.raises(Denied, match="does not belong to model other"):
        deciding.hold(foreign, "digits", None, reason="x")
    with pytest.raises(Denied, match="does not belong to model other"):
        push(foreign, "three", engine=engine)
    assert deciding.hold(own, "digits", None, reason="x").changed
    assert deciding.resume(own, "digits", None).changed
    assert rollbacks.reject(own, "digits", second, reason="x").changed
    assert rollbacks.rollback(own, "digits", None, reason="x").changed


def test_a_submission_writes_nothing_of_another_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`train` itself can write the files of the model that is pushed and of no other, whatever it comes to decide."""
    folder = tmp_path / "source"
    folder.mkdir()
    (folder / "mlgitops.yaml").write_text(CONFIGURATION)
    world, _ = world_of(tmp_path)
    touched: list[str] = []

    def write(context: Context, *_: object) -> bool:
        for path in ("models/other/last-submitted", "environments.yaml"):
            with pytest.raises(Denied):
                context.repository.update(LEDGER, None, [Change(message="x", files={path: b"x"})])
            touched.append(path)
        raise Denied("writing", "what was submitted", "this test saw enough")

    monkeypatch.setattr(submitting, "write", write)
    monkeypatch.setattr(submitting, "_identified", lambda *_: submission())
    monkeypatch.setattr(submitting, "_built", lambda *_: submission())
    commit = SourceCommit(revision="a" * 40, author="Ada <ada@x>", subject="x")
    workshop = Workshop(source=Checkout(folder, commit), builder=None, store=world.store)  # type: ignore[arg-type]
    with pytest.raises(Denied, match="saw enough"):
        submitting.submit(world, workshop)
    assert len(touched) == 2


def test_a_confined_world_creates_no_references() -> None:
    """Nobody who acts for one model can make a ledger, or any other reference."""
    world, _ = quick_world()
    with pytest.raises(Denied):
        confined(world, "digits").repository.create({"refs/heads/x": Change(message="x", files={})})


@pytest.mark.parametrize(
    ("ref", "path"),
    [
        ("refs/heads/mlgitops-proposals/production/other/1", "environments/production/other/rollout.yaml"),
        ("refs/heads/mlgitops-proposals/production/digits/1", "environments/production/other/rollout.yaml"),
        ("refs/heads/mlgitops-proposals/production/digits/1", "environments.yaml"),
        ("refs/heads/mlgitops-proposals/production/other/1", "environments/production/digits/rollout.yaml"),
        ("refs/heads/x/production/digits/1", "environments/production/digits/rollout.yaml"),
    ],
)
def test_a_confined_world_proposes_nothing_of_another_model(ref: str, path: str) -> None:
    """Who acts for one model can propose changes of its own files alone, on branches that are called after it."""
    world, _ = quick_world()
    repository, base = confined(world, "digits").repository, str(world.repository.snapshot(MAIN).revision)
    with pytest.raises(Denied, match="does not belong to model digits"):
        repository.branch(ref, base, Change(message="x", files={path: b"x"}))
    assert world.repository.snapshot(ref).revision is None
    own = "refs/heads/mlgitops-proposals/production/digits/1"
    change = Change(message="x", files={"environments/production/digits/rollout.yaml": b"x"})
    assert world.repository.snapshot(own).revision != repository.branch(own, base, change)


def test_code_owners_keep_what_binds_every_model() -> None:
    """A model's owners own its folders, and the last lines give what binds them to the default owners."""
    owners = "owners:\n  default: ['@x/platform']\n  models: {digits: ['@x/vision', 'ada@example.org']}\n"
    text = codeowners(load_environments((ENVIRONMENTS + owners).encode())).decode()
    lines = [line.split() for line in text.splitlines() if not line.startswith("#")]
    assert lines[:2] == [["*", "@x/platform"], ["/environments/*/digits/", "@x/vision", "ada@example.org"]]
    assert {line[0] for line in lines[2:]} == {"/environments.yaml", "/.github/", "/policies/", "/clusters/"}
    assert all(line[1:] == ["@x/platform"] for line in lines[2:])


@pytest.mark.parametrize("owner", ["@x/y z", "@x\n* @evil", "-x", "@", "#x", "@x #", "x@", "@x/../y"])
def test_an_owner_cannot_forge_a_line(owner: str) -> None:
    """An owner that is no person, team or address is refused, so that none can add a line to CODEOWNERS."""
    text = f"{ENVIRONMENTS}owners:\n  default: [{owner!r}]\n".replace("\\n", "\\n")
    quoted = text.replace(repr(owner), '"' + owner.replace("\n", "\\n") + '"')
    with pytest.raises(InvalidInput):
        load_environments(quoted.encode())


def test_an_approval_ends_with_the_content_it_was_for() -> None:
    """An approval counts for the rollout, release, plan and manifests that were approved, and for nothing else."""
    asking = ENVIRONMENTS.replace("    plan: quick\n", "    plan: quick\n    approvals: 1\n")
    world, engine = quick_world(asking)
    push(world, "one", quality=Quality(), engine=engine)
    settle(world, engine, 1, passes=4)
    assert state_of(world).rollouts[1].phase is RolloutPhase.PROPOSED
    deciding.approve(world, "digits", None)
    state = state_of(world)
    (approval,) = state.approvals
    forged = dataclasses.replace(approval, plan_digest=str(OTHER))
    view = look(world)
    unit = view.configuration.environments[0]
    at = world.clock.now()
    assert waiting_for(view, unit, state, state.rollouts[1], at) == ""
    for other in (forged, dataclasses.replace(approval, release="0" * 12), dataclasses.replace(approval, rollout=2)):
        changed = dataclasses.replace(state, approvals=(other,))
        assert waiting_for(view, unit, changed, state.rollouts[1], at) == "1 approval missing"


def test_old_approved_content_needs_a_new_approval() -> None:
    """The file of a rollout that was approved once, put back under the next number, waits for people again."""
    asking = ENVIRONMENTS.replace("    plan: quick\n", "    plan: quick\n    approvals: 1\n")
    world, engine = quick_world(asking)
    path = "environments/production/digits/rollout.yaml"
    kept = []
    for code in ("one", "two"):
        push(world, code, quality=Quality(), engine=engine)
        settle(world, engine, 1, passes=4)
        kept.append(world.repository.snapshot(MAIN).read(path))
        deciding.approve(world, "digits", None)
        settle(world, engine, 15)
    first, second = kept
    assert first is not None
    assert second is not None
    assert state_of(world).rollouts[2].phase is RolloutPhase.LIVE
    replayed = first.replace(b"number: 1\n", b"number: 3\n")
    assert replayed != first
    change = Change(message="replay", files={path: replayed})
    world.repository.update(MAIN, world.repository.snapshot(MAIN).revision, [change])
    settle(world, engine, 15)
    state = state_of(world)
    assert state.rollouts[3].phase is RolloutPhase.PROPOSED
    assert state.live is not None
    assert state.live.number == 2
