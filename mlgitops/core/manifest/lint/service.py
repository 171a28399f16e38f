"""Rules for InferenceServices and HTTPRoutes: what KServe ignores, refuses late, or does all at once."""

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from mlgitops.core.errors import InvalidInput
from mlgitops.core.manifest import fields as names
from mlgitops.core.manifest.lint.rule import Finding, Pointer, Subject, add, check, get, items
from mlgitops.core.manifest.owned import backend_names
from mlgitops.core.names import Digest

KIND: Final = "InferenceService"
ROUTE: Final = "HTTPRoute"
MODE_ANNOTATION: Final = "serving.kserve.io/deploymentMode"
MODES: Final = ("Standard", "Knative", "ModelMesh")
LEGACY_MODES: Final[Mapping[str, str]] = {"RawDeployment": "Standard", "Serverless": "Knative"}
SCHEMES: Final = (
    *("gs", "s3", "pvc", "file", "https", "http", "hdfs", "webhdfs", "oci", "oci+native", "oci+fetch", "hf"),
)
_PREDICTOR: Final[Pointer] = ("spec", "predictor")
_URI: Final[Pointer] = (*_PREDICTOR, "model", "storageUri")
_PERCENT: Final[Pointer] = (*_PREDICTOR, "canaryTrafficPercent")
_CANARY: Final[Pointer] = ("spec", "canary")
_MODE: Final[Pointer] = ("metadata", "annotations", MODE_ANNOTATION)
_LABEL: Final = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_CONTENT: Final = re.compile(r"(?<![0-9a-f])[0-9a-f]{12,64}(?![0-9a-f])")
"""A release or a digest in a URI."""
_VERSION: Final = re.compile(r"[0-9]{1,11}")
"""A version's folder; twelve digits can be a release."""
_SCALING: Final = ("maxReplicas", "scaleTarget", "scaleMetric", "autoScaling", "workerSpec")
_LONGEST_NAME: Final = 63
_OLD_FORMS: Final = ("tensorflow", "sklearn", "xgboost", "pytorch", "onnx", "triton", "lightgbm", "pmml", "paddle")


def _mode(value: Any) -> str:
    """Return the mode that an object names, in today's spelling; empty when it names none."""
    mode = get(value, *_MODE)
    return LEGACY_MODES.get(mode, mode) if isinstance(mode, str) else ""


def _canaries(subject: Subject) -> Iterator[tuple[Pointer, Mapping[str, Any]]]:
    for index, one in enumerate(items(subject.document.value, *_CANARY)):
        yield (*_CANARY, index), one if isinstance(one, dict) else {}


def _is_number(value: Any) -> bool:
    return type(value) is int


_NAME = add(
    "service-name",
    "error",
    what="A name that is no DNS label, or that is too long",
    why="KServe refuses it, or makes a host name that no resolver accepts.",
    mend="write lower-case letters, digits and '-', starting with a letter",
)


@check(_NAME, KIND)
def _name(subject: Subject) -> Iterator[Finding]:
    longest = len(f"{subject.name}-predictor")
    if not _LABEL.fullmatch(subject.name) or longest > _LONGEST_NAME:
        yield ("metadata", "name"), f"{subject.name!r:.80} cannot be the name of a service"


_IGNORED = add(
    "service-canary-percent",
    "error",
    what="canaryTrafficPercent outside Knative mode, or outside 0 to 100",
    why="In Standard mode KServe ignores it without a word: all traffic moves at once.",
    mend="remove it: route.yaml splits the traffic",
)


@check(_IGNORED, KIND)
def _ignored(subject: Subject) -> Iterator[Finding]:
    percent = subject.get(*_PERCENT)
    if percent is None:
        return
    if _mode(subject.document.value) != "Knative":
        yield _PERCENT, "canaryTrafficPercent is ignored in this mode"
    elif not _is_number(percent) or not 0 <= percent <= 100:
        yield _PERCENT, f"{percent!r:.60} is no percent"


