"""A push becomes a release: identity, tests, data, image, and the submission in the ledger."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from mlgitops.app.confining import confined
from mlgitops.app.context import Context, View, configuration_of, look
from mlgitops.app.writing import write
from mlgitops.core import diary
from mlgitops.core.configuration import ModelConfiguration, fingerprint
from mlgitops.core.errors import ChecksFailed, DigestMismatch, InvalidInput, Problem
from mlgitops.core.loading import MODEL_FILE, check_secrets, load_model
from mlgitops.core.manifest import fields as names
from mlgitops.core.names import RELEASE_LENGTH, Digest
from mlgitops.core.notebook import convert
from mlgitops.core.release import Release, ReleasePhase, Submission
from mlgitops.ports.builder import Builder, BuildRequest
from mlgitops.ports.source import Source
from mlgitops.ports.store import Store

OUTPUT_CHARACTERS = 4_000


@dataclass(frozen=True, kw_only=True)
class Submitted:
    """What came of a push."""

    release: Release
    new: bool
    """False when it was recognised as a release that is there already."""
    unheeded: tuple[str, ...] = ()
    """What the push changed that makes no release: it takes effect with the next one."""


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
    known = _record(context, draft, new=False)
    if known is not None:
        return Submitted(release=known, new=False, unheeded=unheeded(known.submission, draft))
    _check_judgeable(look(context), configuration)
    _test(context, source, configuration)
    full = _built(context, workshop, configuration, draft)
    recorded = _record(context, full, new=True)
    assert recorded is not None
    return Submitted(release=recorded, new=recorded.submission.submitted_at == full.submitted_at)


def unheeded(known: Submission, now: Submission) -> tuple[str, ...]:
    """Say what two pushes of the same release differ in that is no input of its training.

    A release is judged and served by what it was submitted with, so that its answer can be told for ever.
    """
    try:
        before = configuration_of(known)
    except InvalidInput:  # an older version of this tool accepted it; what it says now cannot be told
        return ()
    after = configuration_of(now)
    differs = {
        "gates": before.evaluation.gates != after.evaluation.gates,
        "evaluation": before.evaluation.specification != after.evaluation.specification,
        "evaluation set": known.evaluation_digest != now.evaluation_digest,
        "serving": before.serving != after.serving,
        "test": before.test_command != after.test_command,
    }
    return tuple(name for name, changed in differs.items() if changed)


def recognised(release: Release, changed: Sequence[str] = ()) -> str:
    """Say in words that a push is a release that is there already, and how it can be trained again where it ended."""
    if changed:
        told = f"changed in this push: {', '.join(changed)}; a release keeps what it was submitted with, so that takes "
        told += f"effect with the next one, or with `mlgitops train --attempt {release.submission.attempt + 1}`"
        return f"{recognised(release)}\n{told}"
    ended = release.phase in {ReleasePhase.FAILED, ReleasePhase.ERRORED, ReleasePhase.ABORTED}
    words = f"recognised as release {release.name} ({release.phase}): nothing to train"
    if not ended and not release.collected:
        return words
    why = (
        "its model was deleted by `mlgitops gc`" if release.collected else release.reason or "it ended without a model"
    )
    return f"{words}\n{why}; `mlgitops train --attempt {release.submission.attempt + 1}` trains it again"


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
    return Submitted(release=known, new=False, unheeded=unheeded(known.submission, draft))


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
        specification_digest="sha256:" + fingerprint(configuration.training.to_mapping()),
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


def _record(context: Context, submission: Submission, *, new: bool) -> Release | None:
    """Write the submission unless it is known; None when it is not and `new` is false."""
    found: list[Release] = []

    def decide(view: View) -> str | None:
        found.clear()
        name = submission.identity.hex[:RELEASE_LENGTH]
        known = view.ledger.find_release(submission.model, name)
        if known is not None and known.identity != submission.identity:
            raise DigestMismatch(f"release {name}", str(known.identity), str(submission.identity))
        if known is None and not new:
            return None
        release = known or Release(submission=_placed(view, submission))
        found.append(release)
        view.ledger.put_last_submitted(submission.model, release.name)
        if known is not None:
            told = f"release({submission.model}): {name} recognised in {submission.revision[:RELEASE_LENGTH]}"
            changed = unheeded(known.submission, submission)
            return f"{told}\n\nNot taken up by this release: {', '.join(changed)}.\n" if changed else told
        view.ledger.put_release(release)
        return diary.release(release)

    write(context, decide, lambda _: ())
    return found[0] if found else None


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
    folder = f"evaluation/{configuration.name}"
    evaluation_uri, _ = store.put(source.directory / configuration.evaluation.data, folder)
    source_uri = _stored_source(workshop, configuration)
    _unchanged(source, configuration, draft)
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
        evaluation_uri=evaluation_uri,
        source_uri=source_uri,
    )


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
        annotations={"org.opencontainers.image.title": configuration.name},
    )
