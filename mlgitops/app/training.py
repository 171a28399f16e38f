"""A release's way to a candidate: one open training per model, its TFJob on `main`, its evaluation."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from mlgitops.app.context import View, World, by, configuration_of
from mlgitops.app.evaluating import judged, own_gates
from mlgitops.app.moves import AUTOMATION, now
from mlgitops.app.writing import Unit
from mlgitops.core import diary
from mlgitops.core import release as machine
from mlgitops.core.errors import Denied, DigestMismatch, InvalidInput, NotFound
from mlgitops.core.events import moment, stamp
from mlgitops.core.ledger import EnvironmentState, Hold
from mlgitops.core.manifest import fields as names
from mlgitops.core.manifest import owned, render
from mlgitops.core.manifest.carrying import left_behind
from mlgitops.core.manifest.owned import TrainingFields
from mlgitops.core.names import ImageReference, job_name
from mlgitops.core.release import Release, ReleasePhase
from mlgitops.ports.cluster import JobObservation, JobPhase, one_log
from mlgitops.ports.repository import Change

LOG_LIMIT_BYTES = 200_000
"""The ledger keeps the end of a log."""


def training_unit(world: World, model: str) -> Unit:
    """Return what makes the next move of one model's releases."""

    def decide(view: View) -> str | None:
        moved = _next(world, view, model)
        if moved is None:
            return _held(world, view, model)
        view.ledger.put_release(moved)
        return diary.release(moved)

    return Unit(decide, lambda view: projected(view, model))


def _held(world: World, view: View, model: str) -> str | None:
    """Hold automation for a model whose listed job somebody changed by hand, once for each change.

    The job goes on as it was submitted; what comes of it must not be promoted by itself.
    """
    open_ = _open_training(view, model)
    changed = _changed_by_hand(view, open_) if open_ is not None else ""
    if not changed or view.main.revision is None:
        return None
    path = _path(model, names.TFJOB_FILE)
    commit = next(iter(world.repository.history(view.main.revision, path=path)))
    reason = f"fields of {path} that mlgitops owns were changed by hand in {commit.revision[:12]}: {changed}"
    hold = Hold(by=by(commit.author), reason=reason, at=stamp(now(world)))
    states = [view.ledger.state(one.name, model) for one in view.configuration.environments]
    unheld = [one for one in states if one.hold is None and not _resumed_since(one, commit.committed_at)]
    for one in unheld:
        view.ledger.put_state(replace(one, hold=hold))
    return f"hold({model}): its training job was changed by hand\n\n{reason}\n" if unheld else None


def _open_training(view: View, model: str) -> Release | None:
    return next((one for one in view.ledger.open_releases(model) if one.phase is ReleasePhase.TRAINING), None)


def _resumed_since(state: EnvironmentState, at: datetime) -> bool:
    return bool(state.resumed_at) and moment(state.resumed_at) > at


def _next(world: World, view: View, model: str) -> Release | None:
    releases = view.ledger.open_releases(model)
    at = now(world)
    for one in releases:
        moved = None
        if one.phase is ReleasePhase.SUBMITTED:
            moved = machine.advance(one, machine.Queued(at=at))
        elif one.phase is ReleasePhase.TRAINING:
            moved = _trained(world, view, one)
        elif one.phase is ReleasePhase.EVALUATING:
            moved = _evaluated(world, view, one)
        if moved is not None:
            return moved
    return _superseded(world, releases) or _started(world, view, releases)


def _started(world: World, view: View, releases: Sequence[Release]) -> Release | None:
    """Start the training that waits longest, where none is open and the last one's job is off `main`."""
    waiting = next((one for one in releases if one.phase is ReleasePhase.QUEUED), None)
    training = any(one.phase is ReleasePhase.TRAINING for one in releases)
    if waiting is None or training or _is_listed(view, waiting.submission.model):
        return None
    return machine.advance(waiting, machine.TrainingStarted(at=now(world), not_carried=_not_carried(view, waiting)))


def _superseded(world: World, releases: Sequence[Release]) -> Release | None:
    """Where the newest push says so, end the ones that still wait before it."""
    waiting = [one for one in releases if one.phase is ReleasePhase.QUEUED]
    if len(waiting) < 2:
        return None
    newest = waiting[-1]
    if configuration_of(newest.submission).training.newer != "supersede":
        return None
    reason = f"superseded by release {newest.name}"
    return machine.advance(waiting[0], machine.Aborted(at=now(world), by=AUTOMATION, reason=reason))


def _is_listed(view: View, model: str) -> bool:
    path = _path(model, names.KUSTOMIZATION_FILE)
    data = view.main.read(path)
    return data is not None and names.TFJOB_FILE in owned.listed_resources(data, path)


