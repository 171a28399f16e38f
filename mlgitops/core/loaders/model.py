"""`mlgitops.yaml`: what no schema can say about it, and its value."""

import posixpath
from collections.abc import Mapping
from typing import Any, Final

from mlgitops.core.configuration import DataInput, DockerBuild, Evaluation, ModelConfiguration, Role, Training
from mlgitops.core.loaders.source import Source, gates, variable_fault
from mlgitops.core.manifest.fields import CANARY_SUFFIX, DATA_URI_VARIABLE
from mlgitops.core.manifest.validate import Path
from mlgitops.core.names import registry_host

_ROLES: Final = {"chief": "Chief", "worker": "Worker", "ps": "PS", "evaluator": "Evaluator"}
DOCKERFILE: Final = DockerBuild().dockerfile
_SINGLE: Final = ("chief", "evaluator")
_SYSTEM: Final = ("/app", "/bin", "/boot", "/dev", "/etc", "/lib", "/lib64", "/proc", "/sbin", "/sys", "/usr")
"""Where a volume would hide the image's own files."""
SIGNATURE: Final = "serving_default"
"""The signature that serving answers with."""
_EVALUATION_DEFAULTS: Final[Mapping[str, Any]] = {
    "inputs": "x",
    "labels": "y",
    "signature": SIGNATURE,
    "batchSize": 64,
    "slices": [],
    "command": None,
    "timeoutSeconds": 300,
    "memoryMegabytes": 4096,
    "confidence": 0.95,
}


def load(data: bytes, path: str) -> ModelConfiguration:
    """Return what `mlgitops.yaml` says; raises InvalidInput with every problem."""
    source = Source(data, path, "model")
    _check_name(source)
    _check_paths(source)
    _check_data(source)
    _check_training(source)
    _check_roles(source)
    _check_environment(source)
    _check_volumes(source)
    _check_evaluation(source)
    _check_command(source, ("test", "command"))
    _check_image(source)
    return _build(source.finish())


def _check_name(source: Source) -> None:
    name = source.sound("metadata", "name")
    if name and name.endswith(CANARY_SUFFIX):
        message = f"the name ends in {CANARY_SUFFIX}: it could be taken for the canary of another model"
        source.refuse(("metadata", "name"), message, f"choose a name like {name.removesuffix(CANARY_SUFFIX)}")


def _check_image(source: Source) -> None:
    source.check_path(("image", "dockerfile"))
    repository, engine = source.sound("image", "repository"), source.sound("image", "builder") == "docker"
    if (engine or source.sound("image", "push")) and (repository is None or registry_host(repository) is None):
        message = "the image is to be pushed, and its repository names no registry"
        mend = "begin it with the registry's host, like registry.example.com/team/digits or docker.io/team/digits"
        last = "repository" if repository else "builder" if engine else "push"
        source.refuse(("image", last), message, mend)
    for name in ("dockerfile", "arguments", "target", "platform"):
        if not engine and source.sound("image", name) is not None:
            message = f"{name} is for a Docker Engine; the embedded builder reads no Dockerfile"
            source.refuse(("image", name), message, "add `builder: docker`, or remove it")
    if engine and source.sound("image", "push") is False:
        message = "a Docker Engine's image is pushed: only a registry tells its digest"
        source.refuse(("image", "push"), message, "remove it, or use `builder: embedded`")


def _check_paths(source: Source) -> None:
    for index, _ in source.entries("inputs"):
        source.check_path(("inputs", index), whole=True)
    for index, _ in source.entries("data"):
        source.check_path(("data", index, "path"))
    source.check_path(("requirements",))
    source.check_path(("training", "script"), ending=".py")
    source.check_path(("training", "notebook"), ending=".ipynb")
    source.check_path(("evaluation", "data"), ending=".npz")


def _check_data(source: Source) -> None:
    entries = source.entries("data")
    source.check_unique([(("data", at, "path"), one["path"].rstrip("/")) for at, one in entries], "the data path")
    named = [(("data", at, "variable"), one["variable"]) for at, one in entries if "variable" in one]
    source.check_unique(named, "the variable")
    for pointer, name in named:
        fault = variable_fault(name, own=True)
        if fault:
            source.refuse(pointer, fault, "choose another name, like TRAINING_IMAGES_URI")
    if len(entries) > 1:
        for at, one in entries:
            if "variable" not in one:
                mend = "add `variable:`, like TRAINING_IMAGES_URI"
                source.refuse(("data", at), "with several entries each needs a variable of its own", mend)


def _check_training(source: Source) -> None:
    training = source.document.value.get("training") if isinstance(source.document.value, dict) else None
    if not isinstance(training, dict):
        return
    given = [key for key in ("script", "notebook", "command") if key in training]
    if len(given) != 1:
        message = f"there must be one of script, notebook and command, not {' and '.join(given) or 'none'}"
        source.refuse(("training",), message, "say how to train: `script: train.py`")
    if "command" in training and "arguments" in training:
        source.refuse(("training", "arguments"), "a command has its arguments in it", "add them to `command`")
    if "replicas" in training and "roles" in training:
        source.refuse(("training", "replicas"), "replicas is short for roles: only one can be there", "keep `roles`")
    _check_command(source, ("training", "command"))


