"""One model's folder in an environment: what it says, where it differs from what it must say, and how to mend it."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from mlgitops.core.errors import InvalidInput
from mlgitops.core.loading import load_rollout
from mlgitops.core.manifest import fields as names
from mlgitops.core.manifest import owned, render
from mlgitops.core.manifest.owned import Difference, RolloutFields, RouteFields, ServiceFields
from mlgitops.core.projection import Desired, Target

GENERATION_BYTES = 20
Read = Callable[[str], bytes | None]


@dataclass(frozen=True, kw_only=True)
class Folder:
    """Where one model's manifests for one environment are."""

    environment: str
    model: str
    namespace: str
    serving: Mapping[str, Any]
    """The `serving` section of the model's configuration, for a first scaffold."""
    label_tolerance: float | None = None
    """`evaluation.labelTolerance` of the model's configuration; None without one."""

    def path(self, name: str) -> str:
        """Return the path of one of its files."""
        return f"environments/{self.environment}/{self.model}/{name}"


def generation(read: Read, folder: Folder) -> int:
    """Return the generation that `main` shows; 0 without the file, and where it holds no number (see `unreadable`)."""
    data = read(folder.path(names.GENERATION_FILE))
    return int(data) if data is not None and _is_number(data) else 0


def _is_number(data: bytes) -> bool:
    return len(data) <= GENERATION_BYTES and data.strip().isdigit()


def rollout(read: Read, folder: Folder) -> RolloutFields | None:
    """Return what `rollout.yaml` asks for; None without the file, and where it cannot be read (see `unreadable`)."""
    path = folder.path(names.ROLLOUT_FILE)
    data = read(path)
    try:
        return None if data is None else load_rollout(data, path)
    except InvalidInput:
        return None


def unreadable(read: Read, folder: Folder) -> tuple[str, ...]:
    """Say in words which of `rollout.yaml` and `generation` nobody can read: somebody wrote into them by hand."""
    path = folder.path(names.GENERATION_FILE)
    data = read(path)
    found = [] if data is None or _is_number(data) else [f"{path}: the generation must be a number"]
    path = folder.path(names.ROLLOUT_FILE)
    data = read(path)
    try:
        _ = None if data is None else load_rollout(data, path)
    except InvalidInput as error:
        found += [str(problem) for problem in error.problems]
    return tuple(found)


def differences(read: Read, folder: Folder, desired: Desired) -> tuple[str, ...]:
    """Say in words where the owned fields of the manifests are not `desired`; `rollout.yaml` is not looked at."""
    try:
        return tuple(_differences(read, folder, desired))
    except InvalidInput as error:
        return tuple(str(problem) for problem in error.problems)


def _differences(read: Read, folder: Folder, desired: Desired) -> Iterator[str]:
    for name, target in ((names.SERVICE_FILE, desired.stable), (names.CANARY_FILE, desired.canary)):
        data = read(folder.path(name))
        yield from _presence(folder.path(name), data, target is not None)
        if data is not None and target is not None:
            wanted = _service(folder, name, target)
            yield from _words(folder.path(name), owned.differences_service(data, folder.path(name), wanted))
    path = folder.path(names.ROUTE_FILE)
    data = read(path)
    yield from _presence(path, data, desired.stable is not None)
    if data is not None and desired.stable is not None:
        yield from _words(path, owned.differences_route(data, path, _route(folder, desired)))
    yield from _listing(read, folder, desired)


def _listing(read: Read, folder: Folder, desired: Desired) -> Iterator[str]:
    path = folder.path(names.KUSTOMIZATION_FILE)
    data = read(path)
    listed = () if data is None else owned.listed_resources(data, path)
    for name, wanted in _resources(desired).items():
        if (name in listed) is not wanted:
            yield f"{path}: {name} is {'not listed' if wanted else 'listed'}"


def _presence(path: str, data: bytes | None, wanted: bool) -> Iterator[str]:  # noqa: FBT001 - read in one place
    if (data is not None) is not wanted:
        yield f"{path}: the file is {'missing' if wanted else 'there'}"


def _words(path: str, found: tuple[Difference, ...]) -> Iterator[str]:
    for one in found:
        yield f"{path}:{one.line}: {one.pointer} is {one.found!r}, not {one.expected!r}"


