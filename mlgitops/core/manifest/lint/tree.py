"""Linting a whole environment repository: every file in its place, and every name what the place says."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Final

from mlgitops.core.configuration import EnvironmentsConfiguration
from mlgitops.core.errors import InvalidInput, Problem, Severity
from mlgitops.core.loading import ENVIRONMENTS_FILE, load_environments, load_rollout
from mlgitops.core.manifest import fields as names
from mlgitops.core.manifest.lint.objects import identity, lint_objects
from mlgitops.core.manifest.lint.plans import lint_plans
from mlgitops.core.manifest.lint.rule import RULES, Rule, add, get
from mlgitops.core.manifest.lint.service import KIND as SERVICE
from mlgitops.core.manifest.lint.service import ROUTE
from mlgitops.core.manifest.lint.tfjob import KIND as TFJOB
from mlgitops.core.manifest.read import Document, read_document, read_documents
from mlgitops.core.manifest.validate import choose
from mlgitops.core.names import parse_name

Read = Callable[[str], bytes | None]
FOLDER: Final = "environments"
HONOURED: Final = ("apiVersion", "kind", "resources", "namespace", "labels", "commonAnnotations")
"""The kustomization fields that every engine, the embedded one too, takes alike."""
_API_VERSIONS: Final[Mapping[str, str]] = {
    TFJOB: "kubeflow.org/v1",
    SERVICE: "serving.kserve.io/v1beta1",
    ROUTE: "gateway.networking.k8s.io/v1",
}
_TRAINING_KINDS: Final = (TFJOB,)
_SERVING_KINDS: Final = (SERVICE, ROUTE)
_OWN_FILES: Final = (names.KUSTOMIZATION_FILE, names.ROLLOUT_FILE, names.GENERATION_FILE)
_MANIFESTS: Final = (names.TFJOB_FILE, names.SERVICE_FILE, names.CANARY_FILE, names.ROUTE_FILE)


def _tree_rule(name: str, severity: Severity, what: str, why: str, mend: str) -> Rule:
    return add(name, severity, what=what, why=why, mend=mend, can_be_allowed=False)


_PLACE = _tree_rule(
    "tree-place",
    "error",
    "A file where no model of a known environment is",
    "No engine applies it, and people believe that it is applied.",
    "put it into environments/<environment>/<model>/, with an environment of environments.yaml",
)
_KUSTOMIZATION = _tree_rule(
    "tree-kustomization",
    "error",
    "A model's folder without a kustomization.yaml, or with fields that the engines do not take alike",
    "The engines apply what it lists, and nothing else.",
    f"keep to the fields {', '.join(HONOURED)}",
)
_RESOURCE = _tree_rule(
    "tree-resource",
    "error",
    "A resource that is not a file of the folder",
    "The engine stops at it, or fetches what nobody reviewed.",
    "list files of the same folder by name",
)
_UNLISTED = _tree_rule(
    "tree-unlisted",
    "warning",
    "A manifest that the kustomization does not list",
    "It is not applied.",
    "list it, or remove it",
)
_KIND = _tree_rule(
    "tree-kind",
    "error",
    "A kind of object that does not belong into the environment",
    "Whoever can change a manifest could give themselves rights.",
    "training holds TFJobs; environments hold InferenceServices and HTTPRoutes",
)
_NAMESPACE = _tree_rule(
    "tree-namespace",
    "error",
    "Another namespace than the environment's",
    "The object would land in somebody else's.",
    "write the namespace that environments.yaml names, or none",
)
_OWNER = _tree_rule(
    "tree-name",
    "error",
    "An object whose name or model is not its folder's",
    "Two models would answer under one name.",
    "name it after the folder",
)
_TWICE = _tree_rule(
    "tree-duplicate",
    "error",
    "The same object twice",
    "Which one is applied is chance.",
    "keep one of them",
)
_ROLLOUT = _tree_rule(
    "tree-rollout",
    "error",
    "A rollout.yaml or generation that is malformed or names another folder",
    "Reconciling would stop for this model.",
    "restore what mlgitops wrote: see `git log -p` of this file",
)
_PLAN = _tree_rule(
    "tree-plan",
    "warning",
    "A rollout whose plan environments.yaml does not have, or has changed since",
    "The rollout keeps the plan it began with; the next one follows the new plan.",
    "nothing, if the change is meant",
)


@dataclass(frozen=True, kw_only=True)
class _Place:
    """One model's folder in one environment."""

    read: Read
    """The repository's files."""
    environment: str
    """`training`, or an environment of environments.yaml."""
    model: str
    """The model's name."""
    namespace: str
    """The only namespace its objects may be in."""
    files: Sequence[str]
    """Names of its files."""

    @property
    def folder(self) -> str:
        """Path of the folder."""
        return f"{FOLDER}/{self.environment}/{self.model}"