def _check_command(source: Source, pointer: Path) -> None:
    command = source.sound(*pointer)
    if command and (not command[0].strip() or command[0].startswith("-")):
        source.refuse((*pointer, 0), f"{command[0]!r:.60} is no program", "begin with a program, like python")


def _check_roles(source: Source) -> None:
    section = "roles" if source.sound("training", "roles") is not None else "replicas"
    roles = source.sound("training", section)
    if roles is None:
        return
    pointer = ("training", section)
    if not {"chief", "worker"} & set(roles):
        source.refuse(pointer, "nobody trains: there is neither a chief nor a worker", "add `chief: 1`")
    if section == "roles":
        for name in _SINGLE:
            if roles.get(name, {}).get("replicas", 1) != 1:
                source.refuse((*pointer, name, "replicas"), f"there can be one {name} only", "write 1, or leave it out")
        for name, role in roles.items():
            _check_tolerations(source, (*pointer, name, "tolerations"), role)
    if source.sound("training", "successPolicy") == "AllWorkers" and "chief" in roles:
        message = "with a chief AllWorkers has no effect: the chief decides"
        source.refuse(("training", "successPolicy"), message, "leave it out, or train with workers only")


def _check_tolerations(source: Source, pointer: Path, role: Mapping[str, Any]) -> None:
    for at, one in enumerate(role.get("tolerations", ())):
        if one.get("operator") == "Exists" and "value" in one:
            source.refuse((*pointer, at, "value"), "with operator Exists there is no value", "leave the value out")
        if not one.get("key") and one.get("operator") != "Exists":
            source.refuse((*pointer, at), "without a key the operator must be Exists", "add `operator: Exists`")


def _check_environment(source: Source) -> None:
    variables = source.sound("training", "environment") or {}
    taken = {one.get("variable", DATA_URI_VARIABLE) for _, one in source.entries("data")}
    for name in variables:
        fault = variable_fault(name)
        if fault is None and name in taken:
            fault = f"{name} is the variable of a data entry"
        if fault:
            source.refuse(("training", "environment", name), fault, "choose another name")


def _check_volumes(source: Source) -> None:
    entries = source.entries("training", "volumes")
    where: Path = ("training", "volumes")
    source.check_unique([((*where, at, "name"), one["name"]) for at, one in entries], "the volume")
    mounts = [((*where, at, "mountPath"), _mount(one["mountPath"])) for at, one in entries]
    source.check_unique(mounts, "the mount path")
    for at, one in entries:
        if ("persistentVolumeClaim" in one) is ("emptyDir" in one):
            message = "there must be one of persistentVolumeClaim and emptyDir"
            source.refuse((*where, at), message, "add `emptyDir: {}` or `persistentVolumeClaim: {claimName: …}`")
    for pointer, mount in mounts:
        written = source.sound(*pointer)
        if ".." in written.split("/"):
            source.refuse(pointer, f"mount path {written!r:.60} leads upwards", "write it without '..'")
        elif mount in {"/", "/mnt"} or any(mount == one or mount.startswith(f"{one}/") for one in _SYSTEM):
            message = f"mount path {written!r:.60} would hide files of the image or the store"
            source.refuse(pointer, message, "choose a folder of its own, like /cache")


def _check_evaluation(source: Source) -> None:
    slices = source.entries("evaluation", "slices")
    source.check_unique([(("evaluation", "slices", at, "name"), one["name"]) for at, one in slices], "the slice")
    source.check_gates(("evaluation", "gates"), [one["name"] for _, one in slices])
    _check_command(source, ("evaluation", "command"))
    _check_evaluation_data(source)
    signature = source.sound("evaluation", "signature")
    if signature not in {None, SIGNATURE}:
        message = f"signature {signature!r:.60} would be evaluated and never served"
        source.refuse(("evaluation", "signature"), message, f"export the model with {SIGNATURE}, and leave this out")
    if source.sound("evaluation", "labelTolerance") is not None and source.sound("evaluation", "task") != "regression":
        message = "classes are right or wrong: there is no tolerance"
        source.refuse(("evaluation", "labelTolerance"), message, "leave it out, or write `task: regression`")


def _check_evaluation_data(source: Source) -> None:
    """Refuse an evaluation set that is trained on: every gate would pass on what the model has seen."""
    evaluation = source.sound("evaluation", "data")
    for _, one in source.entries("data"):
        trained = one["path"].rstrip("/")
        if evaluation and (evaluation == trained or evaluation.startswith(f"{trained}/")):
            message = f"the evaluation set is part of the training data {trained!r:.60}"
            source.refuse(("evaluation", "data"), message, "keep it beside that folder, like data/evaluation.npz")


