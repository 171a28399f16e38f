"""Finding out what a folder holds: the script that trains, its data, its evaluation set, what it imports.

Nothing is guessed: where several files could be meant, the problem names them and how to choose.
"""

import ast
import importlib.metadata
import os
import re
import sys
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final, Literal

from mlgitops.core.errors import InvalidInput, Problem
from mlgitops.core.notebook import NOTEBOOK_BYTES, convert

Task = Literal["classification", "regression"]
REQUIREMENTS: Final = "requirements.txt"
_FILES: Final = 20_000
"""Most files that are looked at."""
_PASSED_OVER: Final = {"__pycache__", "build", "dist", "env", "node_modules", "site-packages", "venv"}
_NOT_TRAINING: Final = re.compile(r"(setup|conftest|noxfile|tasks|test_.*|.*_test)\.py")
_FOR_EVALUATION: Final = re.compile(r"(?i)(^|[-_. ])(eval(uation)?|test|val(id(ation)?)?|hold-?out)([-_. ]|$)")
_LABELS: Final = ("y", "labels", "label", "targets", "target")
_INPUTS: Final = ("x", "inputs", "features", "images")
_DESCRIPTION: Final = re.compile(rb"'descr':\s*'[<>|=]?([a-zA-Z])")
_ALWAYS_LOCKED: Final = ("tensorflow", "keras", "numpy")
"""Modules that exporting and loading a model needs, imported by the script or not."""
_UNLOCKED: Final = {"mlgitops"}
"""The engine brings the tool itself."""


@dataclass(frozen=True, kw_only=True)
class Discovery:
    """What was found, paths relative to the repository's top."""

    kind: Literal["script", "notebook"]
    training: str
    """The script or notebook."""
    inputs: tuple[str, ...]
    """It, and the files and folders of the repository that it imports."""
    data: str | None
    """File or folder that is trained on; None when there is none."""
    evaluation: str
    array_inputs: str
    """Array of the evaluation set that the model takes."""
    array_labels: str
    task: Task
    """By the labels' type: whole numbers are classes."""
    test_command: tuple[str, ...]
    """Command that runs the repository's tests; empty when there are none."""
    requirements_path: str
    requirements: str | None
    """Content of a new lock; None when there is a file already."""


def discover(
    directory: Path,
    *,
    script: str | None,
    notebook: str | None,
    data: str | None,
    evaluation: str | None,
    installed: Mapping[str, Sequence[str]] | None,
    problems: list[Problem],
) -> Discovery | None:
    """Find what was not given; see `initialise.initialise_model` for the arguments.

    Returns:
        What was found; None when `problems` got an entry.
    """
    known = len(problems)
    given = {"--script": script, "--notebook": notebook, "--data": data, "--evaluation": evaluation}
    for option, path in given.items():
        if path is not None:
            _check_given(directory, option, path, problems)
    files = _listing(directory)
    training = _training(files, script, notebook, problems)
    evaluation = evaluation or _evaluation(files, data, problems)
    data = data or _data(files, evaluation, problems)
    if len(problems) > known or training is None or evaluation is None:
        return None
    source = _source(directory, training, problems)
    inputs, modules = _imports(directory, training, source)
    have = installed_modules() if installed is None else installed
    requirements = None if (directory / REQUIREMENTS).exists() else _lock(modules, have, training, problems)
    arrays = _arrays(directory / evaluation, evaluation, problems)
    if len(problems) > known or arrays is None:
        return None
    return Discovery(
        kind="notebook" if training.endswith(".ipynb") else "script",
        training=training,
        inputs=inputs,
        data=data,
        evaluation=evaluation,
        array_inputs=arrays[0],
        array_labels=arrays[1],
        task=arrays[2],
        test_command=_test_command(files, have),
        requirements_path=REQUIREMENTS,
        requirements=requirements,
    )


def installed_modules() -> dict[str, list[str]]:
    """Return what this interpreter has: lock lines by the name of the module that they provide."""
    return {
        module: sorted({f"{_normal(name)}=={importlib.metadata.version(name)}" for name in names})
        for module, names in importlib.metadata.packages_distributions().items()
    }


