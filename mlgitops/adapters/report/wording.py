"""What machines call things, in words for a reader who knows neither them nor statistics."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, Literal

from mlgitops.adapters.report.characters import visible
from mlgitops.adapters.report.svg import drawable
from mlgitops.core.analysis.words import NAMES, odds, percent, points, seconds

Tone = Literal["good", "bad", "open", "plain"]
SYMBOLS: Final[Mapping[Tone, str]] = {"good": "✓", "bad": "✕", "open": "…", "plain": "–"}


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How something stands or ended."""

    tone: Tone
    """Good, bad, still open, or neither."""
    short: str
    """One or two words."""
    words: str
    """A sentence without its full stop."""

    @property
    def symbol(self) -> str:
        """A sign that tells the tone without colour."""
        return SYMBOLS[self.tone]


def _outcome(tone: Tone, short: str, words: str) -> Outcome:
    return Outcome(tone=tone, short=short, words=words)


_ROLLOUTS: Final = {
    "PROPOSED": _outcome("open", "proposed", "proposed, and not started yet"),
    "STARTING": _outcome("open", "starting", "the canary starts"),
    "STEP": _outcome("open", "under way", "the next share of the traffic is being given"),
    "ANALYSING": _outcome("open", "under way", "being judged at its share of the traffic"),
    "COMPLETING": _outcome("open", "completing", "passed every step and takes all traffic"),
    "RETIRED": _outcome("plain", "retired", "served, and was replaced by a later one"),
    "ROLLING_BACK": _outcome("bad", "rolling back", "all traffic is going back"),
    "ROLLED_BACK": _outcome("bad", "rolled back", "rolled back, all traffic returned"),
    "WITHDRAWN": _outcome("plain", "withdrawn", "taken back before anything moved"),
    "REFUSED": _outcome("bad", "refused", "refused before anything moved"),
    "ERRORED": _outcome("bad", "errored", "whether it may start could not be found out"),
}
_RELEASES: Final = {
    "SUBMITTED": _outcome("open", "submitted", "submitted, and not looked at yet"),
    "QUEUED": _outcome("open", "queued", "waits for its training"),
    "TRAINING": _outcome("open", "training", "is being trained"),
    "EVALUATING": _outcome("open", "evaluating", "is being evaluated"),
    "CANDIDATE": _outcome("good", "candidate", "trained, evaluated and fit to be rolled out"),
    "FAILED": _outcome("bad", "failed", "the answer was no"),
    "ERRORED": _outcome("bad", "errored", "no answer could be had"),
    "ABORTED": _outcome("plain", "aborted", "stopped before it was done"),
    "REJECTED": _outcome("bad", "rejected", "refused by a person, for good"),
}
_VERDICTS: Final = {
    "passed": _outcome("good", "passed", "passed"),
    "warned": _outcome("plain", "passed, with a warning", "passed, with a warning"),
    "failed": _outcome("bad", "failed", "failed"),
    "inconclusive": _outcome("open", "undecided", "undecided"),
    "alarm": _outcome("bad", "alarm", "beyond a limit while it served"),
}
_EVENTS: Final = {
    "Queued": "queued for training",
    "TrainingStarted": "its training job was put on main",
    "TrainingSucceeded": "trained",
    "Revised": "judged by another content from then on",
    "EvaluationPassed": "evaluated; a candidate",
    "Failed": "failed",
    "Errored": "no answer could be had",
    "Aborted": "stopped",
    "Rejected": "refused by a person, for good",
    "Authorised": "gates passed; the canary starts",
    "Refused": "refused",
    "Withdrawn": "taken back",
    "ReplayStarted": "the canary answers; requests are replayed to it before any user meets it",
    "CanaryReady": "the canary answers; the first share of the traffic is asked for",
    "SplitObserved": "the router was seen to split the traffic so",
    "StepPassed": "the step passed; the next share is asked for",
    "LastStepPassed": "the last judged step passed; all traffic follows",
    "PartReached": "the next part was observed",
    "ServingAll": "serves alone",
    "Trusted": "probation is over: trusted",
    "Alarmed": "beyond a limit of monitoring",
    "Retired": "replaced by a later rollout",
    "RollbackDecided": "rollback decided",
    "RolledBack": "the former state was observed: rolled back",
    "Restored": "serves again",
}


