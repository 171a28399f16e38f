"""The fields of manifests that the tool owns: their values, reading them, and editing nothing else.

Manifests belong to people. Each `edit_*` takes a file's bytes and the values its owned fields must have, and returns
bytes in which only those values differ; a file that is right already comes back as it is. Each `read_*` gives the owned
values of a file, and each `differences_*` says where they are not what the tool would have written: a foreign change.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from mlgitops.core.errors import InvalidInput, Problem
from mlgitops.core.manifest import fields as names
from mlgitops.core.manifest.edit import Edit, InsertItem, RemoveItem, SetEntry, edit
from mlgitops.core.manifest.read import Document, Named, pointer_text, read_documents
from mlgitops.core.names import ImageReference, job_name

CONTAINER: Final = "tensorflow"
"""The operator's name for the container whose exit decides."""
VARIABLES_ANNOTATION: Final = f"{names.PREFIX}/variables"
"""On a TFJob: the environment variables the tool sets, comma-separated; every other variable belongs to people."""
INSTANCE_LABEL: Final = "app.kubernetes.io/instance"
TFJOB_KIND: Final = "TFJob"
SERVICE_KIND: Final = "InferenceService"
ROUTE_KIND: Final = "HTTPRoute"
ROLLOUT_KIND: Final = "Rollout"
KUSTOMIZATION_KIND: Final = "Kustomization"

COMPARED: Final = 8_192
"""Files whose comparison is kept: a pass compares the same bytes with the same values again and again."""

Pointer = tuple[str | int | Named, ...]
_METADATA: Final[Pointer] = ("metadata",)
_LABELS: Final[Pointer] = ("metadata", "labels")
_ANNOTATIONS: Final[Pointer] = ("metadata", "annotations")
_MODEL: Final[Pointer] = ("spec", "predictor", "model")
_RESTORE: Final = "restore what mlgitops wrote: see `git log -p` of this file"


@dataclass(frozen=True, kw_only=True)
class TrainingFields:
    """What the tool owns in `tfjob.yaml`."""

    model: str
    """The model's name; with the release it makes the job's name."""
    release: str
    """The release this attempt yields, 12 hexadecimal digits."""
    namespace: str
    """Namespace of the job: written when the file is scaffolded, people's afterwards."""
    image: ImageReference
    """Image of every role's container named `tensorflow`."""
    image_tag: str
    """The image's tag, for people; nothing is looked up by it."""
    source_revision: str
    """Commit of the model repository, 40 hexadecimal digits."""
    variables: Mapping[str, str]
    """Every environment variable the tool sets, with its value; the same in all roles."""


@dataclass(frozen=True, kw_only=True)
class ServiceFields:
    """What the tool owns in `inferenceservice.yaml` and `inferenceservice-canary.yaml`."""

    name: str
    """The model's name; with `-canary` for the canary."""
    namespace: str
    """Namespace of the service: written when the file is scaffolded, people's afterwards."""
    model: str
    """The model's name."""
    release: str
    """The release that is served."""
    storage_uri: str
    """Where the server finds the model; its bytes never change."""
    artifact_digest: str
    """Digest of the model's files; the server refuses other bytes."""


@dataclass(frozen=True, kw_only=True)
class RouteFields:
    """What the tool owns in `route.yaml`."""

    model: str
    """The model's name; the backends are `<model>-predictor` and `<model>-canary-predictor`."""
    namespace: str
    """Namespace of the route: written when the file is scaffolded, people's afterwards."""
    canary_weight_percent: int
    """Share of requests that the canary answers, 0 to 100; the baseline answers the rest."""
    cohort: str
    """What the router stamps on requests, `<rollout>-<step>`; step 1000 of what serves alone."""
    label_tolerance: float | None = None
    """How far a prediction may be from its label and count as correct, in the label's unit; None: people's line.

    It follows the configuration and says nothing about which release serves, so it is written and never compared: a
    push that changes it must not look like a change by hand.
    """


@dataclass(frozen=True, kw_only=True)
class RolloutFields:
    """What `rollout.yaml` asks for."""

    number: int
    """Number of the rollout, from 1, counted per model and environment."""
    release: str
    """The release to be served."""
    plan: str
    """Name of the plan in `environments.yaml`."""
    plan_digest: str
    """Digest of the plan as it was when the rollout was asked for."""