def lint_tree(
    read: Read, paths: Iterable[str], *, previous: Read | None = None, today: date | None = None
) -> list[Problem]:
    """Return every problem of an environment repository, in the order of the files.

    Args:
        read: Returns a file's bytes, None when it is not there.
        paths: Paths of all files, from the repository's root.
        previous: Like `read`, before the change; for rules about changes.
        today: The day on which annotations that allow something are judged; None to let expired ones pass.
    """
    configuration, problems = _configuration(read)
    namespaces: dict[str, str] | None = None
    if configuration is not None:
        namespaces = {one.name: one.namespace for one in configuration.environments}
        namespaces[names.TRAINING] = configuration.training_namespace
    folders: dict[tuple[str, str], list[str]] = defaultdict(list)
    for path in sorted(paths):
        parts = path.split("/")
        if parts[0] != FOLDER:
            continue
        fault = _fault(parts, namespaces)
        if fault:
            problems.append(_problem(_PLACE, path, fault))
        elif len(parts) == 4:
            folders[parts[1], parts[2]].append(parts[3])
    for (environment, model), files in folders.items():
        namespace = (namespaces or {}).get(environment, "")
        place = _Place(read=read, environment=environment, model=model, namespace=namespace, files=files)
        problems += _folder(place, configuration, previous, today)
    return problems


def _configuration(read: Read) -> tuple[EnvironmentsConfiguration | None, list[Problem]]:
    data = read(ENVIRONMENTS_FILE)
    if data is None:
        return None, [_problem(_PLACE, ENVIRONMENTS_FILE, "the file is missing")]
    try:
        return load_environments(data, ENVIRONMENTS_FILE), lint_plans(data, ENVIRONMENTS_FILE)
    except InvalidInput as error:
        return None, list(error.problems)


def _fault(parts: Sequence[str], namespaces: Mapping[str, str] | None) -> str | None:
    """Say why a path below environments/ is in no place; None when it is."""
    if len(parts) < 4:
        return None if parts[-1] in {"README.md", ".gitkeep"} else "the file is in no model's folder"
    if namespaces is not None and parts[1] not in namespaces:
        return f"there is no environment {parts[1]!r:.60}; {choose(parts[1], list(namespaces))}"
    try:
        parse_name(parts[2], "model")
    except InvalidInput as error:
        return error.problems[0].message
    return "the engines look at files directly in a model's folder" if len(parts) > 4 else None


def _folder(
    place: _Place, configuration: EnvironmentsConfiguration | None, previous: Read | None, today: date | None
) -> Iterator[Problem]:
    yield from _check_rollout(place, configuration)
    resources: list[str] = []
    yield from _check_kustomization(place, resources)
    for name in place.files:
        if name.endswith((".yaml", ".yml")) and name not in (*_OWN_FILES, *resources, names.TFJOB_FILE):
            yield _problem(_UNLISTED, f"{place.folder}/{name}", "the kustomization does not list it")
    # A job that is not listed at the moment is linted too: it will be edited and listed again.
    checked = [*resources, *(name for name in _MANIFESTS if name in place.files and name not in resources)]
    documents: list[Document] = []
    for name in checked:
        yield from _collect(place.read, f"{place.folder}/{name}", documents)
    yield from _check_objects(place, documents)
    yield from lint_objects(documents, previous=_before(place, checked, previous), today=today)


def _before(place: _Place, files: Sequence[str], previous: Read | None) -> list[Document] | None:
    if previous is None:
        return None
    documents: list[Document] = []
    for name in files:
        # What was wrong before the change is not this change's problem.
        list(_collect(previous, f"{place.folder}/{name}", documents))
    return documents


def _collect(read: Read, path: str, documents: list[Document]) -> Iterator[Problem]:
    data = read(path)
    if data is None:
        return
    try:
        documents += read_documents(data, path)
    except InvalidInput as error:
        yield from error.problems