def outcome(rollout: Mapping[str, Any]) -> Outcome:
    """Say how a rollout stands or ended."""
    if rollout["phase"] == "LIVE":
        trust = "trusted" if rollout["trusted"] else "on probation"
        return _outcome("good", "live", f"live, {trust}")
    return _ROLLOUTS.get(rollout["phase"]) or _outcome("plain", rollout["phase"], rollout["phase"])


def release_outcome(release: Mapping[str, Any]) -> Outcome:
    """Say how a release stands or ended."""
    return _RELEASES.get(release["phase"]) or _outcome("plain", release["phase"], release["phase"])


def verdict(text: str) -> Outcome:
    """Say what a gate's verdict or a decision's outcome is."""
    return _VERDICTS.get(text) or _outcome("plain", text or "unknown", text or "unknown")


def event(name: str) -> str:
    """Say what an event was."""
    return _EVENTS.get(name, name)


def metric(name: str) -> str:
    """Return what a metric of a rollout is called, by its kind, or by `kind/slice`."""
    known: Mapping[str, str] = {str(kind): words for kind, words in NAMES.items()}
    kind, _, of = name.partition("/")
    return known.get(kind, kind) + (f" of slice {of}" if of else "")


def stages(release: Mapping[str, Any]) -> list[tuple[str, Outcome]]:
    """Return the stages of a release's chain, and how far each came."""
    events = {one["event"] for one in release["events"]}
    waits = _outcome("plain", "not reached", "not reached")
    goes = _outcome("open", "under way", "under way")
    done = _outcome("good", "done", "done")
    no = release_outcome(release)
    ended = no.tone != "open" and release["phase"] != "CANDIDATE"
    trained, evaluated = "TrainingSucceeded" in events, "EvaluationPassed" in events
    stopped = ended and not (release["phase"] == "REJECTED" and evaluated)
    training = done if trained else waits if "TrainingStarted" not in events else no if stopped else goes
    evaluation = done if evaluated else waits if not trained else no if stopped else goes
    return [("push", done), ("tests and image", done), ("training", training), ("evaluation", evaluation)]


def moment(text: str) -> str:
    """Return a time for people, UTC; what is no time stays what it is."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        return text
    return f"{at:%d %b %Y, %H:%M:%S} UTC"


def brief(text: str, most: int = 160) -> str:
    """Return the beginning of a text, cut between words."""
    shown = visible(" ".join(text.split()))
    if len(shown) <= most:
        return shown
    return shown[: most - 1].rsplit(" ", 1)[0][: most - 1] + " …"


def span(start: str, end: str) -> str:
    """Return the time between two moments; empty where one is unknown."""
    try:
        took = datetime.fromisoformat(end) - datetime.fromisoformat(start)
    except (ValueError, TypeError):
        return ""
    return duration(took)


def duration(took: timedelta) -> str:
    """Return a span of time for people."""
    total = took.total_seconds()
    return seconds(total) if total < 2 * 86_400 else f"{total / 86_400:.0f} d"


def number(value: object) -> str:
    """Return a number with the digits that tell something."""
    return f"{value:.4g}" if drawable(value) else "–"


def interval(side: Mapping[str, Any] | None) -> str:
    """Return a value with its interval; empty without one."""
    if side is None:
        return ""
    limits = f" ({side['low']:.4g} to {side['high']:.4g})" if None not in (side["low"], side["high"]) else ""
    return f"{side['value']:.4g}{limits}"


def counts(side: Mapping[str, Any]) -> str:
    """Return bad of total requests with their share."""
    total, bad = side.get("total", 0), side.get("bad", 0)
    return f"{bad:,} of {total:,} ({percent(bad / total)})" if total else "none yet"


def worse_by(estimate: Mapping[str, Any]) -> str:
    """Return the estimated difference of bad shares with its interval, in percentage points."""
    found = [estimate.get(name) for name in ("difference", "lower", "upper")]
    if not all(drawable(one) for one in found):
        return "–"
    middle, low, high = (points(float(one)) for one in found if one is not None)
    return f"{middle} points ({low} to {high})"


def evidence(log: object) -> str:
    """Return a log of evidence as odds."""
    return odds(float(log)) if drawable(log) and isinstance(log, int | float) else "–"