@dataclass(frozen=True, kw_only=True)
class Difference:
    """One owned field that does not have the value the tool gave it."""

    pointer: str
    """Where in the document, like `spec.rules[0].backendRefs[1].weight`."""
    expected: str | int | None
    """What the tool wrote; None for nothing."""
    found: Any
    """What is there; None for nothing."""
    line: int
    """Line of the field, or of its nearest existing ancestor, from 1."""


@dataclass(frozen=True, kw_only=True)
class _Value:
    """One owned value: an entry of a mapping."""

    mapping: Pointer
    key: str
    value: str | int

    @property
    def pointer(self) -> Pointer:
        return (*self.mapping, self.key)


@dataclass(frozen=True)
class _Manifest:
    """One document of a file."""

    data: bytes
    path: str
    index: int
    document: Document

    def get(self, pointer: Pointer) -> Any:
        return lookup(self.document.value, pointer)

    def text(self, pointer: Pointer) -> str:
        """Return the string at `pointer`, which must be there."""
        value = self.get(pointer)
        if not isinstance(value, str):
            raise InvalidInput([self.problem(pointer, "must be there, as a string")])
        return value

    def problem(self, pointer: Pointer, message: str) -> Problem:
        return self.document.problem(message, pointer, mend=_RESTORE)


def lookup(value: Any, pointer: Pointer) -> Any:
    """Return what is at `pointer`, or None when there is nothing."""
    for element in pointer:
        if isinstance(element, Named):
            value = next((item for item in value if _name_of(item) == element.name), None) if _is_list(value) else None
        elif isinstance(element, int):
            value = value[element] if _is_list(value) and element < len(value) else None
        else:
            value = value.get(element) if isinstance(value, dict) else None
    return value


def _name_of(item: Any) -> Any:
    return item.get("name") if isinstance(item, dict) else None


def _is_list(value: Any) -> bool:
    return isinstance(value, list)


def _load(data: bytes, path: str, kind: str) -> _Manifest:
    """Find the one document of `kind`."""
    documents = read_documents(data, path)
    found = [
        (index, one)
        for index, one in enumerate(documents)
        if isinstance(one.value, dict) and one.value.get("kind") == kind
    ]
    if len(found) != 1:
        raise InvalidInput(f"there must be exactly one {kind} in the file; {len(found)} were found", path=path)
    return _Manifest(data, path, *found[0])


def _apply(manifest: _Manifest, values: Sequence[_Value], more: Sequence[Edit] = ()) -> bytes:
    edits = [*_edits(manifest, values), *more]
    if not edits:
        return manifest.data
    return edit(manifest.data, manifest.path, edits, document=manifest.index)


def _edits(manifest: _Manifest, values: Sequence[_Value]) -> Iterator[Edit]:
    """Set what differs; entries whose mapping is not there come with the mapping, in one edit."""
    missing: dict[Pointer, dict[str, str | int]] = {}
    for one in values:
        if same(manifest.get(one.pointer), one.value):
            continue
        if isinstance(manifest.get(one.mapping), dict):
            yield SetEntry(one.mapping, one.key, one.value)
        else:
            missing.setdefault(one.mapping, {})[one.key] = one.value
    for mapping, entries in missing.items():
        parent, key = mapping[:-1], mapping[-1]
        if not isinstance(key, str) or not isinstance(manifest.get(parent), dict):
            raise InvalidInput([manifest.problem(mapping, "must be there: mlgitops writes into it")])
        yield SetEntry(parent, key, entries)


def same(found: Any, expected: str | int | None) -> bool:
    """Say whether two scalars are equal and of one type (True is not 1)."""
    return type(found) is type(expected) and found == expected


def _differences(manifest: _Manifest, values: Sequence[_Value]) -> Iterator[Difference]:
    for one in values:
        found = manifest.get(one.pointer)
        if not same(found, one.value):
            yield _difference(manifest, one.pointer, one.value, found)


def _difference(manifest: _Manifest, pointer: Pointer, expected: str | int | None, found: Any) -> Difference:
    line, _ = manifest.document.position(pointer)
    return Difference(pointer=pointer_text(pointer), expected=expected, found=found, line=line)


# --- tfjob.yaml ---------------------------------------------------------------------------------------------------


def edit_tfjob(data: bytes, path: str, fields: TrainingFields) -> bytes:
    """Return `data` with the owned fields of its TFJob set.

    Raises:
        InvalidInput: The file cannot be read or edited, or a role has no container named `tensorflow`.
    """
    job = _load(data, path, TFJOB_KIND)
    variables = [one for role in _containers(job) for one in _variable_edits(job, role, fields.variables)]
    return _apply(job, _training_values(job, fields), variables)