def _check_rollout(place: _Place, configuration: EnvironmentsConfiguration | None) -> Iterator[Problem]:
    path = f"{place.folder}/{names.GENERATION_FILE}"
    data = place.read(path)
    if data is not None and not data.strip().isdigit():
        yield _problem(_ROLLOUT, path, "the generation is no number")
    path = f"{place.folder}/{names.ROLLOUT_FILE}"
    data = place.read(path)
    if data is None:
        return
    try:
        rollout = load_rollout(data, path)
    except InvalidInput as error:
        yield from error.problems
        return
    document = read_document(data, path)
    for key, wanted in (("model", place.model), ("environment", place.environment)):
        if document.value.get(key, wanted) != wanted:
            yield _at(_ROLLOUT, document, (key,), f"is not {wanted}, which the folder says")
    environment = configuration.environment(place.environment) if configuration else None
    if environment is not None and rollout.plan != environment.plan.name:
        yield _at(_PLAN, document, ("plan",), f"{place.environment} follows {environment.plan.name} now")
    elif environment is not None and rollout.plan_digest != str(environment.plan.digest):
        yield _at(_PLAN, document, ("planDigest",), f"the plan {rollout.plan} has changed since")


def _check_kustomization(place: _Place, resources: list[str]) -> Iterator[Problem]:
    """Check the kustomization, and collect the files it lists."""
    path = f"{place.folder}/{names.KUSTOMIZATION_FILE}"
    data = place.read(path)
    if data is None:
        yield _problem(_KUSTOMIZATION, path, "the file is missing")
        return
    try:
        document = read_document(data, path)
    except InvalidInput as error:
        yield from error.problems
        return
    value = document.value if isinstance(document.value, dict) else {}
    if value.get("kind") != "Kustomization":
        yield _at(_KUSTOMIZATION, document, ("kind",), "the file is no Kustomization")
    for key in value:
        if key not in HONOURED:
            yield _at(_KUSTOMIZATION, document, (key,), f"{key} is not honoured")
    if place.namespace and value.get("namespace", place.namespace) != place.namespace:
        yield _at(_NAMESPACE, document, ("namespace",), f"the environment's namespace is {place.namespace}")
    listed = value.get("resources")
    for index, name in enumerate(listed if isinstance(listed, list) else ()):
        if not isinstance(name, str) or "/" in name or name in _OWN_FILES or name not in place.files:
            yield _at(_RESOURCE, document, ("resources", index), f"{name!r:.80} is no manifest of this folder")
        elif name in resources:
            yield _at(_TWICE, document, ("resources", index), f"{name} is listed twice")
        else:
            resources.append(name)


def _check_objects(place: _Place, documents: Sequence[Document]) -> Iterator[Problem]:
    kinds = _TRAINING_KINDS if place.environment == names.TRAINING else _SERVING_KINDS
    first: dict[tuple[str, str], Document] = {}
    for document in documents:
        value = document.value
        kind, name = identity(value)
        if kind not in kinds or get(value, "apiVersion") != _API_VERSIONS[kind]:
            yield _at(_KIND, document, ("kind",), f"{get(value, 'apiVersion')}, {kind} is not allowed here")
            continue
        namespace = get(value, "metadata", "namespace")
        if place.namespace and namespace not in (None, place.namespace):
            yield _at(
                _NAMESPACE, document, ("metadata", "namespace"), f"the environment's namespace is {place.namespace}"
            )
        if (kind, name) in first:
            where = first[kind, name].path
            yield _at(_TWICE, document, ("metadata", "name"), f"{kind} {name} is in {where} already")
        first.setdefault((kind, name), document)
        yield from _check_owner(place, document, kind, name)


def _check_owner(place: _Place, document: Document, kind: str, name: str) -> Iterator[Problem]:
    model = get(document.value, "metadata", "labels", names.MODEL_LABEL)
    if model != place.model:
        yield _at(_OWNER, document, ("metadata", "labels", names.MODEL_LABEL), f"the model is not {place.model}")
    wanted = {names.SERVICE_FILE: place.model, names.CANARY_FILE: place.model + names.CANARY_SUFFIX}
    expected = wanted.get(document.path.rpartition("/")[2]) if kind == SERVICE else None
    if expected is not None and name != expected:
        yield _at(_OWNER, document, ("metadata", "name"), f"the {kind} of this file must be named {expected}")


def _problem(rule: Rule, path: str, message: str) -> Problem:
    return Problem(message=message, path=path, mend=rule.mend, rule=rule.name, severity=rule.severity)


def _at(rule: Rule, document: Document, pointer: tuple[str | int, ...], message: str) -> Problem:
    place = document.problem(message, pointer, mend=rule.mend)
    return Problem(
        message=message,
        path=place.path,
        line=place.line,
        column=place.column,
        pointer=place.pointer,
        mend=rule.mend,
        rule=rule.name,
        severity=RULES[rule.name].severity,
    )
