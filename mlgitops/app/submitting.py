"""A push becomes a release: identity, tests, data, image, and the submission in the ledger."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from mlgitops.app.confining import confined
from mlgitops.app.context import Context, View, configuration_of, look
from mlgitops.app.writing import write
from mlgitops.core import diary
from mlgitops.core import release as machine
from mlgitops.core.configuration import ModelConfiguration, fingerprint
from mlgitops.core.errors import ChecksFailed, DigestMismatch, InvalidInput, Problem
from mlgitops.core.loading import MODEL_FILE, check_secrets, load_model
from mlgitops.core.manifest import fields as names
from mlgitops.core.names import RELEASE_LENGTH, Digest
from mlgitops.core.notebook import convert
from mlgitops.core.release import Release, ReleasePhase, Revised, Submission
from mlgitops.ports.builder import Builder, BuildRequest
from mlgitops.ports.source import Source
from mlgitops.ports.store import Store

OUTPUT_CHARACTERS = 4_000
SERVING: Final = (
    "it decides only how inferenceservice.yaml is first written, by a later release; "
    "where that is on main already, change it there, and the next canary is made of it"
)
"""What comes of a changed `serving` section."""


@dataclass(frozen=True, kw_only=True)
class Submitted:
    """What came of a push."""

    release: Release
    new: bool
    """False when it was recognised as a release that is there already."""
    revised: tuple[str, ...] = ()
    """What the push changed that the release is judged by: it is evaluated anew."""
    unheeded: tuple[str, ...] = ()
    """What the push changed that makes no release, and changes nothing about the one that is there."""


@dataclass(frozen=True, kw_only=True)
class Workshop:
    """What turns a source into a release."""

    source: Source
    builder: Builder
    store: Store


def submit(context: Context, workshop: Workshop, *, attempt: int = 1, dry_run: bool = False) -> Submitted:
    """Make a release of a pushed commit, or recognise the one it is.

    Raises:
        InvalidInput: Configuration, source or data cannot be accepted.
        ChecksFailed: The tests failed.
    """
    source = workshop.source
    text = source.read(MODEL_FILE)
    if text is None:
        raise InvalidInput("the repository has no mlgitops.yaml; `mlgitops init` writes one", path=MODEL_FILE)
    configuration = load_model(text, MODEL_FILE)
    context = confined(context, configuration.name)
    check_secrets(text, MODEL_FILE)
    _convert(source, configuration)
    draft = _identified(context, source, configuration, text.decode(), attempt)
    if dry_run:
        return _drafted(context, draft, configuration)
    view = look(context)
    known = view.ledger.find_release(draft.model, draft.identity.hex[:RELEASE_LENGTH])
    if known is not None:
        if _recognised(known, known, draft).revised:
            _check_judgeable(view, configuration)
        full = _judging(context, workshop, configuration, draft)
        return _recognised(_record(context, full), known, full)
    _check_judgeable(view, configuration)
    _test(context, source, configuration)
    full = _built(context, workshop, configuration, draft)
    recorded = _record(context, full)
    return Submitted(release=recorded, new=recorded.submission.submitted_at == full.submitted_at)


def _recognised(release: Release, before: Release, now: Submission) -> Submitted:
    revised, other = changes(before.judged_by, now)
    if before.revisable:
        return Submitted(release=release, new=False, revised=revised, unheeded=other)
    return Submitted(release=release, new=False, unheeded=(*revised, *other))


def changes(known: Submission, now: Submission) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Say what two pushes of the same release differ in: what its model is judged by, and what is neither.

    Neither is an input of its training, so there is nothing to train.
    """
    try:
        before = configuration_of(known)
    except InvalidInput:  # an older version of this tool accepted it; what it says now cannot be told
        return (), ()
    after = configuration_of(now)
    judging = {
        "gates": before.evaluation.gates != after.evaluation.gates,
        "evaluation": before.evaluation.specification != after.evaluation.specification,
        "evaluation set": known.evaluation_digest != now.evaluation_digest,
    }
    other = {
        "serving": before.serving != after.serving,
        "test": before.test_command != after.test_command,
    }
    revised, unheeded = ([name for name, changed in of.items() if changed] for of in (judging, other))
    return tuple(revised), tuple(unheeded)


def told(submitted: Submitted) -> str:
    """Say in words that a push is a release that is there already, and what comes of what it changed."""
    release, lines = submitted.release, []
    words = f"recognised as release {release.name} ({release.phase}): nothing to train"
    again = f"`mlgitops train --attempt {release.submission.attempt + 1}`"
    ended = release.phase in {ReleasePhase.FAILED, ReleasePhase.ERRORED, ReleasePhase.ABORTED}
    if submitted.revised:
        lines.append(f"changed in this push: {', '.join(submitted.revised)}; its model is evaluated by that")
    elif ended or release.collected:
        ending = release.reason or "it ended without a model"
        why = "its model was deleted by `mlgitops gc`" if release.collected else ending
        lines.append(f"{why}; {again} trains it again")
    for name in submitted.unheeded:
        effect = SERVING if name == "serving" else f"it takes effect with the next release, or with {again}"
        lines.append(f"changed in this push: {name}; {effect}")
    return "\n".join([words, *lines])


