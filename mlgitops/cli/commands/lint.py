"""`mlgitops lint`."""

from pathlib import Path
from typing import Final

import click

from mlgitops.cli import github, options
from mlgitops.cli.words import examples
from mlgitops.core.errors import InvalidInput, NotFound, Problem

ENVIRONMENTS: Final = "environments.yaml"
FILES: Final = ("mlgitops.yaml", ENVIRONMENTS)


@click.command(
    "lint",
    epilog=examples(
        "mlgitops lint",
        "mlgitops lint mlgitops.yaml ../environment/environments.yaml",
        "mlgitops lint ../environment --output json",
        "mlgitops lint --base origin/main",
    ),
)
@click.argument("paths", nargs=-1, type=click.Path())
@click.option("--base", metavar="REVISION", help="What a pull request changes; it cannot excuse itself from rules.")
@options.output
def command(paths: tuple[str, ...], base: str | None, output: str, verbose: bool) -> int:
    """Check mlgitops.yaml, environments.yaml and manifests; name every problem with its place and mend.

    PATHS are files, or folders: a model repository or a checkout of an environment repository. Default: here.
    Exit code 3 when there is an error; warnings do not change it.

    With --base, rules about changes are checked too, and an annotation that allows something counts only where the
    base has it: it must have been reviewed by itself.
    """
    del verbose
    problems = [one for path in paths or (".",) for one in _check(Path(path), base)]
    errors = [one for one in problems if one.severity == "error"]
    if errors:
        raise InvalidInput(problems)
    words = "\n".join(_words(one) for one in problems) or "no problems"
    values = {"problems": [{k: v for k, v in vars(one).items() if v is not None} for one in problems]}
    options.show(values, words, output)
    github.annotate_problems(problems)
    return 0


def _words(problem: Problem) -> str:
    mend = f"\n  mend: {problem.mend}" if problem.mend else ""
    return f"{problem.severity.capitalize()}: {problem}{mend}"


def _check(path: Path, base: str | None) -> list[Problem]:
    if not path.exists():
        raise NotFound("file", str(path))
    if path.is_file():
        return [*_file(path), *_plans(path)]
    found = [one for name in FILES if (path / name).is_file() for one in _file(path / name)]
    if (path / "environments").is_dir():
        found += _manifests(path, base)  # looks at the plans, too
    elif (path / ENVIRONMENTS).is_file():
        found += _plans(path / ENVIRONMENTS)
    elif not found and not any((path / name).is_file() for name in FILES):
        raise NotFound("mlgitops.yaml or environments.yaml in", str(path))
    return found


def _manifests(path: Path, base: str | None) -> list[Problem]:
    """Check what an environment repository's checkout asks of the engine."""
    from mlgitops.adapters.clock import SystemClock
    from mlgitops.adapters.files import walk_files
    from mlgitops.adapters.repository.base import files_at
    from mlgitops.core.manifest.lint.tree import lint_tree

    known = {f"environments/{name}": file for name, file in walk_files(path / "environments")}
    if (path / "environments.yaml").is_file():
        known["environments.yaml"] = path / "environments.yaml"
    previous = None if base is None else files_at(path, base)
    today = SystemClock().now().date()
    return lint_tree(
        lambda name: known[name].read_bytes() if name in known else None, known, previous=previous, today=today
    )


def _file(path: Path) -> list[Problem]:
    from mlgitops.core.loading import check_secrets, load_environments, load_model

    if path.name not in FILES:
        raise NotFound("check for a file named", path.name, FILES)
    found: list[Problem] = []
    for check in (check_secrets, load_model if path.name == "mlgitops.yaml" else load_environments):
        try:
            check(path.read_bytes(), str(path))
        except InvalidInput as error:
            found += error.problems
    return found


def _plans(path: Path) -> list[Problem]:
    """Check whether the traffic that an environment expects can show what its plan must see."""
    from mlgitops.core.manifest.lint.plans import lint_plans

    return lint_plans(path.read_bytes(), str(path)) if path.name == ENVIRONMENTS else []