def read_tfjob(data: bytes, path: str) -> TrainingFields:
    """Return the owned values of a TFJob.

    Raises:
        InvalidInput: One is missing, or the roles do not agree: somebody edited them.
    """
    job = _load(data, path, TFJOB_KIND)
    containers = _containers(job)
    listed = job.text((*_ANNOTATIONS, VARIABLES_ANNOTATION))
    owned = [name for name in listed.split(",") if name]
    fields = TrainingFields(
        model=job.text((*_LABELS, names.MODEL_LABEL)),
        release=job.text((*_LABELS, names.RELEASE_LABEL)),
        namespace=job.get((*_METADATA, "namespace")) or "",
        image=ImageReference.parse(job.text((*containers[0], "image"))),
        image_tag=job.text((*_ANNOTATIONS, names.IMAGE_TAG_ANNOTATION)),
        source_revision=job.text((*_ANNOTATIONS, names.REVISION_ANNOTATION)),
        variables={name: job.text((*containers[0], "env", Named(name), "value")) for name in owned},
    )
    different = differences_tfjob(data, path, fields)
    if different:
        raise InvalidInput([_foreign(path, one) for one in different])
    return fields


def differences_tfjob(data: bytes, path: str, fields: TrainingFields) -> tuple[Difference, ...]:
    """Return where the owned fields of a TFJob are not `fields`."""
    job = _load(data, path, TFJOB_KIND)
    found = list(_differences(job, _training_values(job, fields)))
    for container in _containers(job):
        for name, value in fields.variables.items():
            pointer = (*container, "env", Named(name), "value")
            if not same(job.get(pointer), value):
                found.append(_difference(job, pointer, value, job.get(pointer)))
    return tuple(found)


def _foreign(path: str, difference: Difference) -> Problem:
    return Problem(
        message=f"expected {difference.expected!r}, found {difference.found!r}: mlgitops owns this field",
        path=path,
        line=difference.line,
        pointer=difference.pointer,
        mend=_RESTORE,
    )


def _containers(job: _Manifest) -> list[Pointer]:
    """Return where each role's container named `tensorflow` is."""
    roles = job.get(("spec", "tfReplicaSpecs"))
    if not isinstance(roles, dict) or not roles:
        raise InvalidInput([job.problem(("spec", "tfReplicaSpecs"), "a TFJob must have at least one role")])
    found: list[Pointer] = [
        ("spec", "tfReplicaSpecs", role, "template", "spec", "containers", Named(CONTAINER)) for role in roles
    ]
    missing = [one for one in found if not isinstance(job.get(one), dict)]
    if missing:
        raise InvalidInput([job.problem(one, f"no container is named {CONTAINER}") for one in missing])
    return found


def _training_values(job: _Manifest, fields: TrainingFields) -> list[_Value]:
    return [
        _Value(mapping=_METADATA, key="name", value=job_name(fields.model, fields.release)),
        _Value(mapping=_LABELS, key=names.MODEL_LABEL, value=fields.model),
        _Value(mapping=_LABELS, key=names.RELEASE_LABEL, value=fields.release),
        _Value(mapping=_ANNOTATIONS, key=names.IMAGE_TAG_ANNOTATION, value=fields.image_tag),
        _Value(mapping=_ANNOTATIONS, key=names.REVISION_ANNOTATION, value=fields.source_revision),
        _Value(mapping=_ANNOTATIONS, key=VARIABLES_ANNOTATION, value=",".join(sorted(fields.variables))),
        *(_Value(mapping=one, key="image", value=str(fields.image)) for one in _containers(job)),
    ]


def _variable_edits(job: _Manifest, container: Pointer, variables: Mapping[str, str]) -> Iterator[Edit]:
    """Set, add and remove the tool's variables of one container; people's stay."""
    former = job.get((*_ANNOTATIONS, VARIABLES_ANNOTATION)) or ""
    where = (*container, "env")
    for name in sorted(set(str(former).split(",")) - set(variables) - {""}):
        item = job.get((*where, Named(name)))
        if item is not None:
            yield RemoveItem(where, item)
    added = []
    for name, value in variables.items():
        item = job.get((*where, Named(name)))
        if item is None:
            added.append({"name": name, "value": value})
        elif not same(item.get("value"), value):
            yield SetEntry((*where, Named(name)), "value", value)
    if added and not _is_list(job.get(where)):
        yield SetEntry(container, "env", added)
    else:
        yield from (InsertItem(where, item) for item in added)