def _trained(world: World, view: View, release: Release) -> Release | None:
    model = release.submission.model
    job = world.cluster.job(names.TRAINING, job_name(model, release.name))
    if job is None:
        return _unknown(world, view, release)
    if job.phase not in (JobPhase.SUCCEEDED, JobPhase.FAILED):
        return None
    event = _succeeded(world, release, job) if job.phase is JobPhase.SUCCEEDED else _failed(world, job)
    log = one_log(world.cluster.logs(names.TRAINING, job.name))
    view.ledger.put_log(model, release.name, log[-LOG_LIMIT_BYTES:])
    return machine.advance(release, event)


def _unknown(world: World, view: View, release: Release) -> Release | None:
    """End a training that the engine refuses, or does not know long after it applied it: others wait behind it."""
    configuration = configuration_of(release.submission)
    started = release.training_started
    waited = now(world) - (started.at if started else release.submission.submitted_at)
    applied = world.cluster.applied(names.TRAINING)
    known = bool(applied.error) or applied.revision == view.main.revision
    if not known or waited <= timedelta(seconds=configuration.training.start_deadline_seconds):
        return None
    reason = f"the engine has no such job after {waited.total_seconds():.0f} s"
    words = f"{reason}: {applied.error}" if applied.error else reason
    return machine.advance(release, machine.Errored(at=now(world), reason=words))


def _failed(world: World, job: JobObservation) -> machine.Failed:
    words = f"training ended {job.reason}" + (f": {job.message}" if job.message else "")
    return machine.Failed(at=now(world), reason=words)


def _succeeded(
    world: World, release: Release, job: JobObservation
) -> machine.TrainingSucceeded | machine.Failed | machine.Errored:
    """Take the model as the job left it, unless its bytes are not the ones it reported."""
    reported = _reported_digest(job.result)
    try:
        digest = str(world.store.digest(release.submission.artifact_uri))
    except NotFound:
        uri = release.submission.artifact_uri
        return machine.Failed(at=now(world), reason=f"the job succeeded and left no model at {uri}")
    if reported is not None and reported != digest:
        mismatch = DigestMismatch(release.submission.artifact_uri, reported, digest)
        return machine.Errored(at=now(world), reason=f"the model changed after training: {mismatch}")
    return machine.TrainingSucceeded(
        at=now(world),
        artifact_digest=digest,
        metrics=_numbers(job.result.get("metrics")),
        history=tuple(_numbers(one) for one in job.result.get("history") or ()),
        restarts=job.restarts,
        started_at=job.started_at.isoformat() if job.started_at else "",
        finished_at=job.finished_at.isoformat() if job.finished_at else "",
    )


def _reported_digest(result: Mapping[str, Any]) -> str | None:
    artifact = result.get("artifact")
    return artifact.get("digest") if isinstance(artifact, Mapping) else None


def _numbers(values: Any) -> dict[str, float]:
    """Keep what are finite numbers: the job's own report is hostile input."""
    if not isinstance(values, Mapping):
        return {}
    kept = {}
    for name, value in values.items():
        if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < float("inf"):
            kept[str(name)[:80]] = value
    return kept


def _evaluated(world: World, view: View, release: Release) -> Release | None:
    try:
        result = judged(world, view, release, _champion(view, release), own_gates(release))
    except (NotFound, InvalidInput) as error:  # asking again gives the same answer, and others wait behind it
        return machine.advance(release, machine.Errored(at=now(world), reason=f"it cannot be evaluated: {error}"))
    if result is None:
        return None
    if result.error:
        return machine.advance(release, machine.Errored(at=now(world), reason=result.error))
    if result.report is not None:
        view.ledger.put_report(release.submission.model, result.key, result.report)
    if result.refusals:
        reason = "; ".join(result.refusals)
        return machine.advance(release, machine.Failed(at=now(world), reason=reason, report=result.key))
    return machine.advance(release, machine.EvaluationPassed(at=now(world), report=result.key))


def _champion(view: View, release: Release) -> Release | None:
    """Return what the first environment serves: the same evaluation then serves the rollout that follows.

    What serves is evaluated anew by itself.
    """
    first = view.configuration.environments[0].name
    champion = view.ledger.state(first, release.submission.model).champion
    return view.ledger.release(release.submission.model, champion) if champion not in {None, release.name} else None