_SPEC_CANARY = add(
    "service-canary-spec",
    "error",
    what="spec.canary",
    why="KServe up to v0.20.0 starts the canary and sends it nothing; later ones split only with the Gateway API.",
    mend="use a second InferenceService behind route.yaml; or allow this, with the KServe version as the reason",
)


@check(_SPEC_CANARY, KIND)
def _spec_canary(subject: Subject) -> Iterator[Finding]:
    if subject.get(*_CANARY) is not None:
        yield _CANARY, "spec.canary may get no traffic"


_CANARY_MODE = add(
    "service-canary-mode",
    "error",
    what="spec.canary without the annotation that names Standard mode",
    why="KServe refuses it unless the object itself says exactly Standard.",
    mend=f"add the annotation {MODE_ANNOTATION}: Standard",
    can_be_allowed=False,
)


@check(_CANARY_MODE, KIND)
def _canary_mode(subject: Subject) -> Iterator[Finding]:
    if subject.get(*_CANARY) is not None and subject.annotation(MODE_ANNOTATION) != "Standard":
        yield _CANARY, "the object does not say that its mode is Standard"


_SHAPE = add(
    "service-canary-shape",
    "error",
    what="Canaries with percents outside 0 to 100 or above 100 together, one name twice, or scaling of their own",
    why="KServe refuses them.",
    mend="give each a name and a share, and leave scaling to the predictor",
    can_be_allowed=False,
)


@check(_SHAPE, KIND)
def _shape(subject: Subject) -> Iterator[Finding]:
    taken, total = [subject.get(*_PREDICTOR, "name") or ""], 0
    for pointer, one in _canaries(subject):
        percent, name = one.get("trafficPercent", 0), get(one, "predictor", "name")
        if not _is_number(percent) or not 0 <= percent <= 100:
            yield (*pointer, "trafficPercent"), f"{percent!r:.60} is no percent"
        else:
            total += percent
        if not name or name in taken:
            yield (*pointer, "predictor"), f"the name {name!r:.60} is missing or taken"
        taken.append(name)
        for key in _SCALING:
            if get(one, "predictor", key) is not None:
                yield (*pointer, "predictor", key), f"a canary cannot have {key}"
    if total > 100:
        yield _CANARY, f"the canaries take {total} % together"


_MUTABLE = add(
    "service-mutable-uri",
    "error",
    what="A storageUri that does not contain the release or the digest",
    why="KServe never loads new bytes under an old URI; two replicas would serve different models.",
    mend="write a URI that names its content, as mlgitops does",
)


@check(_MUTABLE, KIND)
def _mutable(subject: Subject) -> Iterator[Finding]:
    uri = subject.get(*_URI)
    if isinstance(uri, str) and (not _CONTENT.search(uri) or "latest" in re.split(r"[/:@]", uri)):
        yield _URI, f"bytes can change under {uri!r:.160}"


_SCHEME = add(
    "service-uri",
    "error",
    what="A missing storageUri, one with an unknown scheme, or one that points at the version folder",
    why="It is admitted, and the server then finds nothing to load: versions are looked for one level below.",
    mend="write the URI of the folder above the version, with a scheme that KServe knows",
)


@check(_SCHEME, KIND)
def _scheme(subject: Subject) -> Iterator[Finding]:
    if not isinstance(subject.get(*_PREDICTOR, "model"), dict):
        return
    uri = subject.get(*_URI)
    if not isinstance(uri, str) or not uri:
        if subject.get(*_PREDICTOR, "model", "storage") is None and subject.get(*_PREDICTOR, "storageUris") is None:
            yield _URI, "the predictor has no storageUri"
        return
    scheme, separator, rest = uri.partition("://")
    if not separator or scheme not in SCHEMES:
        yield _URI, f"{uri!r:.160} has no scheme that KServe knows"
    elif _VERSION.fullmatch(rest.rstrip("/").rpartition("/")[2]):
        yield _URI, f"{uri!r:.160} points at the version folder"