# --- inferenceservice.yaml ----------------------------------------------------------------------------------------


def edit_service(data: bytes, path: str, fields: ServiceFields) -> bytes:
    """Return `data` with the owned fields of its InferenceService set.

    Raises:
        InvalidInput: The file cannot be read or edited, or its predictor has no `model`.
    """
    return _apply(_load(data, path, SERVICE_KIND), _service_values(fields))


def derive_canary(stable: bytes, path: str, fields: ServiceFields) -> bytes:
    """Return the canary's file: the champion's with another name and release, so that people's edits carry over.

    Raises:
        InvalidInput: The champion's file cannot be read or edited.
    """
    return edit_service(stable, path, fields)


def read_service(data: bytes, path: str) -> ServiceFields:
    """Return the owned values of an InferenceService.

    Raises:
        InvalidInput: One is missing.
    """
    service = _load(data, path, SERVICE_KIND)
    return ServiceFields(
        name=service.text((*_METADATA, "name")),
        namespace=service.get((*_METADATA, "namespace")) or "",
        model=service.text((*_LABELS, names.MODEL_LABEL)),
        release=service.text((*_LABELS, names.RELEASE_LABEL)),
        storage_uri=service.text((*_MODEL, "storageUri")),
        artifact_digest=service.text((*_ANNOTATIONS, names.ARTIFACT_DIGEST_ANNOTATION)),
    )


@lru_cache(maxsize=COMPARED)
def differences_service(data: bytes, path: str, fields: ServiceFields) -> tuple[Difference, ...]:
    """Return where the owned fields of an InferenceService are not `fields`; KServe's traffic fields must be absent."""
    service = _load(data, path, SERVICE_KIND)
    found = list(_differences(service, _service_values(fields)))
    for pointer in (("spec", "predictor", "canaryTrafficPercent"), ("spec", "canary")):
        value = service.get(pointer)
        if value is not None:
            found.append(_difference(service, pointer, None, value))
    return tuple(found)


def _service_values(fields: ServiceFields) -> list[_Value]:
    return [
        _Value(mapping=_METADATA, key="name", value=fields.name),
        _Value(mapping=_LABELS, key=INSTANCE_LABEL, value=fields.name),
        _Value(mapping=_LABELS, key=names.MODEL_LABEL, value=fields.model),
        _Value(mapping=_LABELS, key=names.RELEASE_LABEL, value=fields.release),
        _Value(mapping=_ANNOTATIONS, key=names.ARTIFACT_DIGEST_ANNOTATION, value=fields.artifact_digest),
        _Value(mapping=_MODEL, key="storageUri", value=fields.storage_uri),
    ]


# --- route.yaml ---------------------------------------------------------------------------------------------------


def backend_names(model: str) -> tuple[str, str]:
    """Return the backends of the baseline and of the canary, as KServe names its services."""
    return f"{model}-predictor", f"{model}{names.CANARY_SUFFIX}-predictor"


def edit_route(data: bytes, path: str, fields: RouteFields) -> bytes:
    """Return `data` with both weights, the cohort and the label tolerance, where there is one, of its HTTPRoute set.

    Raises:
        InvalidInput: The file cannot be read or edited, or no rule has both backends.
    """
    route = _load(data, path, ROUTE_KIND)
    return _apply(route, [*_route_values(route, fields), *_tolerance_values(fields)])


def read_route(data: bytes, path: str) -> RouteFields:
    """Return the owned values of an HTTPRoute.

    Raises:
        InvalidInput: A weight or the cohort is missing, or the weights do not add up to 100.
    """
    route = _load(data, path, ROUTE_KIND)
    model = route.text((*_LABELS, names.MODEL_LABEL))
    places = [(*backend, "weight") for backend in _backends(route, model)]
    weights = [route.get(place) for place in places]
    if any(type(one) is not int or not 0 <= one <= 100 for one in weights) or sum(weights) != 100:
        raise InvalidInput([route.problem(places[1], f"the weights {weights} must be percents that add up to 100")])
    return RouteFields(
        model=model,
        namespace=route.get((*_METADATA, "namespace")) or "",
        canary_weight_percent=weights[1],
        cohort=route.text((*_ANNOTATIONS, names.COHORT_ANNOTATION)),
    )