def _convert(source: Source, configuration: ModelConfiguration) -> None:
    """Write the script that a notebook becomes; a notebook that only ran again is then the same release."""
    notebook = configuration.training.notebook
    if notebook is None:
        return
    data = source.read(notebook)
    if data is None:
        raise InvalidInput("is declared and not in the commit", path=notebook)
    source.write(_script(notebook), convert(data, notebook).encode())


def _script(notebook: str) -> str:
    return notebook.removesuffix(".ipynb") + ".py"


def _inputs(source: Source, configuration: ModelConfiguration) -> dict[str, Digest]:
    """Return what decides what is trained, by path: no data, and a notebook's script in its place."""
    data = [*(one.path for one in configuration.data), configuration.evaluation.data]
    notebook = configuration.training.notebook
    declared = [*configuration.inputs, configuration.requirements, *([_script(notebook)] if notebook else [])]
    left_out = {*source.files(data), notebook}
    return {path: digest for path, digest in source.files(declared).items() if path not in left_out}


def _drafted(context: Context, draft: Submission, configuration: ModelConfiguration) -> Submitted:
    """Say which release it would be, without writing anything."""
    view = look(context)
    known = view.ledger.find_release(draft.model, draft.identity.hex[:RELEASE_LENGTH])
    if known is None:
        _check_judgeable(view, configuration)
        return Submitted(release=Release(submission=_placed(view, draft)), new=True)
    found = _recognised(known, known, draft)
    if found.revised:
        _check_judgeable(view, configuration)
    return found


def _check_judgeable(view: View, configuration: ModelConfiguration) -> None:
    """Refuse a new regression whose canary would wait for labels that nobody can call right or wrong.

    There is no default, as a tolerance has the unit of the label. What is in the ledger already is read as it is:
    refusing it there would stop what serves.

    Raises:
        InvalidInput: A plan judges labels, by the engine's own counts, and `evaluation.labelTolerance` is missing.
    """
    specification = configuration.evaluation.specification
    counted = view.configuration.metrics.source == "engine"
    if not counted or specification["task"] != "regression" or specification.get("labelTolerance") is not None:
        return
    for one in view.configuration.environments:
        if any(rule.kind == "labels" for rule in one.plan.metrics):
            told = f"is missing: plan {one.plan.name} of {one.name} judges a canary by labels, and of a regression "
            problem = Problem(
                message=told + "only a tolerance says which answers are right",
                path=MODEL_FILE,
                pointer="evaluation.labelTolerance",
                mend="say how far from its label an answer may be, in the label's unit: `labelTolerance: 0.5`",
            )
            raise InvalidInput([problem])


def _identified(
    context: Context, source: Source, configuration: ModelConfiguration, text: str, attempt: int
) -> Submission:
    """Find out who this release is, before anything is built."""
    return Submission(
        model=configuration.name,
        **_digests(source, configuration),
        specification_digest="sha256:" + fingerprint(configuration.specification),
        attempt=attempt,
        sequence=0,
        cause=(),
        revision=source.commit.revision,
        author=source.commit.author,
        subject=source.commit.subject,
        submitted_at=context.clock.now(),
        image="",
        image_tag=source.commit.revision[:RELEASE_LENGTH],
        variables={},
        artifact_uri="",
        evaluation_uri="",
        configuration=text,
    )


def _digests(source: Source, configuration: ModelConfiguration) -> dict[str, str]:
    """Return the digests of code, data and evaluation set, read now."""
    data = source.files([one.path for one in configuration.data]) if configuration.data else {}
    files = {
        "code_digest": _inputs(source, configuration),
        "data_digest": data,
        "evaluation_digest": source.files([configuration.evaluation.data]),
    }
    return {name: str(Digest.of_files(found)) for name, found in files.items()}


def _record(context: Context, submission: Submission) -> Release:
    """Write a submission, or what it says of the release that it is."""
    found: list[Release] = []

    def decide(view: View) -> str:
        name = submission.identity.hex[:RELEASE_LENGTH]
        known = view.ledger.find_release(submission.model, name)
        if known is not None and known.identity != submission.identity:
            raise DigestMismatch(f"release {name}", str(known.identity), str(submission.identity))
        release = Release(submission=_placed(view, submission)) if known is None else _revised(known, submission)
        found[:] = [release]
        view.ledger.put_last_submitted(submission.model, release.name)
        if release != known:
            view.ledger.put_release(release)
        if known is None:
            return diary.release(release)
        unheeded = _recognised(release, known, submission).unheeded
        return diary.recognised(release, submission.revision, new=release is not known, unheeded=unheeded)

    write(context, decide, lambda _: ())
    return found[0]


