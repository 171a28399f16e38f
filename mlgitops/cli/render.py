"""Tables and paragraphs for people, laid out for 80 columns whatever the terminal, so that a log shows the same."""

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from mlgitops.cli.words import one_line
from mlgitops.core.findings import OUTCOMES, Finding

WIDTH: Final = 80
LABEL: Final = 9
SHORTEST: Final = 12
"""Characters that the last column of a table always gets."""


def table(headings: Sequence[str], rows: Iterable[Sequence[object]], indent: str = "") -> str:
    """Return rows under headings in aligned columns, nothing for no rows; the last column is cut where 80 are full."""
    text = [[_cell(cell) for cell in row] for row in rows]
    if not text:
        return ""
    widths = [max(len(row[index]) for row in [list(headings), *text]) for index in range(len(headings))]
    last = max(SHORTEST, WIDTH - len(indent) - sum(width + 2 for width in widths[:-1]))
    lines = []
    for row in [list(headings), *text]:
        cells = [cell.ljust(width) for cell, width in zip(row[:-1], widths[:-1], strict=True)]
        lines.append(indent + "  ".join([*cells, _cut(row[-1], last)]).rstrip())
    return "\n".join(lines)


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list | tuple):
        return one_line(", ".join(str(one) for one in value))
    if isinstance(value, dict):
        parts = (
            f"{name} ({_cell(one)})" if isinstance(one, dict) else f"{name} {_cell(one)}" for name, one in value.items()
        )
        return one_line(", ".join(parts))
    return one_line(value)


def paragraph(text: str, indent: str = "") -> str:
    """Return text in lines of at most 80 columns where words allow it; lines after the first stand further in."""
    return textwrap.fill(
        one_line(text),
        WIDTH,
        initial_indent=indent,
        subsequent_indent=indent + "  ",
        break_long_words=False,
        break_on_hyphens=False,
    )


def _minute(time: str) -> str:
    return time[:16].replace("T", " ")


def status(values: Mapping[str, Any]) -> str:
    """Return the words of `mlgitops status`."""
    blocks = [_model(one) for one in values["models"]]
    if not blocks:
        blocks = ["nothing was submitted yet; `git push local` makes the first release"]
    return "\n\n".join([*blocks, *_push(values["push"])])


def _push(values: Mapping[str, Any] | None) -> list[str]:
    """Return the words about a push that failed; one that went well is a release, which is told above."""
    if values is None or values["exitCode"] == 0:
        return []
    told = f"the last push, {values['revision'][:12]}, made no release (exit code {values['exitCode']})"
    return [paragraph(f"{told}: {values['reason']}" if values["reason"] else told)]


def _model(values: Mapping[str, Any]) -> str:
    lines = [one_line(values["model"]), *_problem(values)]
    for one in values["environments"]:
        lines += _environment(one)
    rows = [
        (one["release"], one["phase"], one["cause"], one["revision"][:12], one["subject"]) for one in values["releases"]
    ]
    listed = table(("release", "phase", "cause", "commit", "subject"), rows, "  ")
    lines += ["", listed] if listed else []
    lines += [paragraph(f"{one['release']}: {one['reason']}", "  ") for one in values["releases"] if one["reason"]]
    if values["notCarriedOver"]:
        told = "; ".join(values["notCarriedOver"])
        mend = "write that into tfjob.yaml, or delete the file: the next training writes it anew"
        lines.append(paragraph(f"people edited tfjob.yaml, so it was not carried over: {told} ({mend})", "  "))
    return "\n".join(lines)


def _problem(values: Mapping[str, Any]) -> list[str]:
    return [paragraph(f"cannot be told: {values['problem']}", "  ")] if values["problem"] else []


def _environment(values: Mapping[str, Any]) -> list[str]:
    trust = "trusted" if values["trusted"] else "on probation"
    champion = f"release {values['champion']} ({trust}), {values['source']}" if values["champion"] else "nothing"
    lines = [paragraph(f"{values['environment']}: serves {champion}", "  ")]
    rollout, last, promotion = values["rollout"], values["last"], values["promotion"]
    if promotion:
        told = f"promotion {promotion['rollout']}: release {promotion['release']} is on main, not taken up yet"
        lines.append(paragraph(told, "    "))
    if rollout:
        lines.append(paragraph(f"rollout {rollout['rollout']}: {_rollout(rollout)}", "    "))
        lines += (
            [paragraph(f"waiting: {values['waiting']}", "    ")] if values["waiting"] and not values["hold"] else []
        )
    elif last and last["reason"]:
        told = f"rollout {last['rollout']} of release {last['release']}: {last['phase']}: {last['reason']}"
        lines.append(paragraph(told, "    "))
    lines += [paragraph(f"alarm at {_minute(one['at'])}: {one['words']}", "    ") for one in values["alarms"]]
    if values["hold"]:
        hold = values["hold"]
        lines.append(paragraph(f"on hold by {hold['by']}: {hold['reason']} (`mlgitops resume` ends it)", "    "))
    lines += [paragraph(f"changed by hand: {one}", "    ") for one in values["foreign"]]
    return lines