@lru_cache(maxsize=COMPARED)
def differences_route(data: bytes, path: str, fields: RouteFields) -> tuple[Difference, ...]:
    """Return where the owned fields of an HTTPRoute are not `fields`."""
    route = _load(data, path, ROUTE_KIND)
    return tuple(_differences(route, _route_values(route, fields)))


def _backends(route: _Manifest, model: str) -> tuple[Pointer, Pointer]:
    """Return where the two backends are: in the one rule that names both."""
    baseline, canary = backend_names(model)
    rules = route.get(("spec", "rules"))
    for index in range(len(rules) if _is_list(rules) else 0):
        references: Pointer = ("spec", "rules", index, "backendRefs")
        pair: tuple[Pointer, Pointer] = ((*references, Named(baseline)), (*references, Named(canary)))
        if all(isinstance(route.get(one), dict) for one in pair):
            return pair
    message = f"no rule has the backends {baseline} and {canary}"
    raise InvalidInput([route.problem(("spec", "rules"), message)])


def _route_values(route: _Manifest, fields: RouteFields) -> list[_Value]:
    baseline, canary = _backends(route, fields.model)
    return [
        _Value(mapping=_LABELS, key=names.MODEL_LABEL, value=fields.model),
        _Value(mapping=_ANNOTATIONS, key=names.COHORT_ANNOTATION, value=fields.cohort),
        _Value(mapping=baseline, key="weight", value=100 - fields.canary_weight_percent),
        _Value(mapping=canary, key="weight", value=fields.canary_weight_percent),
    ]


def _tolerance_values(fields: RouteFields) -> list[_Value]:
    return [_Value(mapping=_ANNOTATIONS, key=key, value=text) for key, text in tolerance_annotation(fields).items()]


def tolerance_annotation(fields: RouteFields) -> dict[str, str]:
    """Return the annotation of the label tolerance; empty without one."""
    return {} if fields.label_tolerance is None else {names.TOLERANCE_ANNOTATION: str(fields.label_tolerance)}


# --- rollout.yaml -------------------------------------------------------------------------------------------------


def edit_rollout(data: bytes, path: str, fields: RolloutFields) -> bytes:
    """Return `data` with the four lines of a rollout set.

    Raises:
        InvalidInput: The file cannot be read or edited.
    """
    return _apply(_load(data, path, ROLLOUT_KIND), rollout_values(fields))


def rollout_values(fields: RolloutFields) -> list[_Value]:
    """Return the owned values of a rollout, in the order in which they are written."""
    return [
        _Value(mapping=(), key="number", value=fields.number),
        _Value(mapping=(), key="release", value=fields.release),
        _Value(mapping=(), key="plan", value=fields.plan),
        _Value(mapping=(), key="planDigest", value=fields.plan_digest),
    ]


# --- kustomization.yaml -------------------------------------------------------------------------------------------


def list_resource(data: bytes, path: str, resource: str) -> bytes:
    """Return a kustomization that lists `resource`: unchanged when it does, and undone exactly by `unlist_resource`.

    Raises:
        InvalidInput: The file cannot be read or edited.
    """
    kustomization = _load(data, path, KUSTOMIZATION_KIND)
    listed = kustomization.get(("resources",))
    if _is_list(listed) and resource in listed:
        return data
    change = InsertItem(("resources",), resource) if _is_list(listed) else SetEntry((), "resources", [resource])
    return _apply(kustomization, (), (change,))


def unlist_resource(data: bytes, path: str, resource: str) -> bytes:
    """Return a kustomization that does not list `resource`: unchanged when it does not.

    Raises:
        InvalidInput: The file cannot be read or edited.
    """
    kustomization = _load(data, path, KUSTOMIZATION_KIND)
    if resource not in listed_resources(data, path):
        return data
    return _apply(kustomization, (), (RemoveItem(("resources",), resource),))


@lru_cache(maxsize=COMPARED)
def listed_resources(data: bytes, path: str) -> tuple[str, ...]:
    """Return what a kustomization lists, in order.

    Raises:
        InvalidInput: The file cannot be read, or `resources` is no list of strings.
    """
    kustomization = _load(data, path, KUSTOMIZATION_KIND)
    listed = kustomization.get(("resources",))
    if listed is None:
        return ()
    if not _is_list(listed) or not all(isinstance(one, str) for one in listed):
        raise InvalidInput([kustomization.problem(("resources",), "must be a list of file names")])
    return tuple(listed)