def _revised(known: Release, now: Submission) -> Release:
    """Return a release as it is judged by a later push of the same training; the same where nothing is to be done.

    An evaluation that gave no answer is asked for again by every push.
    """
    changed, _ = changes(known.judged_by, now)
    if not known.revisable or not (changed or known.phase is ReleasePhase.ERRORED):
        return known
    event = Revised(
        at=now.submitted_at,
        by=now.author,
        revision=now.revision,
        changed=changed,
        configuration=now.configuration,
        evaluation_uri=now.evaluation_uri,
        evaluation_digest=now.evaluation_digest,
        source_uri=now.source_uri,
    )
    return machine.advance(known, event)


def _placed(view: View, submission: Submission) -> Submission:
    """Give a new submission its place in the order, and its cause."""
    before = view.ledger.last_submitted(submission.model)
    every = view.ledger.releases(submission.model)
    sequence = max((one.submission.sequence for one in every), default=0) + 1
    return replace(submission, sequence=sequence, cause=cause(before.submission if before else None, submission))


def cause(before: Submission | None, now: Submission) -> tuple[str, ...]:
    """Say what differs from the release submitted before."""
    if before is None:
        return ("first",)
    differs = {
        "code": before.code_digest != now.code_digest,
        "data": before.data_digest != now.data_digest,
        "specification": before.specification_digest != now.specification_digest,
    }
    return tuple(name for name, changed in differs.items() if changed) or ("rerun",)


def _test(context: Context, source: Source, configuration: ModelConfiguration) -> None:
    if not configuration.test_command:
        return
    context.observer.note(f"{configuration.name}: testing: {' '.join(configuration.test_command)}")
    code, output = source.run(configuration.test_command, configuration.test_timeout_seconds)
    if code:
        end = output[-OUTPUT_CHARACTERS:].strip()
        raise ChecksFailed("releasing", source.commit.revision[:RELEASE_LENGTH], f"its tests failed ({code})\n{end}")


def _built(context: Context, workshop: Workshop, configuration: ModelConfiguration, draft: Submission) -> Submission:
    """Put data into the store and build the image; both are found again by digest after a crash."""
    source, store = workshop.source, workshop.store
    name = draft.identity.hex[:RELEASE_LENGTH]
    uris = {}
    _unchanged(source, configuration, draft)
    for one in configuration.data:
        context.observer.note(f"{configuration.name}: storing {one.path}")
        uris[one.variable], _ = store.put(source.directory / one.path, f"data/{configuration.name}")
    draft = _judging(context, workshop, configuration, draft)
    context.observer.note(f"{configuration.name}: building the image")
    image = workshop.builder.build(_request(source, configuration, draft))
    artifact_uri = store.uri(f"models/{configuration.name}/{name}")
    variables: Mapping[str, str] = {
        **uris,
        names.OUTPUT_URI_VARIABLE: artifact_uri,
        names.CHECKPOINT_URI_VARIABLE: store.uri(f"checkpoints/{configuration.name}/{name}"),
        "MLGITOPS_SOURCE_REVISION": draft.revision,
        "MLGITOPS_DATA_DIGEST": draft.data_digest,
    }
    return replace(
        draft,
        image=str(image),
        variables=variables,
        artifact_uri=artifact_uri,
    )


def _judging(context: Context, workshop: Workshop, configuration: ModelConfiguration, draft: Submission) -> Submission:
    """Put into the store what the model will be judged by."""
    source = workshop.source
    context.observer.note(f"{configuration.name}: storing {configuration.evaluation.data}")
    folder = f"evaluation/{configuration.name}"
    evaluation_uri, _ = workshop.store.put(source.directory / configuration.evaluation.data, folder)
    source_uri = _stored_source(workshop, configuration)
    _unchanged(source, configuration, draft)
    return replace(draft, evaluation_uri=evaluation_uri, source_uri=source_uri)


def _stored_source(workshop: Workshop, configuration: ModelConfiguration) -> str:
    """Put the training inputs into the store where the evaluation runs a command of theirs; empty where it does not."""
    if not configuration.evaluation.specification["command"]:
        return ""
    with workshop.source.gather(sorted(_inputs(workshop.source, configuration))) as folder:
        return workshop.store.put(folder, f"source/{configuration.name}")[0]


def _unchanged(source: Source, configuration: ModelConfiguration, draft: Submission) -> None:
    """Compare the files with the digests that the release is named by: nothing else may be stored or built.

    Raises:
        DigestMismatch: A file is not as it was when the push was identified.
    """
    found = _digests(source, configuration)
    for name, digest in found.items():
        if digest != getattr(draft, name):
            what = f"{name.removesuffix('_digest')} of {draft.revision[:RELEASE_LENGTH]}"
            raise DigestMismatch(what, getattr(draft, name), digest)


def _request(source: Source, configuration: ModelConfiguration, draft: Submission) -> BuildRequest:
    return BuildRequest(
        source=source.directory,
        files=tuple(sorted(_inputs(source, configuration))),
        requirements=configuration.requirements,
        entrypoint=configuration.training.command,
        repository=configuration.image_repository,
        tag=draft.image_tag,
        docker=configuration.docker,
        push=configuration.push,
        annotations={"org.opencontainers.image.title": configuration.name},
    )
