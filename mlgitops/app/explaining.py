"""Why a release is where it is: what was seen and decided, retold from the ledger alone."""

from collections.abc import Iterator, Mapping
from typing import Any

from mlgitops.app.context import Context, find_release, look
from mlgitops.app.reporting import report_of
from mlgitops.core.analysis import plain
from mlgitops.core.analysis.watching import alarm_words

Values = dict[str, Any]
_TITLES = {
    "Refused": "The rollout was refused before any user met the release",
    "Withdrawn": "The rollout was taken back before any user met the release",
    "Errored": "No answer could be had",
    "Authorised": "The gates let it start",
    "ServingAll": "It serves all requests",
    "Trusted": "It is trusted",
    "Retired": "A later release replaced it",
    "RollbackDecided": "It was decided to go back",
    "RolledBack": "All requests went back",
    "Restored": "It serves again",
}


def explain(context: Context, model: str, environment: str | None, release: str) -> Values:
    """Return the story of a release in an environment.

    Args:
        context: The outside world; the environment repository and the clock are used.
        model: The model.
        environment: Where; None for production.
        release: Its name, or the first digits of it.

    Returns:
        `release`, `model`, `environment`, `summary` (a sentence), `story` (chapters in the order of time, each with
        `at`, `title`, `by` and `words`, a list of paragraphs), `next` (what can be done now), and `rollouts`, as
        `reporting.collect` tells them, for plots.

    Raises:
        NotFound: There is no such model, environment or release.
    """
    view = look(context)
    name = find_release(view, model, release).name
    report = report_of(context, view, model, environment)
    found = next(one for one in report["releases"] if one["release"] == name)
    rollouts = [one for one in reversed(report["rollouts"]) if one["release"] == name]
    names = [decided["name"] for one in rollouts for decided in one["decisions"]]
    records = {one: view.ledger.decision(report["environment"], model, one) for one in names}
    story = [*_beginning(found), *(chapter for one in rollouts for chapter in _rollout(one, records))]
    return {
        "model": model,
        "environment": report["environment"],
        "release": name,
        "phase": found["phase"],
        "summary": _summary(found, rollouts, report),
        "story": sorted(story, key=lambda one: one["at"]),
        "next": _next(found, rollouts, report),
        "rollouts": rollouts,
        "madeAt": report["madeAt"],
    }


def _chapter(at: str, title: str, words: list[str], by: str = "") -> Values:
    return {"at": at, "title": title, "by": by, "words": [one for one in words if one]}


def _beginning(release: Values) -> Iterator[Values]:
    cause = " and ".join(release["cause"]) or "nothing that was released before"
    what = f"Commit {release['revision'][:12]}, “{release['subject']}”. What differs from the release before: {cause}."
    yield _chapter(release["submitted"], "A push made the release", [what], release["author"])
    training = release["training"]
    if training and training["succeeded"]:
        again = f" It was started again {training['restarts']} times." if training["restarts"] else ""
        yield _chapter(training["endedAt"], "It was trained", [f"The job {training['job']} ended well.{again}"])
    for event in release["events"]:
        if event["event"] == "EvaluationPassed":
            yield _chapter(event["at"], "It was evaluated, and is a candidate", _gates(release["gates"]))
        elif event["event"] in ("Failed", "Errored", "Aborted", "Rejected"):
            title = {
                "Failed": "The answer was no",
                "Errored": "No answer could be had",
                "Aborted": "A person stopped it",
                "Rejected": "A person refused it for good",
            }[event["event"]]
            yield _chapter(event["at"], title, [event.get("reason", "")], event.get("by", ""))


def _gates(gates: list[Values]) -> list[str]:
    if not gates:
        return ["It has no gate of its own, so it could miss none."]
    signs = {"passed": "met", "warned": "met, as far as one can tell", "failed": "missed"}
    missed_first = sorted(gates, key=lambda one: one["verdict"] != "failed")
    return [f"{signs.get(one['verdict'], one['verdict'])}: {one['reason']}" for one in missed_first]


