"""The published schemas of the three files that people write."""

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from mlgitops.core.errors import InvalidInput
from mlgitops.core.loading import load_environments, load_model, load_rollout
from mlgitops.core.schemas import schema

NAMES = ("model", "environments", "rollout")
LOADERS = {"model": load_model, "environments": load_environments, "rollout": load_rollout}
EXAMPLES = [(name, number) for name in NAMES for number in range(len(schema(name)["examples"]))]


def parts(node: Any, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Return every sub-schema that describes a value, with its place."""
    if not isinstance(node, dict):
        return
    yield path, node
    for key in ("properties", "$defs"):
        for name, part in node.get(key, {}).items():
            yield from parts(part, f"{path}/{name}")
    for key in ("items", "additionalProperties"):
        yield from parts(node.get(key), f"{path}/{key}")


@pytest.mark.parametrize("name", NAMES)
def test_schemas_are_valid(name) -> None:
    """Each schema is a valid JSON Schema 2020-12 with its published identity."""
    Draft202012Validator.check_schema(schema(name))
    assert schema(name)["$id"].endswith(f"/v1/{name}.schema.json")


@pytest.mark.parametrize("name", NAMES)
def test_every_field_is_described(name) -> None:
    """Each field has a description, and each object says which keys it takes."""
    for path, part in parts(schema(name)):
        if path.endswith("additionalProperties") and "$ref" in part:
            continue
        assert part.get("description") or "$ref" in part, path
        if part.get("type") == "object":
            assert "additionalProperties" in part, path


@pytest.mark.parametrize("name", NAMES)
def test_examples_of_fields_fit_the_fields(name) -> None:
    """Each example and default of a field is accepted by that field."""
    for path, part in parts(schema(name)):
        rooted = {**part, "$defs": schema(name).get("$defs", {})}
        for example in [*part.get("examples", ()), *([part["default"]] if "default" in part else ())]:
            assert Draft202012Validator(rooted).is_valid(example), (path, example)


@pytest.mark.parametrize(("name", "number"), EXAMPLES)
def test_examples_are_accepted(name, number) -> None:
    """Each example of a schema loads."""
    assert LOADERS[name](json.dumps(schema(name)["examples"][number]).encode(), "example.yaml")


def spoilt(value: Any) -> Iterator[tuple[str, Any]]:
    """Return copies of a document, each with one mapping that has a key too many or one scalar of another type."""

    def places(node: Any, path: tuple[Any, ...]) -> Iterator[tuple[tuple[Any, ...], Any]]:
        yield path, node
        for key, part in node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ():
            yield from places(part, (*path, key))

    for path, node in places(value, ()):
        document = copy.deepcopy(value)
        parent = document
        for key in path[:-1]:
            parent = parent[key]
        if isinstance(node, dict):
            if {"environment", "nodeSelector", "requests", "limits"} & set(path[-1:]):
                continue
            (parent[path[-1]] if path else document)["surprise"] = 1
        elif path and not isinstance(node, list) and "values" not in path:
            parent[path[-1]] = [node]
        else:
            continue
        yield "/".join(map(str, path)), document


@pytest.mark.parametrize(("name", "number"), EXAMPLES)
def test_spoilt_examples_are_refused_at_their_place(name, number) -> None:
    """A key too many, or a value of another type, anywhere in an example is refused with line and mend."""
    for path, document in spoilt(schema(name)["examples"][number]):
        with pytest.raises(InvalidInput) as caught:
            LOADERS[name](json.dumps(document).encode(), "example.yaml")
        assert all(one.line and one.message for one in caught.value.problems), path


def test_installed_schemas_are_those_of_the_source() -> None:
    """The schemas that the package reads are the files under schemas/."""
    folder = Path(__file__).resolve().parents[2] / "schemas"
    for name in NAMES:
        assert schema(name) == json.loads((folder / f"{name}.schema.json").read_bytes())
