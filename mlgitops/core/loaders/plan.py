"""Reading a plan from a file of its own, or from a draft of `environments.yaml`."""

import json
import re
from collections.abc import Iterator

from mlgitops.core.configuration import Plan
from mlgitops.core.errors import InvalidInput, NotFound, Problem
from mlgitops.core.loading import load_environments
from mlgitops.core.manifest.read import Document, read_document


def load_plan(data: bytes, path: str, environment: str) -> Plan:
    """Return the plan that a file describes.

    Args:
        data: One plan, as `plans` of `environments.yaml` lists it; or a whole `environments.yaml`.
        path: The file, as people know it.
        environment: Whose plan is taken from a whole file.

    Raises:
        InvalidInput: It is neither; with every problem.
        NotFound: A whole file does not have the environment.
    """
    document = read_document(data, path)
    if not isinstance(document.value, dict):
        raise InvalidInput("this is no plan: write name, steps and metrics", path=path)
    if "plans" in document.value:
        configuration = load_environments(data, path)
        found = configuration.environment(environment)
        if found is None:
            raise NotFound("environment", environment, [one.name for one in configuration.environments])
        return found.plan
    return _alone(document, path)


def _alone(document: Document, path: str) -> Plan:
    """Judge a plan as the only one of an environment; problems stand where they are in its own file."""
    name = document.value.get("name")
    whole = {
        "apiVersion": "mlgitops.dev/v1",
        "kind": "Environments",
        "environments": [{"name": "production", "plan": name if isinstance(name, str) else "plan"}],
        "plans": [document.value],
    }
    try:
        return load_environments(json.dumps(whole, default=str).encode(), path).environments[0].plan
    except InvalidInput as error:
        raise InvalidInput(list(_placed(document, error))) from error


def _placed(document: Document, error: InvalidInput) -> Iterator[Problem]:
    for one in error.problems:
        parts = re.findall(r"[^.\[\]]+", one.pointer or "")
        if parts[:2] != ["plans", "0"]:
            continue  # of the environment around it, which follows from the plan's own name
        pointer = tuple(int(part) if part.isdigit() else part for part in parts[2:])
        yield document.problem(one.message, pointer, mend=one.mend)
