"""Labels that come later find the request they belong to."""

import json
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from prometheus_client.parser import text_string_to_metric_families

from mlgitops.adapters.store.folder import FolderStore
from mlgitops.core.errors import NotFound
from mlgitops.local.labels import Labels
from mlgitops.local.telling import Problems
from mlgitops.ports.observer import Observer
from mlgitops.ports.serving import Arm
from tests.contract.serving.serving_kit import Engine, route, service

A, B = "aaaaaaaaaaaa", "bbbbbbbbbbbb"


class Served:
    """A baseline that always answers class 0 and a canary that always answers class 1, at 50 %."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        one, other = engine.model(favours=0), engine.model(favours=1)
        self._objects = [service("digits", *one, A), service("digits-canary", *other, B)]
        self._step = 0
        self.next_step()
        engine.until_ready("labels", Arm.BASELINE, Arm.CANARY)

    def next_step(self) -> str:
        self._step += 1
        cohort = f"4-{self._step}"
        self.engine.apply("labels", *self._objects, route("digits", 50, 50, cohort))
        self.engine.until(lambda: self.engine.observe("labels").cohort == cohort)
        return cohort

    def send(self, *ids: str) -> list[str]:
        """Send one request per id and return the releases that answered."""
        return [headers["X-Mlgitops-Release"] for _, headers in self.engine.send("labels", ids)]

    def label(self, *labels: tuple[str, Any]) -> Mapping[str, Any]:
        return self.engine.labels("labels", labels)


@pytest.fixture(scope="module")
def served(shared: Engine) -> Served:
    return Served(shared)


def counts(engine: Engine, environment: str, name: str) -> Mapping[tuple[str, ...], float]:
    text = engine.ask("GET", "/metrics").body.decode()
    return {
        (
            sample.labels["cohort"],
            sample.labels["arm"],
            sample.labels["release"],
            sample.labels["outcome"],
        ): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == name and sample.labels["environment"] == environment and sample.value
    }


def test_labels_are_counted_for_the_release_and_step_that_answered(served: Served) -> None:
    """Each label counts for its own request's cohort, arm and release, also after the step has moved on."""
    cohort = served.next_step()
    ids = [f"r{number}" for number in range(40)]
    releases = served.send(*ids)
    served.next_step()
    assert served.label(*((one, 0) for one in ids))["accepted"] == 40
    found = counts(served.engine, "labels", "mlgitops_labelled_total")
    assert {key: value for key, value in found.items() if key[0] == cohort} == {
        (cohort, "baseline", A, "correct"): releases.count(A),
        (cohort, "canary", B, "incorrect"): releases.count(B),
    }


def test_only_the_first_label_of_a_served_request_counts(served: Served) -> None:
    """Repeated and unknown ids, and labels that fit no prediction, are told and count nothing."""
    served.send("one", "two")
    assert served.label(("one", 0), ("one", 1), ("never", 0), ("two", [0, 1])) == {
        "accepted": 1,
        "repeated": 1,
        "late": 0,
        "unknown": 1,
        "invalid": 1,
        "refused": [
            {"id": "one", "answer": "repeated"},
            {"id": "never", "answer": "unknown"},
            {"id": "two", "answer": "invalid"},
        ],
    }


def test_a_request_of_another_environment_takes_no_label(served: Served) -> None:
    """An id is bound to the environment and model that served it, even when another one uses it too."""
    served.engine.apply("labels-too", service("digits", *served.engine.model(), A))
    served.engine.until_ready("labels-too")
    served.send("mine", "ours")
    served.engine.send("labels-too", ["ours"])
    assert served.engine.labels("labels-too", [("mine", 0), ("ours", 0)])["unknown"] == 1
    assert served.label(("ours", 0))["accepted"] == 1


def test_a_repeated_request_id_keeps_what_its_first_request_got(served: Served) -> None:
    """Sending an id again cannot open a label that was given, nor move it to another step."""
    cohort = served.next_step()
    served.send("same")
    assert served.label(("same", 0))["accepted"] == 1
    served.next_step()
    served.send("same")
    assert served.label(("same", 1))["repeated"] == 1
    assert served.engine.serving.trace("labels", "digits", "same")["cohort"] == cohort


@pytest.mark.parametrize("token", ["wrong", ""])
def test_labels_need_the_token(served: Served, token: str) -> None:
    """Without the bearer token no label is taken and no request is told."""
    request_id = f"guarded-{token}"
    served.send(request_id)
    body = b'{"labels": [{"id": "%s", "label": 0}]}' % request_id.encode()
    assert served.engine.ask("POST", "/labels/digits/labels", body, token=token).status == 401
    assert served.engine.ask("GET", f"/labels/digits/requests/{request_id}", token=token).status == 401
    assert served.label((request_id, 0))["accepted"] == 1


def test_who_reports_labels_does_not_learn_the_arms(served: Served) -> None:
    """The labels' token opens no request: labels could be aimed at one side by whoever knew which one answered."""
    served.send("aimed")
    token = served.engine.serving.label_token()
    assert served.engine.ask("GET", "/labels/digits/requests/aimed", token=token).status == 401
    assert served.engine.serving.trace("labels", "digits", "aimed")["arm"] in {"canary", "baseline"}


