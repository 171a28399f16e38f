"""A model whose files were spoilt after somebody judged them: it meets no user, and what served goes on."""

import shutil
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from mlgitops.ports.serving import Arm
from tests.contract.serving.serving_kit import Engine, Load, route, service

A, PLACE = "aaaaaaaaaaaa", "spoilt"
Spoil = Callable[[Path], object]


def a_file(model: Path) -> Path:
    return next(one for one in sorted(model.rglob("*")) if one.is_file())


def emptied(model: Path) -> None:
    shutil.rmtree(model)
    model.mkdir()


SPOILT: dict[str, Spoil] = {
    "missing": shutil.rmtree,
    "empty": emptied,
    "truncated": lambda model: a_file(model).write_bytes(a_file(model).read_bytes()[:-1]),
    "changed": lambda model: a_file(model).write_bytes(a_file(model).read_bytes().swapcase()),
    "added to": lambda model: (model / "1" / "extra").write_text("one more"),
    "without its version": lambda model: next(model.iterdir()).rename(model / "latest"),
}


def test_a_model_spoilt_between_judgement_and_serving_meets_no_user(shared: Engine) -> None:
    """A canary whose bytes are not those that were judged answers nobody, whatever weight it is given."""
    champion = service("digits", *shared.model(), A)
    for number, (how, spoil) in enumerate(SPOILT.items()):
        release = f"{number:012x}"
        uri, digest = shared.model(favours=1)
        spoil(shared.resolve(uri))
        shared.apply(PLACE, champion, service("digits-canary", uri, digest, release), route("digits", 50, 50, "1-1"))
        shared.until_ready(PLACE, Arm.BASELINE)
        shared.until(partial(told, shared))
        with Load(shared.url(PLACE), clients=2) as load:
            time.sleep(0.2)
        seen = shared.canary(PLACE)
        assert (seen.ready, seen.serving) == (False, False), how
        assert {one for status, one in load.answers if status == 200} == {A}, how
        shared.apply(PLACE, champion, route("digits", 100, 0, "0-0"))
        shared.until(lambda: shared.observe(PLACE).canary is None)
    shared.apply(PLACE)


def told(engine: Engine) -> bool:
    """Say whether the engine gave up on the canary, and said why."""
    seen = engine.observe(PLACE).canary
    return seen is not None and bool(seen.message) and "being loaded" not in seen.message