_BIG_BANG = add(
    "big-bang",
    "error",
    what="A new model for all requests at once",
    why="Nothing compares it with the old one, and every request pays for a fault.",
    mend="use `mlgitops promote`",
)


@check(_BIG_BANG, KIND)
def _big_bang(subject: Subject) -> Iterator[Finding]:
    before, now = get(subject.previous, *_URI), subject.get(*_URI)
    if subject.previous is None or before in (None, now):
        return
    split = subject.get(*_CANARY) or (_mode(subject.document.value) == "Knative" and subject.get(*_PERCENT) is not None)
    canary = f"{subject.name}{names.CANARY_SUFFIX}"
    tried = [
        get(one, *_URI)
        for one in (*subject.others, *subject.others_before)
        if get(one, "kind") == KIND and get(one, "metadata", "name") == canary
    ]
    is_canary = subject.name.endswith(names.CANARY_SUFFIX)
    if not split and not is_canary and now not in tried:
        yield _URI, "the model changes for all requests at once"


_MODE_CHANGED = add(
    "service-mode-changed",
    "error",
    what="Another deployment mode for an existing service",
    why="KServe refuses the change, and the GitOps engine stays out of sync.",
    mend="keep the mode; make a new service to change it",
    can_be_allowed=False,
)


@check(_MODE_CHANGED, KIND)
def _mode_changed(subject: Subject) -> Iterator[Finding]:
    before, now = _mode(subject.previous), _mode(subject.document.value)
    if before and before != now:
        yield _MODE, f"the mode changes from {before} to {now or 'the default'}"


_MODEL_NAME = add(
    "service-model-name",
    "error",
    what="predictor.model.name",
    why="KServe refuses it.",
    mend="remove it: the service's name is the model's",
    can_be_allowed=False,
)


@check(_MODEL_NAME, KIND)
def _model_name(subject: Subject) -> Iterator[Finding]:
    if subject.get(*_PREDICTOR, "model", "name"):
        yield (*_PREDICTOR, "model", "name"), "the field is not allowed here"


_RENAMED = add(
    "service-predictor-renamed",
    "error",
    what="Another predictor.name without another model",
    why="KServe refuses it: the name says which deployment serves.",
    mend="change it together with storageUri, or not at all",
    can_be_allowed=False,
)


@check(_RENAMED, KIND)
def _renamed(subject: Subject) -> Iterator[Finding]:
    if subject.previous is None:
        return
    pointer = (*_PREDICTOR, "name")
    changed = get(subject.previous, *pointer) != subject.get(*pointer)
    if changed and get(subject.previous, *_URI) == subject.get(*_URI):
        yield pointer, "the predictor is renamed and the model stays"


_PYTHONPATH = add(
    "service-pythonpath",
    "error",
    what="PYTHONPATH set for a server",
    why="KServe refuses it in every container.",
    mend="remove it",
    can_be_allowed=False,
)


@check(_PYTHONPATH, KIND)
def _pythonpath(subject: Subject) -> Iterator[Finding]:
    places: list[Pointer] = [(*_PREDICTOR, "model")]
    places += [
        (*_PREDICTOR, "containers", index) for index in range(len(items(subject.get(*_PREDICTOR), "containers")))
    ]
    for place in places:
        for index, one in enumerate(items(subject.get(*place), "env")):
            if get(one, "name") == "PYTHONPATH":
                yield (*place, "env", index), "PYTHONPATH is set"


_STRATEGY = add(
    "service-deployment-strategy",
    "error",
    what="deploymentStrategy in Knative mode",
    why="KServe refuses it: Knative has revisions of its own.",
    mend="remove it",
    can_be_allowed=False,
)


@check(_STRATEGY, KIND)
def _strategy(subject: Subject) -> Iterator[Finding]:
    pointer = (*_PREDICTOR, "deploymentStrategy")
    if _mode(subject.document.value) == "Knative" and subject.get(*pointer) is not None:
        yield pointer, "there is no deployment whose strategy it could be"