def _build(value: Mapping[str, Any]) -> ModelConfiguration:
    name, training, image, test = (
        value["metadata"]["name"],
        value["training"],
        value.get("image", {}),
        value.get("test"),
    )
    requirements = value.get("requirements", "requirements.txt").rstrip("/")
    return ModelConfiguration(
        name=name,
        inputs=_inputs(value["inputs"], [requirements, *_main(training), *_dockerfile(image)]),
        data=tuple(
            DataInput(path=one["path"].rstrip("/"), variable=one.get("variable", DATA_URI_VARIABLE))
            for one in value.get("data", ())
        ),
        requirements=requirements,
        image_repository=image.get("repository", name),
        docker=_docker(image),
        push=image.get("push", False),
        training=_training(training),
        evaluation=_evaluation(value["evaluation"]),
        test_command=tuple(test["command"]) if test else (),
        test_timeout_seconds=int(test.get("timeoutSeconds", 600)) if test else 600,
        serving=_serving(value.get("serving", {})),
    )


def _docker(image: Mapping[str, Any]) -> DockerBuild | None:
    if image.get("builder") != "docker":
        return None
    return DockerBuild(
        dockerfile=image.get("dockerfile", DOCKERFILE),
        arguments=dict(image.get("arguments", {})),
        target=image.get("target"),
        platform=image.get("platform"),
    )


def _dockerfile(image: Mapping[str, Any]) -> list[str]:
    return [image.get("dockerfile", DOCKERFILE)] if image.get("builder") == "docker" else []


def _main(training: Mapping[str, Any]) -> list[str]:
    return [training[key] for key in ("script", "notebook") if key in training]


def _inputs(declared: list[str], implied: list[str]) -> tuple[str, ...]:
    """Return the inputs in the order declared, then those that always belong to them and are not covered."""
    found = list(dict.fromkeys(one.rstrip("/") for one in declared))
    for path in implied:
        if not any(one in {".", path} or path.startswith(f"{one}/") for one in found):
            found.append(path)
    return tuple(found)


def _training(value: Mapping[str, Any]) -> Training:
    return Training(
        command=_command(value),
        notebook=value.get("notebook"),
        roles=_roles(value),
        environment=dict(value.get("environment", {})),
        volumes=tuple(_volume(one) for one in value.get("volumes", ())),
        active_deadline_seconds=int(value.get("activeDeadlineSeconds", 3600)),
        start_deadline_seconds=int(value.get("startDeadlineSeconds", 120)),
        backoff_limit=int(value.get("backoffLimit", 3)),
        clean_pod_policy=value.get("cleanPodPolicy", "Running"),
        success_policy=value.get("successPolicy", ""),
        newer=value.get("newer", "queue"),
    )


def _command(value: Mapping[str, Any]) -> tuple[str, ...]:
    if "command" in value:
        return tuple(value["command"])
    script = value["script"] if "script" in value else value["notebook"].removesuffix(".ipynb") + ".py"
    return ("python", script, *value.get("arguments", ()))


def _roles(value: Mapping[str, Any]) -> dict[str, Role]:
    """Return the roles by the operator's names; one chief when nothing is said."""
    short = {name: {"replicas": count} for name, count in value.get("replicas", {"chief": 1}).items()}
    common = value.get("resources", {})
    return {
        _ROLES[name]: Role(
            replicas=int(role.get("replicas", 1)),
            restart_policy=role.get("restartPolicy", "OnFailure"),
            resources=_resources(role.get("resources", common)),
            node_selector=dict(role.get("nodeSelector", {})),
            tolerations=tuple(dict(one) for one in role.get("tolerations", ())),
        )
        for name, role in value.get("roles", short).items()
    }


def _resources(value: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, str]]:
    """Return quantities as text, so that `1` and `"1"` are the same specification."""
    return {kind: {name: _quantity(one) for name, one in amounts.items()} for kind, amounts in value.items()}


def _quantity(value: str | float) -> str:
    if isinstance(value, str):
        return value
    return str(int(value)) if value == int(value) else str(value)


def _mount(path: str) -> str:
    """Return a mount path in its shortest form; POSIX keeps two leading slashes, which mean one here."""
    return "/" + posixpath.normpath(path).lstrip("/")


def _volume(value: Mapping[str, Any]) -> dict[str, Any]:
    volume = {**value, "mountPath": _mount(value["mountPath"])}
    limit = value.get("emptyDir", {}).get("sizeLimit")
    if limit is not None:
        volume["emptyDir"] = {**value["emptyDir"], "sizeLimit": _quantity(limit)}
    return volume


def _evaluation(value: Mapping[str, Any]) -> Evaluation:
    written = {key: one for key, one in value.items() if key not in {"data", "gates"}}
    return Evaluation(
        data=value["data"],
        specification={"task": value["task"], **_EVALUATION_DEFAULTS, **written},
        gates=gates(value.get("gates", ())),
    )


def _serving(value: Mapping[str, Any]) -> dict[str, Any]:
    resources = value.get("resources")
    return {
        "minReplicas": int(value.get("minReplicas", 1)),
        **({"resources": _resources(resources)} if resources else {}),
    }