def projected(view: View, model: str) -> Sequence[Change]:
    """Return the commit that lists the open training's TFJob, or unlists an ended one; none when `main` is right."""
    open_ = _open_training(view, model)
    files = _listed(view, open_) if open_ is not None else _unlisted(view, model)
    changed = {path: data for path, data in files.items() if data != view.main.read(path)}
    if not changed:
        return ()
    subject = open_ or _job_release(view, model)
    message = diary.training(subject) if subject is not None else f"train({model}): nothing trains"
    return (Change(message=message, files=changed),)


def _listed(view: View, release: Release) -> dict[str, bytes]:
    model = release.submission.model
    path = _path(model, names.KUSTOMIZATION_FILE)
    data = view.main.read(path)
    namespace = view.configuration.training_namespace
    kustomization = (
        render.render_kustomization(namespace, [names.TFJOB_FILE])
        if data is None
        else owned.list_resource(data, path, names.TFJOB_FILE)
    )
    return {_path(model, names.TFJOB_FILE): tfjob(view, release), path: kustomization}


def _unlisted(view: View, model: str) -> dict[str, bytes]:
    path = _path(model, names.KUSTOMIZATION_FILE)
    data = view.main.read(path)
    return {} if data is None else {path: owned.unlist_resource(data, path, names.TFJOB_FILE)}


def tfjob(view: View, release: Release) -> bytes:
    """Return `tfjob.yaml` for a release: what stands on `main` with the owned fields edited.

    Where the training specification changed, the file is written anew if nobody edited it by hand; people's edits win
    over the specification otherwise.
    """
    model = release.submission.model
    path = _path(model, names.TFJOB_FILE)
    wanted = _fields(view, release)
    data = view.main.read(path)
    changed = _changed_by_hand(view, release)
    if changed:
        told = f"the job of release {release.name} was changed by hand: {changed}"
        raise Denied("writing", path, f"{told}; take the change back, or `mlgitops abort {release.name}`")
    scaffold = _scaffold(view, release, wanted)
    if data is None:
        return scaffold
    return scaffold if _is_untouched(view, release, data) else owned.edit_tfjob(data, path, wanted)


def _is_untouched(view: View, release: Release, data: bytes) -> bool:
    """Say whether the job that stands is to be written anew: the specification changed, and nobody edited the file."""
    former = _job_release(view, release.submission.model)
    if former is None or former.submission.specification_digest == release.submission.specification_digest:
        return False
    return render.is_scaffold(data, names.TFJOB_FILE, configuration_of(former.submission), view.configuration.claim)


def _not_carried(view: View, release: Release) -> tuple[str, ...]:
    """Say what a release's training section wants otherwise than the file that its job is made of."""
    model = release.submission.model
    path = _path(model, names.TFJOB_FILE)
    data = view.main.read(path)
    if data is None:
        return ()
    try:
        former = _job_release(view, model)
        if former is None or _is_untouched(view, release, data):
            return ()
        wanted = _fields(view, release)
        before, after = (_scaffold(view, one, wanted) for one in (former, release))
        return left_behind(owned.edit_tfjob(data, path, wanted), path, before, after, former.not_carried)
    except InvalidInput:  # whoever writes the job says so, at every pass
        return ()


def _changed_by_hand(view: View, release: Release) -> str:
    """Say what somebody changed of the owned fields of a release's listed job; empty for nothing.

    It is what they want, or a mistake: in either case it is not written over.
    """
    model = release.submission.model
    path = _path(model, names.TFJOB_FILE)
    data = view.main.read(path)
    if data is None or not _is_listed(view, model):
        return ""
    found = owned.differences_tfjob(data, path, _fields(view, release))
    if any(one.pointer == "metadata.name" for one in found):
        return ""  # another release's job
    return "; ".join(f"{one.pointer} is {one.found!r}, not {one.expected!r}" for one in found)


def _scaffold(view: View, release: Release, fields: TrainingFields) -> bytes:
    return render.render_tfjob(configuration_of(release.submission), view.configuration.claim, fields)


def _fields(view: View, release: Release) -> TrainingFields:
    submission = release.submission
    return TrainingFields(
        model=submission.model,
        release=release.name,
        namespace=view.configuration.training_namespace,
        image=ImageReference.parse(submission.image),
        image_tag=submission.image_tag,
        source_revision=submission.revision,
        variables=submission.variables,
    )


def _job_release(view: View, model: str) -> Release | None:
    """Return the release whose job stands in `tfjob.yaml`."""
    path = _path(model, names.TFJOB_FILE)
    data = view.main.read(path)
    if data is None:
        return None
    return view.ledger.find_release(model, owned.read_tfjob(data, path).release)


def _path(model: str, name: str) -> str:
    return f"environments/{names.TRAINING}/{model}/{name}"