_DIGEST = add(
    "service-artifact-digest",
    "error",
    what="No digest of the model's files",
    why="Nothing could tell whether the bytes that are loaded are the bytes that were judged.",
    mend=f"let mlgitops write the annotation {names.ARTIFACT_DIGEST_ANNOTATION}",
)


@check(_DIGEST, KIND)
def _digest(subject: Subject) -> Iterator[Finding]:
    found = subject.annotation(names.ARTIFACT_DIGEST_ANNOTATION)
    try:
        Digest(found if isinstance(found, str) else "")
    except InvalidInput:
        pointer: Pointer = ("metadata", "annotations", names.ARTIFACT_DIGEST_ANNOTATION)
        yield pointer, "the annotation with the digest is missing or malformed"


_REPLICAS = add(
    "service-replicas",
    "error",
    what="Replicas that are no numbers, below 0, or more at least than at most",
    why="KServe refuses them.",
    mend="write numbers, minReplicas not above maxReplicas",
    can_be_allowed=False,
)


@check(_REPLICAS, KIND)
def _replicas(subject: Subject) -> Iterator[Finding]:
    least, most = subject.get(*_PREDICTOR, "minReplicas"), subject.get(*_PREDICTOR, "maxReplicas")
    for key, count in (("minReplicas", least), ("maxReplicas", most)):
        if count is not None and (not _is_number(count) or count < 0):
            yield (*_PREDICTOR, key), f"{count!r:.60} replicas"
    if _is_number(least) and _is_number(most) and 0 < most < least:
        yield (*_PREDICTOR, "maxReplicas"), f"at most {most} replicas, and at least {least}"


# --- warnings -----------------------------------------------------------------------------------------------------

_NO_MODE = add(
    "service-mode",
    "warning",
    what="No deployment mode, or an old spelling of one",
    why="Clusters differ in their default, and it cannot be changed later.",
    mend=f"add the annotation {MODE_ANNOTATION}: Standard",
)
_FIRST = add(
    "service-canary-first",
    "warning",
    what="canaryTrafficPercent on a new service",
    why="The first revision gets everything.",
    mend="remove it until there is a second model",
)
_OPEN = add(
    "service-canary-open",
    "warning",
    what="A change of a service whose canary is open",
    why="Each makes a new revision, and what was measured is no longer what serves.",
    mend="finish or roll back the rollout first",
)
_ZERO = add(
    "service-scale-to-zero",
    "warning",
    what="minReplicas: 0",
    why="The canary's metrics vanish with its pods, and the first request waits for a cold start.",
    mend="write minReplicas: 1",
)
_PROTOCOL = add(
    "service-protocol",
    "warning",
    what="A protocol that TensorFlow Serving does not speak",
    why="No runtime takes the model: NoSupportingRuntime.",
    mend="write protocolVersion: v1",
)
_OLD_FORM = add(
    "service-old-form",
    "warning",
    what="A predictor in the old form",
    why="KServe rewrites it, so that the cluster never equals git.",
    mend="write predictor.model with modelFormat",
)
_TOO_FEW = add(
    "service-max-replicas",
    "warning",
    what="A canary whose share needs more replicas than maxReplicas allows",
    why="It answers its share more slowly than the predictor, and is judged for that.",
    mend="raise maxReplicas",
)


@check(_NO_MODE, KIND)
def _no_mode(subject: Subject) -> Iterator[Finding]:
    mode = subject.annotation(MODE_ANNOTATION)
    if mode not in MODES:
        yield _MODE, "there is no deployment mode" if mode is None else f"{mode!r:.60} is not today's spelling"


@check(_FIRST, KIND)
def _first(subject: Subject) -> Iterator[Finding]:
    if subject.get(*_PERCENT) is not None and subject.previous is None and subject.others_before:
        yield _PERCENT, "the first revision gets everything"