def _normal(name: str) -> str:
    """Return a distribution's name as the package index writes it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _check_given(directory: Path, option: str, path: str, problems: list[Problem]) -> None:
    parts = PurePosixPath(path)
    inside = not parts.is_absolute() and ".." not in parts.parts and path == str(parts) and path != "."
    if not inside:
        mend = f"give {option} a path inside the repository, with '/' and without '.' or '..'"
        problems.append(Problem(message="is no path inside the repository", path=path, mend=mend))
    elif not (directory / path).exists():
        problems.append(Problem(message="does not exist", path=path, mend=f"give {option} the path of a file"))


def _listing(directory: Path) -> list[str]:
    """Return the files of the repository, sorted, without hidden folders and those that tools make."""
    found: list[str] = []
    for folder, folders, names in os.walk(directory):
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name not in _PASSED_OVER)
        top = Path(folder).relative_to(directory)
        found.extend((top / name).as_posix() for name in names if not name.startswith("."))
        if len(found) > _FILES:
            break
    return sorted(found)


def _ask(problems: list[Problem], question: str, option: str, choices: Sequence[str]) -> None:
    """Add a question with at most ten answers to choose from."""
    shown = ", ".join(choices[:10]) + (", …" if len(choices) > 10 else "")
    message = f"{question}: {shown}" if choices else question
    problems.append(Problem(message=message, mend=f"say it with {option}"))


def _training(files: Sequence[str], script: str | None, notebook: str | None, problems: list[Problem]) -> str | None:
    if script and notebook:
        problems.append(Problem(message="--script and --notebook exclude each other", mend="give one of them"))
    for option, path, ending in (("--script", script, ".py"), ("--notebook", notebook, ".ipynb")):
        if path and not path.endswith(ending):
            problems.append(
                Problem(message=f"does not end with {ending}", path=path, mend=f"give {option} another file")
            )
    if script or notebook:
        return script or notebook
    top = [name for name in files if "/" not in name and name.endswith(".py") and not _NOT_TRAINING.fullmatch(name)]
    notebooks = [name for name in files if name.endswith(".ipynb")]
    named = [name for name in files if PurePosixPath(name).name in ("train.py", "train.ipynb")]
    for candidates in (named, top + notebooks):
        if len(candidates) == 1:
            return candidates[0]
        if candidates:
            _ask(problems, "which of these trains the model", "--script or --notebook", candidates)
            return None
    _ask(problems, "there is no Python script at the top and no notebook", "--script or --notebook", [])
    return None


def _for_evaluation(name: str) -> bool:
    return any(_FOR_EVALUATION.search(part) for part in PurePosixPath(name).with_suffix("").parts)


def _evaluation(files: Sequence[str], data: str | None, problems: list[Problem]) -> str | None:
    arrays = [name for name in files if name.endswith(".npz") and name != data]
    named = [name for name in arrays if _for_evaluation(name)]
    if len(named) == 1:
        return named[0]
    if named or arrays:
        _ask(problems, "which of these is the evaluation set", "--evaluation", named or arrays)
    else:
        question = "there is no evaluation set: an .npz file with the arrays x and y that no training sees"
        _ask(problems, question, "--evaluation", [])
    return None


def _data(files: Sequence[str], evaluation: str | None, problems: list[Problem]) -> str | None:
    """Return the one file, or the one folder of files, that can be meant; None without a problem when there is none."""
    endings = (".npz", ".npy", ".csv", ".parquet", ".tfrecord", ".tfrecords")
    candidates = [name for name in files if name.endswith(endings) and name != evaluation and not _for_evaluation(name)]
    folders = {str(PurePosixPath(name).parent) for name in candidates}
    if len(candidates) > 1 and len(folders) == 1:
        (folder,) = folders
        others = [name for name in files if name.startswith(f"{folder}/") and name not in candidates]
        if folder != "." and not others:
            return folder
    if len(candidates) > 1:
        _ask(problems, "which of these is trained on", "--data", sorted({*candidates, *(folders - {"."})}))
    return candidates[0] if len(candidates) == 1 else None


def _source(directory: Path, training: str, problems: list[Problem]) -> str:
    """Return the script as text, converted from a notebook where it is one; empty with a problem."""
    try:
        with (directory / training).open("rb") as stream:
            content = stream.read(NOTEBOOK_BYTES + 1)  # what is longer is cut off, and refused as that
        source = convert(content, training) if training.endswith(".ipynb") else content.decode("utf-8-sig")
        ast.parse(source)
    except InvalidInput as error:
        problems.extend(error.problems)
    except OSError as error:
        problems.append(Problem(message=f"cannot be read: {error.strerror}", path=training, mend="make it readable"))
    except UnicodeDecodeError:
        problems.append(Problem(message="is not UTF-8", path=training, mend="save it as UTF-8"))
    except SyntaxError as error:
        problems.append(Problem(message=error.msg, path=training, line=error.lineno, mend="mend the script"))
    except (ValueError, RecursionError, MemoryError) as error:
        problems.append(Problem(message=f"is no Python: {error}", path=training, mend="mend the script"))
    else:
        return source
    return ""


def _imports(directory: Path, training: str, source: str) -> tuple[tuple[str, ...], set[str]]:
    """Follow imports from the training script.

    Returns:
        The inputs: the script, and each file or folder of the repository that is imported on the way; and the modules
        that come from elsewhere, without the standard library.
    """
    home = (directory / training).parent
    inputs = {training}
    outside: set[str] = set()
    waiting = [source]
    while waiting:
        for module in _modules(waiting.pop()):
            local = next((path for path in (home / module, home / f"{module}.py") if _is_module(path)), None)
            if local is None:
                outside.add(module)
                continue
            name = local.relative_to(directory).as_posix()
            if name not in inputs:
                inputs.add(name)
                waiting.extend(_texts(local))
    return tuple(sorted(inputs)), outside - sys.stdlib_module_names - _UNLOCKED


def _is_module(path: Path) -> bool:
    return path.is_file() if path.suffix == ".py" else path.is_dir() and any(path.glob("*.py"))


def _texts(path: Path) -> Iterator[str]:
    for file in [path] if path.is_file() else sorted(path.rglob("*.py")):
        try:
            yield file.read_text("utf-8-sig")
        except (OSError, UnicodeDecodeError):
            continue  # the build and the training say what is wrong with it


def _modules(source: str) -> set[str]:
    """Return the first names of absolute imports anywhere in a source; relative ones stay inside their folder."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return set()
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found.update(alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module.partition(".")[0])
    return found