def project(read: Read, folder: Folder, desired: Desired, number: int) -> dict[str, bytes | None]:
    """Return the files that make the folder say `desired`, at generation `number`; None deletes.

    Only owned fields are edited; a file that is right already comes back as it is.
    """
    files = {
        folder.path(names.ROLLOUT_FILE): _rollout_file(read, folder, desired.rollout),
        folder.path(names.SERVICE_FILE): _service_file(read, folder, desired.stable),
        folder.path(names.ROUTE_FILE): _route_file(read, folder, desired),
        folder.path(names.GENERATION_FILE): f"{number}\n".encode(),
    }
    stable = files[folder.path(names.SERVICE_FILE)]
    files[folder.path(names.CANARY_FILE)] = _canary_file(read, folder, desired.canary, stable)
    files[folder.path(names.KUSTOMIZATION_FILE)] = _kustomization_file(read, folder, desired)
    return {path: data for path, data in files.items() if data != read(path)}


def _rollout_file(read: Read, folder: Folder, wanted: RolloutFields | None) -> bytes | None:
    return None if wanted is None else rollout_file(read, folder, wanted)


def rollout_file(read: Read, folder: Folder, wanted: RolloutFields) -> bytes:
    """Return `rollout.yaml` asking for `wanted`."""
    path = folder.path(names.ROLLOUT_FILE)
    data = read(path)
    return _written(
        data,
        lambda text: owned.edit_rollout(text, path, wanted),
        lambda: render.render_rollout(wanted, model=folder.model, environment=folder.environment),
    )


def _written(data: bytes | None, edit: Callable[[bytes], bytes], scaffold: Callable[[], bytes]) -> bytes:
    """Edit a file, or write it anew where it is missing or nobody can read it: no rollback waits for a broken file."""
    if data is None:
        return scaffold()
    try:
        return edit(data)
    except InvalidInput:
        return scaffold()


def _service_file(read: Read, folder: Folder, target: Target | None) -> bytes | None:
    if target is None:
        return None
    path = folder.path(names.SERVICE_FILE)
    data, wanted = read(path), _service(folder, names.SERVICE_FILE, target)
    return _written(
        data,
        lambda text: owned.edit_service(text, path, wanted),
        lambda: render.render_service(folder.serving, wanted),
    )


def _canary_file(read: Read, folder: Folder, target: Target | None, stable: bytes | None) -> bytes | None:
    if target is None or stable is None:
        return None
    path = folder.path(names.CANARY_FILE)
    data, wanted = read(path), _service(folder, names.CANARY_FILE, target)
    return _written(
        data,
        lambda text: owned.edit_service(text, path, wanted),
        lambda: owned.derive_canary(stable, path, wanted),
    )


def _route_file(read: Read, folder: Folder, desired: Desired) -> bytes | None:
    if desired.stable is None:
        return None
    path = folder.path(names.ROUTE_FILE)
    data, wanted = read(path), _route(folder, desired)
    return _written(data, lambda text: owned.edit_route(text, path, wanted), lambda: render.render_route(wanted))


def _kustomization_file(read: Read, folder: Folder, desired: Desired) -> bytes:
    path = folder.path(names.KUSTOMIZATION_FILE)
    resources = _resources(desired)

    def edit(data: bytes) -> bytes:
        for name, wanted in resources.items():
            data = (owned.list_resource if wanted else owned.unlist_resource)(data, path, name)
        return data

    listed = [name for name, wanted in resources.items() if wanted]
    return _written(read(path), edit, lambda: render.render_kustomization(folder.namespace, listed))


def _resources(desired: Desired) -> dict[str, bool]:
    return {
        names.SERVICE_FILE: desired.stable is not None,
        names.ROUTE_FILE: desired.stable is not None,
        names.CANARY_FILE: desired.canary is not None,
    }


def _service(folder: Folder, name: str, target: Target) -> ServiceFields:
    return ServiceFields(
        name=folder.model + (names.CANARY_SUFFIX if name == names.CANARY_FILE else ""),
        namespace=folder.namespace,
        model=folder.model,
        release=target.release,
        storage_uri=target.storage_uri,
        artifact_digest=target.artifact_digest,
    )


def _route(folder: Folder, desired: Desired) -> RouteFields:
    return RouteFields(
        model=folder.model,
        namespace=folder.namespace,
        canary_weight_percent=desired.weight_percent,
        cohort=desired.cohort,
        label_tolerance=folder.label_tolerance,
    )