@check(_OPEN, KIND)
def _open(subject: Subject) -> Iterator[Finding]:
    percent = get(subject.previous, *_PERCENT)
    if percent is None or percent != subject.get(*_PERCENT):
        return
    if get(subject.previous, *_PREDICTOR) != subject.get(*_PREDICTOR):
        yield _PREDICTOR, "the predictor changes while its canary is open"


@check(_ZERO, KIND)
def _zero(subject: Subject) -> Iterator[Finding]:
    if subject.get(*_PREDICTOR, "minReplicas") == 0:
        yield (*_PREDICTOR, "minReplicas"), "the service may have no pod"


@check(_PROTOCOL, KIND)
def _protocol(subject: Subject) -> Iterator[Finding]:
    model: Pointer = (*_PREDICTOR, "model")
    protocol = subject.get(*model, "protocolVersion")
    is_stock = subject.get(*model, "runtime") is None
    if subject.get(*model, "modelFormat", "name") == "tensorflow" and is_stock and protocol in ("v2", "grpc-v2"):
        yield (*model, "protocolVersion"), f"the stock runtime does not speak {protocol}"


@check(_OLD_FORM, KIND)
def _old_form(subject: Subject) -> Iterator[Finding]:
    for form in _OLD_FORMS:
        if subject.get(*_PREDICTOR, form) is not None:
            yield (*_PREDICTOR, form), f"predictor.{form} is the old form"


@check(_TOO_FEW, KIND)
def _too_few(subject: Subject) -> Iterator[Finding]:
    most, least = subject.get(*_PREDICTOR, "maxReplicas"), subject.get(*_PREDICTOR, "minReplicas")
    for pointer, one in _canaries(subject):
        percent = one.get("trafficPercent")
        if _is_number(most) and most and _is_number(percent) and _is_number(least):
            needed = math.ceil(least * percent / 100)
            if needed > most:
                yield pointer, f"its share needs {needed} replicas; at most {most} are allowed"


# --- routes -------------------------------------------------------------------------------------------------------

_WEIGHTS = add(
    "route-weights",
    "error",
    what="A route without both backends, or with weights that do not add up to 100",
    why="Shares are then not the percents that people read, or requests are answered with an error.",
    mend="let mlgitops write the weights of the rule it scaffolded",
    can_be_allowed=False,
)


@check(_WEIGHTS, ROUTE)
def _weights(subject: Subject) -> Iterator[Finding]:
    model = subject.get("metadata", "labels", names.MODEL_LABEL)
    if not isinstance(model, str):
        return  # A route of somebody else.
    for index, rule in enumerate(items(subject.document.value, "spec", "rules")):
        pointer: Pointer = ("spec", "rules", index, "backendRefs")
        weights = {get(one, "name"): get(one, "weight") for one in items(rule, "backendRefs") if _named(one)}
        if set(backend_names(model)) <= set(weights):
            if not all(_is_number(one) and 0 <= one <= 100 for one in weights.values()) or sum(weights.values()) != 100:
                yield pointer, f"the weights {list(weights.values())!r:.80} are no percents that add up to 100"
            return
    yield ("spec", "rules"), f"no rule has the backends {' and '.join(backend_names(model))}"


def _named(reference: Any) -> bool:
    return isinstance(get(reference, "name"), str)


_COHORT = add(
    "route-cohort",
    "error",
    what="A route without the cohort annotation",
    why="Requests of one step could not be told from those of another.",
    mend=f"let mlgitops write the annotation {names.COHORT_ANNOTATION}",
    can_be_allowed=False,
)


@check(_COHORT, ROUTE)
def _cohort(subject: Subject) -> Iterator[Finding]:
    if not isinstance(subject.get("metadata", "labels", names.MODEL_LABEL), str):
        return
    cohort = subject.annotation(names.COHORT_ANNOTATION)
    if not isinstance(cohort, str) or not re.fullmatch(r"[0-9]+-[0-9]+", cohort):
        yield ("metadata", "annotations", names.COHORT_ANNOTATION), f"{cohort!r:.60} is no cohort like 3-1"