def test_a_flood_of_labels_is_turned_away(served: Served) -> None:
    """Many thousand labels at once get 429 after a while, predictions are answered meanwhile, and labels soon again."""
    entries = ",".join('{"id": "guess", "label": 0}' for _ in range(1000))
    body = f'{{"labels": [{entries}]}}'.encode()
    token = served.engine.serving.label_token()
    statuses = [served.engine.ask("POST", "/labels/digits/labels", body, token=token).status for _ in range(80)]
    assert set(statuses) == {200, 429}
    assert served.send("meanwhile")
    few = b'{"labels": [{"id": "guess", "label": 0}]}'
    served.engine.until(lambda: served.engine.ask("POST", "/labels/digits/labels", few, token=token).status == 200)


@pytest.mark.parametrize(
    "body",
    [b"{", b"[]", b'{"labels": 5}', b'{"labels": [{"id": "one"}]}', b'{"labels": [{"id": "one", "label": NaN}]}'],
)
def test_malformed_labels_are_refused_as_a_whole(served: Served, body: bytes) -> None:
    """A call with one bad entry takes nothing and is answered with 400."""
    token = served.engine.serving.label_token()
    assert served.engine.ask("POST", "/labels/digits/labels", body, token=token).status == 400


def test_a_regression_is_wrong_beyond_its_tolerance(shared: Engine) -> None:
    """With a tolerance on the route a prediction is right when it is that close to the label."""
    objects = [service("digits", *shared.model(classes=1), A)]
    shared.apply("regression", *objects, route("digits", 100, None, "5-1", **{"mlgitops.dev/label-tolerance": "0.5"}))
    shared.until_ready("regression")
    shared.until(lambda: shared.observe("regression").cohort == "5-1")
    shared.send("regression", ["near", "far"])
    shared.labels("regression", [("near", 1.4), ("far", 1.6)])
    assert counts(shared, "regression", "mlgitops_labelled_total") == {
        ("5-1", "baseline", A, "correct"): 1,
        ("5-1", "baseline", A, "incorrect"): 1,
    }


def test_a_request_can_be_traced(served: Served) -> None:
    """A served id tells which release, bytes, step and side answered it, and how its label came out."""
    cohort = served.next_step()
    [release] = served.send("traced")
    served.label(("traced", 0))
    told = served.engine.serving.trace("labels", "digits", "traced")
    seen = served.engine.observe("labels")
    side = seen.canary if told["arm"] == "canary" else seen.baseline
    assert side is not None
    assert told["release"] == release == side.release
    assert told["artifact_digest"] == side.artifact_digest
    assert (told["cohort"], told["outcome"]) == (cohort, "ok")
    assert told["correct"] is (told["arm"] == "baseline")
    with pytest.raises(NotFound):
        served.engine.serving.trace("labels", "digits", "not-served")


def test_malformed_requests_are_refused_not_failed(shared: Engine) -> None:
    """The router counts a 4xx as refused, a 5xx as failed, and both once."""
    shared.apply("outcomes", service("digits", *shared.model(fails_above=10), A))
    shared.until_ready("outcomes")
    shared.send("outcomes", ["bad"], b'{"instances": [[1]]}')
    shared.send("outcomes", ["fault"], b'{"instances": [[11, 1]]}')
    shared.send("outcomes", ["fine"])
    shared.ask("GET", "/outcomes/digits/v1/models/digits")
    assert counts(shared, "outcomes", "mlgitops_requests_total") == {
        ("0-0", "baseline", A, "refused"): 1,
        ("0-0", "baseline", A, "failed"): 1,
        ("0-0", "baseline", A, "ok"): 1,
    }


def test_labels_of_a_file_join_the_steps_of_their_requests(served: Served, tmp_path: Path) -> None:
    """Labels in the store reach the router as posted ones do: by request and step, and the first one counts."""
    cohort = served.next_step()
    served.send("f1", "f2", "f3")
    served.label(("f3", 9))
    lines = [{"id": "f1", "label": 0}, {"id": "f2", "label": "x"}, {"id": "f3", "label": 0}, {"id": "f9", "label": 0}]
    file = tmp_path / "store" / "labels" / "labels" / "digits.jsonl"
    file.parent.mkdir(parents=True)
    file.write_text("".join(json.dumps(one) + "\n" for one in lines))
    said: list[str] = []
    observer = cast("Observer", SimpleNamespace(note=said.append))
    for _ in range(2):  # the second one is of an engine that remembers nothing
        store, problems = FolderStore(tmp_path / "store", "claim"), Problems(observer, tmp_path / "bug.txt")
        Labels(tmp_path, store, served.engine.serving, observer, problems).look()
        (tmp_path / "labels.json").unlink()
    found = counts(served.engine, "labels", "mlgitops_labelled_total")
    assert sum(value for key, value in found.items() if key[0] == cohort) == 3
    assert [one for one in said if "unknown" in one] == [
        "labels   labels/labels/digits.jsonl:4: 1 of requests that nobody remembers (unknown), this is the first"
    ] * 2
    assert len(said) == 2