def _rollout(values: Mapping[str, Any]) -> str:
    share = f" at {values['weightPercent']} %, step {values['step']} of {values['steps']}" if values["step"] else ""
    if values["onProbation"]:
        share = f" on probation at {values['weightPercent']} %, with a hold-back beside it,"
    return f"release {values['release']} is {values['phase']}{share} since {_minute(values['since'])}"


def explain(values: Mapping[str, Any]) -> str:
    """Return the words of `mlgitops explain`."""
    parts = [paragraph(values["summary"])]
    for one in values["story"]:
        by = f", by {one['by']}" if one["by"] else ""
        parts.append("\n".join([paragraph(f"{_minute(one['at'])}  {one['title']}{by}"), *_paragraphs(one["words"])]))
    if values["next"]:
        parts.append("\n".join(["What you can do:", *_paragraphs(values["next"])]))
    return "\n\n".join([*parts, *([f"drawn: {values['plot']}"] if values["plot"] else [])])


def _paragraphs(words: Sequence[str]) -> list[str]:
    return [paragraph(one, "  ") for one in words]


def history(values: Mapping[str, Any]) -> str:
    """Return the words of `mlgitops history`."""
    releases = table(
        ("release", "phase", "cause", "commit", "submitted", "subject"),
        (
            (
                one["release"],
                one["phase"],
                one["cause"],
                one["revision"][:12],
                _minute(one["submitted"]),
                one["subject"],
            )
            for one in values["releases"]
        ),
    )
    rollouts = table(
        ("rollout", "release", "phase", "proposed", "by"),
        (
            (one["rollout"], one["release"], one["phase"], _minute(one["proposed"]), one["by"])
            for one in values["rollouts"]
        ),
    )
    events = "\n".join(_events(one) for one in values["rollouts"])
    ended = "\n".join(paragraph(f"{one['release']}: {one['reason']}") for one in values["releases"] if one["reason"])
    return "\n\n".join(part for part in (releases, ended, rollouts, events) if part) or "nothing was submitted yet"


def _events(values: Mapping[str, Any]) -> str:
    lines = [f"rollout {values['rollout']} of release {values['release']} in {values['environment']}"]
    for event in values["events"]:
        told = {name: value for name, value in event.items() if name not in ("event", "at")}
        words = "; ".join(f"{name}: {_cell(value)}" for name, value in told.items())
        at = event["at"][:19].replace("T", " ")
        lines.append(paragraph(f"{at}  {event['event']}" + (f"  {words}" if words else ""), "  "))
    return "\n".join(lines)


def trace(values: Mapping[str, Any]) -> str:
    """Return the words of `mlgitops trace`."""
    answer, release = values["answer"], values["release"]
    artifact = release["artifact"]
    metrics = ", ".join(f"{name} {_cell(value)}" for name, value in release["metrics"].items())
    rows = [
        ("release", f"{release['release']} ({release['phase']}), cause: {_cell(release['cause'])}"),
        ("commit", f"{release['revision']} {release['subject']}, {release['author']}"),
        ("data", release["dataDigest"]),
        ("image", release["image"]),
        ("model", f"{artifact['uri']} {artifact['digest'] or 'not trained'}"),
        ("metrics", metrics or "not evaluated"),
        *(("rollout", f"{one['rollout']}: {one['phase']}, asked for by {one['by']}") for one in release["rollouts"]),
        *(("decision", f"{one['name']}: {one['words']}") for one in release["decisions"]),
    ]
    if answer.get("id"):
        told = (f"{answer['id']} at {answer.get('at', '')}", answer.get("arm", ""), f"step {answer.get('cohort', '')}")
        rows.insert(0, ("answer", ", ".join(one for one in told if one)))
    return "\n".join(_labelled(name, words) for name, words in rows)


def _labelled(name: str, words: str) -> str:
    """Return a name and what belongs to it, in a column of its own; a long word overflows rather than breaks."""
    lines = textwrap.wrap(one_line(words), WIDTH - LABEL, break_long_words=False, break_on_hyphens=False) or [""]
    return "\n".join(f"{label:<{LABEL}}{line}" for label, line in zip([name, *[""] * len(lines)], lines, strict=False))


def findings(found: Sequence[Finding]) -> str:
    """Return the words of `mlgitops doctor`: what is grave last, where people look first."""
    lines = []
    for one in sorted(found, key=lambda one: OUTCOMES.index(one.outcome), reverse=True):
        lines.append(_labelled(one.outcome, f"{one.check}: {one.message}"))
        lines += [_labelled("", f"mend: {one.mend}")] if one.mend else []
    return "\n".join(lines)


def models(values: Mapping[str, Any]) -> str:
    """Return the words of `mlgitops models list`: a table per model, its aliases last."""
    blocks = []
    for model in values["models"]:
        rows = [(one["release"], one["phase"], _metrics(one["metrics"]), one["aliases"]) for one in model["releases"]]
        listed = table(("release", "phase", "metrics", "aliases"), rows, "  ")
        blocks.append("\n".join([one_line(model["model"]), *_problem(model), *([listed] if listed else [])]))
    return "\n\n".join(blocks) or "no model was submitted yet"


def _metrics(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value:.4g}" for name, value in [*values.items()][:2])