def _lock(
    modules: set[str], installed: Mapping[str, Sequence[str]], training: str, problems: list[Problem]
) -> str | None:
    """Return a lock of what the script imports, at the versions that are installed here."""
    missing = sorted(modules - installed.keys())
    for module in missing:
        message = f"imports {module}, which is not installed here, so its version cannot be locked"
        problems.append(Problem(message=message, path=training, mend=f"install it, or write {REQUIREMENTS} yourself"))
    lines = {line for module in modules | set(_ALWAYS_LOCKED) for line in installed.get(module, ())}
    if not any(line.startswith("tensorflow") for line in lines):
        message = "TensorFlow is not installed here, so its version cannot be locked"
        mend = f"install mlgitops[tensorflow], or write {REQUIREMENTS} yourself"
        problems.append(Problem(message=message, path=REQUIREMENTS, mend=mend))
    if problems:
        return None
    head = "# What training needs besides mlgitops, locked; the engine refuses to train with other versions.\n"
    return head + "".join(f"{line}\n" for line in sorted(lines))


def _test_command(files: Sequence[str], installed: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    tests = [name for name in files if re.fullmatch(r"tests?/(.*/)?test_[^/]*\.py", name)]
    if not tests:
        return ()
    folder = tests[0].partition("/")[0]
    pytest, unittest = ("pytest", "-q", folder), ("unittest", "discover", "-s", folder)
    return ("python", "-m", *(pytest if "pytest" in installed else unittest))


def _arrays(path: Path, shown: str, problems: list[Problem]) -> tuple[str, str, Task] | None:
    """Return the names of inputs and labels in an evaluation set, and the task that the labels' type tells."""
    mend = "save it with numpy.savez(path, x=…, y=…)"
    try:
        with zipfile.ZipFile(path) as archive:
            names = [name.removesuffix(".npy") for name in archive.namelist() if name.endswith(".npy")]
            labels = next((name for name in _LABELS if name in names), None)
            rest = [name for name in names if name != labels]
            inputs = next((name for name in _INPUTS if name in rest), rest[0] if len(rest) == 1 else None)
            if labels is None or inputs is None:
                message = (
                    f"has the arrays {', '.join(sorted(names)) or '(none)'}; which are inputs and labels is not clear"
                )
                problems.append(Problem(message=message, path=shown, mend=mend))
                return None
            with archive.open(f"{labels}.npy") as stream:
                description = _DESCRIPTION.search(stream.read(256))
    except (OSError, ValueError, zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, EOFError) as error:
        problems.append(Problem(message=f"is no .npz file: {error}", path=shown, mend=mend))
        return None
    regression = description is not None and description.group(1) in b"fdge"
    return inputs, labels, "regression" if regression else "classification"
