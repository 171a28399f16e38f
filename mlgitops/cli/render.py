"""Tables and paragraphs for people."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any


def table(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return rows under headings in aligned columns, nothing for no rows."""
    text = [[_cell(cell) for cell in row] for row in rows]
    if not text:
        return ""
    widths = [max(len(row[index]) for row in [list(headings), *text]) for index in range(len(headings))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in [headings, *text]]
    return "\n".join(line.rstrip() for line in lines)


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list | tuple):
        return ", ".join(str(one) for one in value)
    # One line, no control characters: names and subjects come from other people's repositories.
    return "".join(one if one.isprintable() else " " for one in str(value))


def status(values: Mapping[str, Any]) -> str:
    """Return the words of `mlgitops status`."""
    blocks = [_model(one) for one in values["models"]]
    return "\n\n".join(blocks) if blocks else "nothing was submitted yet; `git push local` makes the first release"


def _model(values: Mapping[str, Any]) -> str:
    lines = [values["model"]]
    for one in values["environments"]:
        lines += _environment(one)
    rows = [
        (one["release"], one["phase"], one["cause"], one["revision"][:12], one["subject"]) for one in values["releases"]
    ]
    listed = table(("release", "phase", "cause", "commit", "subject"), rows)
    lines += ["", *(f"  {line}" for line in listed.splitlines())] if listed else []
    ended = [f"  {one['release']}: {one['reason']}" for one in values["releases"] if one["reason"]]
    return "\n".join(_cell(line) if line else line for line in (*lines, *ended))


def _environment(values: Mapping[str, Any]) -> list[str]:
    trust = "trusted" if values["trusted"] else "on probation"
    champion = f"release {values['champion']} ({trust}), {values['source']}" if values["champion"] else "nothing"
    lines = [f"  {values['environment']}: serves {champion}"]
    rollout = values["rollout"]
    if rollout:
        lines.append(f"    rollout {rollout['rollout']}: {_rollout(rollout)}")
    elif values["last"] and values["last"]["reason"]:
        last = values["last"]
        lines.append(f"    rollout {last['rollout']} of release {last['release']}: {last['phase']}: {last['reason']}")
    if values["hold"]:
        lines.append(f"    on hold by {values['hold']['by']}: {values['hold']['reason']} (`mlgitops resume` ends it)")
    lines += [f"    changed by hand: {one}" for one in values["foreign"]]
    return lines


def _rollout(values: Mapping[str, Any]) -> str:
    share = f" at {values['weightPercent']} %, step {values['step']} of {values['steps']}" if values["step"] else ""
    return f"release {values['release']} is {values['phase']}{share} since {values['since']}"


def history(values: Mapping[str, Any]) -> str:
    """Return the words of `mlgitops history`."""
    releases = table(
        ("release", "phase", "cause", "commit", "submitted", "subject"),
        (
            (one["release"], one["phase"], one["cause"], one["revision"][:12], one["submitted"][:19], one["subject"])
            for one in values["releases"]
        ),
    )
    rollouts = table(
        ("rollout", "release", "phase", "proposed", "by"),
        (
            (one["rollout"], one["release"], one["phase"], one["proposed"][:19], one["by"])
            for one in values["rollouts"]
        ),
    )
    events = "\n".join(_events(one) for one in values["rollouts"])
    return "\n\n".join(part for part in (releases, rollouts, events) if part)


def _events(values: Mapping[str, Any]) -> str:
    lines = [f"rollout {values['rollout']} of release {values['release']} in {values['environment']}"]
    for event in values["events"]:
        told = {name: value for name, value in event.items() if name not in ("event", "at")}
        words = "; ".join(f"{name}: {_cell(value)}" for name, value in told.items())
        lines.append(f"  {event['at'][:19]}  {event['event']}" + (f"  {words}" if words else ""))
    return "\n".join(lines)


def trace(values: Mapping[str, Any]) -> str:
    """Return the words of `mlgitops trace`."""
    answer, release = values["answer"], values["release"]
    artifact = release["artifact"]
    lines = [
        f"answer    {answer.get('id', '')} at {answer.get('at', '')}, {answer.get('arm', '')}, "
        f"step {answer.get('cohort', '')}",
        f"release   {release['release']} ({release['phase']}), cause: {_cell(release['cause'])}",
        f"commit    {release['revision']} {_cell(release['subject'])}, {_cell(release['author'])}",
        f"data      {release['dataDigest']}",
        f"image     {release['image']}",
        f"model     {artifact['uri']} {artifact['digest']}",
        "metrics   " + ", ".join(f"{name} {_cell(value)}" for name, value in release["metrics"].items()),
        *(f"rollout   {one['rollout']}: {one['phase']}, asked for by {_cell(one['by'])}" for one in release["rollouts"]),
        *(f"decision  {one['name']}: {one['words']}" for one in release["decisions"]),
    ]
    return "\n".join(lines)


def models(values: Mapping[str, Any]) -> str:
    """Return the words of `mlgitops models`."""
    rows = [
        (model["model"], one["release"], one["phase"], one["aliases"], _metrics(one["metrics"]), one["subject"])
        for model in values["models"]
        for one in model["releases"]
    ]
    return table(("model", "release", "phase", "aliases", "metrics", "subject"), rows) or "no model was submitted yet"


def _metrics(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value:.4g}" for name, value in [*values.items()][:3])
