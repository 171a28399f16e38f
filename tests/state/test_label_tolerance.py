"""A regression's label tolerance goes from mlgitops.yaml to the route that the router reads."""

from pathlib import Path

import yaml

from mlgitops.adapters.serving.objects import parse_route
from mlgitops.core.manifest.fields import MAIN
from tests.support.world import CONFIGURATION, FOLDER, MODEL, push, settle, view_of, world_of


def test_the_tolerance_reaches_the_route_without_a_hold(tmp_path: Path) -> None:
    """A push that sets a tolerance, or changes it, ends live with it on the route, and is no change by hand."""
    world, engine = world_of(tmp_path)
    for code, tolerance in (("one", None), ("two", 0.5), ("three", 2)):
        more = "" if tolerance is None else f"\n  labelTolerance: {tolerance}"
        text = CONFIGURATION.replace("task: classification", f"task: regression{more}")
        release = push(world, code, engine=engine, configuration=text)
        settle(world, engine, 40)
        state = view_of(world).ledger.state("production", MODEL)
        assert state.foreign is None
        assert state.champion == release.name
        route = yaml.safe_load(world.repository.snapshot(MAIN).read(f"{FOLDER}/route.yaml") or b"")
        assert parse_route(route).tolerance == tolerance