def _rollout(rollout: Values, records: Mapping[str, Mapping[str, Any] | None]) -> Iterator[Values]:
    number = rollout["rollout"]
    weights = ", ".join(f"{one['weight']} %" for one in rollout["plan"]["steps"])
    forced = (
        f" It was rolled back before; the reason to bring it back: {rollout['forced']}." if rollout["forced"] else ""
    )
    probation = ", the last of them as its probation" if rollout["plan"]["holdBack"] else ""
    asked = f"Plan “{rollout['plan']['name']}”: {weights} of the requests, each judged{probation}, then all.{forced}"
    yield _chapter(rollout["proposed"], f"Rollout {number} was asked for", [asked], rollout["by"])
    for event in rollout["events"]:
        title = _TITLES.get(event["event"])
        if title is None:
            continue
        words = _gates(rollout["gates"]) if event["event"] in ("Authorised", "Refused") else [event.get("reason", "")]
        if event["event"] == "Refused" and not any(one["verdict"] == "failed" for one in rollout["gates"]):
            words = [event.get("reason", "")]
        yield _chapter(event["at"], title, words, event.get("by", ""))
    for decided in rollout["decisions"]:
        record = records.get(decided["name"])
        if record is not None:
            words = alarm_words(record) if decided["outcome"] == "alarm" else plain.decision(record)
            yield _chapter(decided["at"], _heading(rollout, decided), words)


def _heading(rollout: Values, decided: Values) -> str:
    if decided["outcome"] == "alarm":
        return f"Rollout {rollout['rollout']}, serving all requests, is beyond a limit"
    step = str(decided["cohort"]).rpartition("-")[2]
    share = f"step {step} at {decided['weightPercent']} % of the requests" if step != "0" else "replayed requests"
    worse = "shows that the release is worse" if step != "0" else "show that it is beyond a limit"
    outcome = {
        "passed": "passed",
        "failed": worse,
        "inconclusive": "could not be decided, and a person is asked",
    }.get(decided["outcome"], decided["outcome"])
    return f"Rollout {rollout['rollout']}, {share}, {outcome}"


def _summary(release: Values, rollouts: list[Values], report: Values) -> str:
    name, where = release["release"], report["environment"]
    if report["serving"] and report["serving"]["release"] == name:
        trust = "and is trusted" if report["serving"]["trusted"] else "and is on probation"
        return f"Release {name} serves {where} {trust}."
    if not rollouts:
        reason = f": {release['reason']}" if release["reason"] else ""
        return f"Release {name} is {release['phase']} and was never rolled out in {where}{reason}."
    last = rollouts[-1]
    reason = f": {last['reason']}" if last["reason"] else ""
    return f"Release {name} does not serve {where}. Its rollout {last['rollout']} is {last['phase']}{reason}."


def _next(release: Values, rollouts: list[Values], report: Values) -> list[str]:
    name, found = release["release"], []
    if report["hold"]:
        found.append("`mlgitops resume` lets automation go on; it is on hold: " + report["hold"]["reason"])
    if report["serving"] and report["serving"]["release"] == name:
        found.append("`mlgitops rollback` returns all requests to what served before")
    last = rollouts[-1] if rollouts else None
    if last is not None and last["phase"] == "ROLLED_BACK":
        found.append(f"`mlgitops promote {name} --force --reason …` brings it back all the same, without a training")
    if last is not None and last["phase"] in ("PROPOSED", "STARTING", "STEP", "ANALYSING", "COMPLETING"):
        found.append("`mlgitops rollback` ends the rollout; `mlgitops hold` pauses automation")
    if release["phase"] == "CANDIDATE" and (last is None or last["phase"] in ("REFUSED", "WITHDRAWN", "ERRORED")):
        found.append(f"`mlgitops promote {name}` asks for a rollout again")
    return found
