"""`trace` where environments and requests have names of their own."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from mlgitops.adapters.repository.git import open_repository
from mlgitops.adapters.serving.embedded import EmbeddedServing
from mlgitops.core.errors import NotFound
from mlgitops.core.manifest.fields import MAIN
from mlgitops.ports.repository import Change, Person
from tests.support.world import ENVIRONMENTS

PERSON = Person(name="Ada", email="ada@example.org")
COLLIDING = "0123456789ab"
"""A request that looks like a release."""


@pytest.mark.parametrize("request_id", ["7c0f3b1e", COLLIDING])
def test_a_request_is_looked_for_in_the_last_environment_first(
    desk: Callable[[str], Any], stages: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, request_id: str
) -> None:
    """A request is found where production is, whatever it is called, and before a release of that name."""
    release, place = stages.names[1], desk("calm")
    opened = open_repository(str(place.repository), identity=PERSON, cache=tmp_path)
    main = opened.snapshot(MAIN)
    edited = ENVIRONMENTS.replace("name: production", "name: live").encode()
    opened.update(MAIN, main.revision, [Change(message="another name", files={"environments.yaml": edited})])

    def remembered(self: EmbeddedServing, environment: str, model: str, request_id: str) -> Mapping[str, Any]:
        del self, model
        if environment != "live":
            raise NotFound("remembered request", request_id)
        return {"release": release}

    monkeypatch.setattr(EmbeddedServing, "trace", remembered)
    told = place.json("trace", request_id, "--home", str(tmp_path))
    assert told.values["answer"] == {"id": request_id, "release": release}
