"""Builds one folder of an environment repository as a GitOps engine does, with the fields that are honoured.

Kustomize can fetch remote bases, run plugins and patch anything; an environment folder needs none of it. The fields
in `HONOURED` mean what they mean to kustomize, every other one is refused, so that what is built here is what Argo CD
or Flux would build.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from mlgitops.adapters.cluster.objects import Kind, findings, identity, kinds_of
from mlgitops.core.errors import InvalidInput, Problem
from mlgitops.core.manifest.fields import KUSTOMIZATION_FILE
from mlgitops.core.manifest.read import Document, read_document, read_documents

HONOURED: Final = ("apiVersion", "kind", "resources", "namespace", "labels", "commonAnnotations")
_VERSIONS: Final = ("kustomize.config.k8s.io/v1beta1", "kustomize.config.k8s.io/v1")
_FOLDER_DEPTH: Final = 3

Read = Callable[[str], bytes | None]


def folders(paths: Iterable[str], environment: str) -> list[str]:
    """Return the folders of an environment that have a kustomization, from the paths of a snapshot."""
    parts = (path.split("/") for path in paths)
    return sorted(
        "/".join(part[:_FOLDER_DEPTH])
        for part in parts
        if len(part) == _FOLDER_DEPTH + 1
        and part[:2] == ["environments", environment]
        and part[3] == KUSTOMIZATION_FILE
    )


def build(
    read: Read, folder: str, *, namespace: str | None = None, kinds: Iterable[Kind] | None = None
) -> list[dict[str, Any]]:
    """Return the objects that `<folder>/kustomization.yaml` lists.

    Args:
        read: Returns a file of one revision by its path; None when there is none.
        folder: Like `environments/production/digits`.
        namespace: The environment's namespace, which every object must be in; None to take the kustomization's.
        kinds: Allowed API versions and kinds; None for those of the environment that the folder's path names.

    Raises:
        InvalidInput: Everything that is malformed, not honoured or not allowed, each with its place.
    """
    path = f"{folder}/{KUSTOMIZATION_FILE}"
    data = read(path)
    if data is None:
        raise InvalidInput("there is no kustomization", path=path)
    document = read_document(data, path)
    if not isinstance(document.value, Mapping):
        raise InvalidInput([document.problem("must be a mapping")])
    problems = list(_check(document, namespace))
    namespace = namespace or document.value.get("namespace")
    allowed = frozenset(kinds_of(folder.split("/")[1] if "/" in folder else folder) if kinds is None else kinds)
    objects: list[dict[str, Any]] = []
    for source in [] if problems else _sources(document, read, folder, problems):
        found = findings(source.value, allowed, namespace)
        problems += [source.problem(one.message, one.pointer, mend=one.mend) for one in found]
        if not problems:
            _add(objects, _transform(source.value, document.value, namespace), source, problems)
    if problems:
        raise InvalidInput(problems)
    return objects


def _check(document: Document, namespace: str | None) -> Iterable[Problem]:
    """Yield what is wrong with the kustomization itself."""
    values = document.value
    for key in values:
        if key not in HONOURED:
            mend = f"remove it; honoured: {', '.join(HONOURED)}"
            yield document.problem("is not honoured in an environment's kustomization", (key,), mend=mend)
    if (
        values.get("apiVersion", _VERSIONS[0]) not in _VERSIONS
        or values.get("kind", "Kustomization") != "Kustomization"
    ):
        yield document.problem(f"must be a Kustomization of {_VERSIONS[0]}", ("kind",))
    written = values.get("namespace")
    if written is not None and not isinstance(written, str):
        yield document.problem("must be a string", ("namespace",))
    elif written and namespace and written != namespace:
        message = f"{written!r} is not this environment's namespace, {namespace!r}"
        yield document.problem(message, ("namespace",), mend=f"write {namespace}")
    if not isinstance(values.get("resources", []), list | None):
        yield document.problem("must be a list of file names", ("resources",))
    yield from _check_strings(document, values.get("commonAnnotations"), ("commonAnnotations",))
    labels = values.get("labels")
    if labels is not None and not isinstance(labels, list):
        yield document.problem("must be a list of mappings with `pairs`", ("labels",))
        return
    for number, entry in enumerate(labels or []):
        yield from _check_label(document, entry, number)


def _check_label(document: Document, entry: Any, number: int) -> Iterable[Problem]:
    if not isinstance(entry, Mapping):
        yield document.problem("must be a mapping with `pairs`", ("labels", number))
        return
    for key, value in entry.items():
        if key != "pairs" and value:
            mend = "only labels of the objects themselves are set"
            yield document.problem(
                "is not honoured in an environment's kustomization", ("labels", number, key), mend=mend
            )
    yield from _check_strings(document, entry.get("pairs"), ("labels", number, "pairs"))


def _check_strings(document: Document, values: Any, pointer: tuple[str | int, ...]) -> Iterable[Problem]:
    if values is None:
        return
    if not isinstance(values, Mapping):
        yield document.problem("must be a mapping of strings", pointer)
        return
    for key, value in values.items():
        if not isinstance(value, str):
            yield document.problem("must be a string", (*pointer, key), mend="quote it")


def _sources(document: Document, read: Read, folder: str, problems: list[Problem]) -> Iterable[Document]:
    """Yield the documents of the listed files, and note what cannot be read."""
    seen: set[str] = set()
    for number, written in enumerate(document.value.get("resources") or []):
        pointer = ("resources", number)
        name = written.removeprefix("./") if isinstance(written, str) else ""
        if "/" in name or not name.endswith((".yaml", ".yml")):
            message = f"{written!r:.120} is not a YAML file of this folder"
            mend = "list files of this folder by name; folders and remote bases are not built"
            problems.append(document.problem(message, pointer, mend=mend))
            continue
        data = read(f"{folder}/{name}")
        if data is None or name in seen:
            message = f"{name} is listed twice" if name in seen else f"there is no file {name} in this folder"
            problems.append(document.problem(message, pointer, mend="remove the line"))
            continue
        seen.add(name)
        try:
            yield from read_documents(data, f"{folder}/{name}")
        except InvalidInput as error:
            problems.extend(error.problems)


def _transform(manifest: Mapping[str, Any], kustomization: Mapping[str, Any], namespace: str | None) -> dict[str, Any]:
    """Return an object with the kustomization's namespace, labels and annotations."""
    metadata = {**manifest["metadata"]}
    if namespace is not None:
        metadata["namespace"] = namespace
    pairs = {
        key: text for entry in kustomization.get("labels") or [] for key, text in (entry.get("pairs") or {}).items()
    }
    for field, more in (("labels", pairs), ("annotations", kustomization.get("commonAnnotations") or {})):
        if more:
            metadata[field] = {**(metadata.get(field) or {}), **more}
    return {**manifest, "metadata": metadata}


def _add(objects: list[dict[str, Any]], built: dict[str, Any], source: Document, problems: list[Problem]) -> None:
    if identity(built) in {identity(one) for one in objects}:
        problems.append(source.problem(f"{' '.join(identity(built))} is there twice", ("metadata", "name")))
    objects.append(built)
