"""`mlgitops init`: the first files of a model repository and of an environment repository."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from mlgitops.app.discovery import Discovery, discover
from mlgitops.core.errors import InvalidInput, NotFound, Problem, Unavailable
from mlgitops.core.loading import ENVIRONMENTS_FILE, MODEL_FILE, load_environments, load_model
from mlgitops.core.names import parse_name
from mlgitops.core.owners import CODEOWNERS_FILE, FIRST_LINE, codeowners

_PACKAGE: Final = Path(__file__).resolve().parent.parent
# The build puts the template into the wheel; an editable install leaves it where it is.
_TEMPLATES: Final = (_PACKAGE / "_environments", _PACKAGE.parent / "environments")
_PLAIN: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./-")
_RETYPED: Final = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null"})


def initialise_environment() -> Mapping[str, bytes]:
    """Return the files of an environment repository's first commit on `main`, by path.

    Raises:
        NotFound: The template is missing: the installation is not complete.
    """
    for folder in _TEMPLATES:
        if folder.is_dir():
            files = {
                path.relative_to(folder).as_posix(): path.read_bytes()
                for path in sorted(folder.rglob("*"))
                if path.is_file() and "__pycache__" not in path.parts
            }
            configuration = load_environments(files[ENVIRONMENTS_FILE], ENVIRONMENTS_FILE)
            return {**files, CODEOWNERS_FILE: codeowners(configuration)}
    raise NotFound("template", "environments", [str(folder) for folder in _TEMPLATES])


def initialise_owners(directory: Path, *, dry_run: bool = False) -> Mapping[str, bytes]:
    """Write `.github/CODEOWNERS` of a checkout of an environment repository, from `owners` in environments.yaml.

    Args:
        directory: Top of the checkout.
        dry_run: Write nothing.

    Returns:
        The file, by its path; nothing where it is current.

    Raises:
        NotFound: There is no environments.yaml.
        InvalidInput: It is not valid; or somebody else's CODEOWNERS is there, or a link.
        Unavailable: The file cannot be written.
    """
    source, target = directory / ENVIRONMENTS_FILE, directory / CODEOWNERS_FILE
    if not source.is_file():
        raise NotFound("file", str(source))
    wanted = codeowners(load_environments(source.read_bytes(), ENVIRONMENTS_FILE))
    linked = next((one for one in (target, target.parent) if one.is_symlink()), None)
    written = target.read_bytes() if target.is_file() and linked is None else None
    if linked is not None or (written is not None and not written.startswith(FIRST_LINE.encode())):
        mend = "put its owners under `owners:` in environments.yaml, and remove it"
        raise InvalidInput([Problem(message="was not written by mlgitops", path=CODEOWNERS_FILE, mend=mend)])
    if written == wanted:
        return {}
    if not dry_run:
        try:
            target.parent.mkdir(exist_ok=True)
            target.write_bytes(wanted)
        except OSError as error:
            raise Unavailable(f"file {target}", error.strerror or str(error)) from error
    return {CODEOWNERS_FILE: wanted}


def initialise_model(
    directory: Path,
    *,
    name: str | None = None,
    script: str | None = None,
    notebook: str | None = None,
    data: str | None = None,
    evaluation: str | None = None,
    installed: Mapping[str, Sequence[str]] | None = None,
    dry_run: bool = False,
) -> Mapping[str, bytes]:
    """Make a folder with a training script or notebook a model repository that mlgitops can release.

    What is not given is found where it is unambiguous. A file that is there is never overwritten.

    Args:
        directory: Top of the model repository.
        name: The model's name; None takes the folder's.
        script: Training script, relative to `directory`.
        notebook: Training notebook instead.
        data: File or folder that is trained on.
        evaluation: Evaluation set, `.npz`.
        installed: Lines like `numpy==2.4.6` by the module they provide, for the lock; None asks this interpreter.
        dry_run: Write nothing.

    Returns:
        The files written, or that would be, by path relative to `directory`.

    Raises:
        InvalidInput: What cannot be decided, as a question with the answers to choose from; files that are there
            already; a notebook that cannot be converted; all of them at once.
        NotFound: `directory` is no folder.
        Unavailable: A file cannot be written; none is left then.
    """
    if not directory.is_dir():
        raise NotFound("directory", str(directory))
    if (directory / MODEL_FILE).exists() or (directory / MODEL_FILE).is_symlink():
        mend = "edit it, and check it with `mlgitops lint`; nothing was written"
        raise InvalidInput([Problem(message="is there already", path=MODEL_FILE, mend=mend)])
    problems: list[Problem] = []
    title = _name(directory, name, problems)
    found = discover(
        directory,
        script=script,
        notebook=notebook,
        data=data,
        evaluation=evaluation,
        installed=installed,
        problems=problems,
    )
    if problems or found is None:
        raise InvalidInput(problems)
    files = {MODEL_FILE: _configuration(title, found).encode()}
    if found.requirements is not None:
        files["requirements.txt"] = found.requirements.encode()
    load_model(files[MODEL_FILE], MODEL_FILE)
    if not dry_run:
        _write(directory, files)
    return files


def _name(directory: Path, name: str | None, problems: list[Problem]) -> str:
    """Return the model's name, from the folder's when it is not given."""
    folder = "".join(one if one.isalnum() and one.isascii() else "-" for one in directory.resolve().name.lower())
    try:
        return parse_name(folder.strip("-") if name is None else name, "model name")
    except InvalidInput as error:
        mend = "give one with --name"
        problems.extend(Problem(message=one.message, mend=mend) for one in error.problems)
        return ""


def write_missing(directory: Path, files: Mapping[str, bytes], *, dry_run: bool) -> Mapping[str, bytes]:
    """Write those of some files that are not there, not even as a link; returns them, also where `dry_run` writes none.

    Raises:
        InvalidInput: One of them appeared meanwhile.
        Unavailable: One cannot be written.
    """
    wanted = {path: data for path, data in files.items() if not os.path.lexists(directory / path)}
    if not dry_run:
        _write(directory, wanted)
    return wanted


def _write(directory: Path, files: Mapping[str, bytes]) -> None:
    """Write new files, by path relative to `directory`, all or none."""
    written: list[Path] = []
    try:
        for name, content in files.items():
            path = directory / name
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("xb") as stream:
                written.append(path)
                stream.write(content)
    except OSError as error:
        for path in written:
            path.unlink(missing_ok=True)
        if isinstance(error, FileExistsError):
            mend = "look at what wrote it, and run this again; nothing was written"
            problem = Problem(message="appeared meanwhile", path=Path(error.filename).name, mend=mend)
            raise InvalidInput([problem]) from error
        raise Unavailable(f"directory {directory}", error.strerror or str(error)) from error


def _configuration(name: str, found: Discovery) -> str:
    """Return `mlgitops.yaml`, with comments for what people will want to change first."""
    return "\n".join(
        [
            "# What is trained from what, how it is judged, and how it is served. `mlgitops lint` checks this file.",
            "apiVersion: mlgitops.dev/v1",
            "kind: Model",
            "metadata:",
            f"  name: {name if name not in _RETYPED else _scalar(name)}",
            "",
            "# A change of one of these makes a new release; a change elsewhere does not.",
            f"inputs: [{', '.join(_scalar(path) for path in found.inputs)}]",
            *_data(found),
            f"requirements: {_scalar(found.requirements_path)}",
            *_test(found),
            "training:",
            f"  {found.kind}: {_scalar(found.training)}",
            "  replicas: {chief: 1}    # with {chief: 1, worker: 2} three processes train together",
            "  activeDeadlineSeconds: 3600",
            *_evaluation(found),
            "",
        ]
    )


def _data(found: Discovery) -> list[str]:
    if found.data is None:
        return [
            "# data:",
            "#   - path: data/train.npz    # enters the store by digest; the job gets its URI in a variable",
        ]
    return [
        "data:    # enters the store by digest; the job gets its URI in MLGITOPS_DATA_URI",
        f"  - path: {_scalar(found.data)}",
    ]


def _test(found: Discovery) -> list[str]:
    if not found.test_command:
        return ["# test:", "#   command: [python, -m, unittest]    # must pass before anything is built"]
    return ["test:    # must pass before anything is built", f"  command: [{', '.join(found.test_command)}]"]


def _evaluation(found: Discovery) -> list[str]:
    if found.task == "classification":
        gates = ["  gates:", "    - {metric: accuracy, maximumLoss: 0.01}    # against the release that serves now"]
    else:
        gates = ["  # gates:", "  #   - {metric: rmse, maximum: 1.5}"]
    return [
        "evaluation:",
        f"  data: {_scalar(found.evaluation)}",
        f"  task: {found.task}",
        f"  inputs: {_scalar(found.array_inputs)}",
        f"  labels: {_scalar(found.array_labels)}",
        *gates,
    ]


def _scalar(text: str) -> str:
    """Write a string so that every reader of YAML sees a string."""
    if text[:1].isalpha() and set(text) <= _PLAIN and text.lower() not in _RETYPED:
        return text
    return "'" + text.replace("'", "''") + "'"
