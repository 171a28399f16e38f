"""What a reviewer of a promotion reads: what changes, how it compares, where it comes from, its cost, its undoing."""

import difflib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from mlgitops.app.context import View, configuration_of
from mlgitops.app.evaluating import Judged
from mlgitops.app.markdown import block, code, table
from mlgitops.app.moves import target_of
from mlgitops.app.reporting import evaluation
from mlgitops.core import driver
from mlgitops.core import rollout as machine
from mlgitops.core.configuration import Environment
from mlgitops.core.evaluation.costs import gpus, training_costs
from mlgitops.core.ledger import EnvironmentState
from mlgitops.core.manifest import fields as names
from mlgitops.core.manifest import folder as folders
from mlgitops.core.manifest.folder import Folder
from mlgitops.core.release import Release
from mlgitops.core.rollout import Proposal, Rollout
from mlgitops.ports.repository import Change

MOST_LINES: Final = 400
"""Lines of a diff that are shown."""
Read = Callable[[str], bytes | None]


def described(  # noqa: PLR0917 - what is proposed, where, and how it did
    view: View,
    environment: Environment,
    folder: Folder,
    state: EnvironmentState,
    proposal: Proposal,
    change: Change,
    judged: Judged | None,
) -> str:
    """Return the text of a pull request; the same state gives the same text.

    Args:
        view: The environment repository.
        environment: Where the release is to go.
        folder: The model's manifests there.
        state: What the ledger says of it.
        proposal: What would be taken up if the pull request were merged now.
        change: What the pull request changes.
        judged: How the release did against the champion; None while that is not known.
    """
    release = view.ledger.release(state.model, proposal.release)
    champion = view.ledger.release(state.model, state.champion) if state.champion else None
    parts = [
        _words(environment, proposal, champion),
        "## What changes\n",
        _changes(view, folder, state, proposal, change),
        "## How it compares\n",
        _comparison(judged, champion),
        "## Where it comes from\n",
        _origin(release, champion),
        "## What it costs\n",
        _cost(release, folder, champion),
        "## When it is merged\n",
        _merged(environment, proposal, champion),
        "## How to undo it\n",
        _undone(state),
    ]
    return "\n".join(parts)


def _words(environment: Environment, proposal: Proposal, champion: Release | None) -> str:
    instead = f"in place of {code(champion.name)}" if champion else "as the first one"
    back = "It is brought back in spite of an earlier rollback"
    forced = f"\n\n{back}: {code(proposal.forced)}" if proposal.forced else ""
    return (
        f"Release {code(proposal.release)} of {code(proposal.model)} is to serve in {code(environment.name)}, "
        f"{instead}, as rollout {proposal.number} by plan {code(str(proposal.plan['name']))}. "
        f"Proposed by {code(proposal.by)}.{forced}\n"
    )


def _changes(view: View, folder: Folder, state: EnvironmentState, proposal: Proposal, change: Change) -> str:
    started = machine.advance(Rollout(proposal=proposal), machine.Authorised(at=proposal.proposed_at))
    asked = state.with_rollout(started)

    def read(path: str) -> bytes | None:
        return change.files[path] if path in change.files else view.main.read(path)

    wanted = driver.desired(asked, lambda release: target_of(view, state.model, release))
    files = folders.project(read, folder, wanted, state.generation + 1)
    files = {path: data for path, data in files.items() if not path.endswith(f"/{names.GENERATION_FILE}")}
    return (
        f"{block(_diff(view.main.read, change.files), 'diff')}\n\n"
        "<details><summary>The manifests, once the rollout starts</summary>\n\n"
        f"{block(_diff(read, files), 'diff')}\n\n</details>\n"
    )


def _diff(read: Read, files: Mapping[str, bytes | None]) -> str:
    lines = [line for path, data in sorted(files.items()) for line in _file_diff(path, read(path), data)]
    more = [f"… {len(lines) - MOST_LINES} more lines"] if len(lines) > MOST_LINES else []
    return "\n".join([*lines[:MOST_LINES], *more])


def _file_diff(path: str, before: bytes | None, after: bytes | None) -> Iterator[str]:
    old, new = (("" if data is None else data.decode(errors="replace")).splitlines() for data in (before, after))
    names = ("/dev/null" if before is None else f"a/{path}", "/dev/null" if after is None else f"b/{path}")
    yield from difflib.unified_diff(old, new, *names, lineterm="")


def _comparison(judged: Judged | None, champion: Release | None) -> str:
    if judged is None:
        return "It is being evaluated; the numbers follow here.\n"
    if judged.error:
        return f"There is no answer: {code(judged.error)}\n"
    found = evaluation(judged.report or {})
    rows = [_row(one["metric"], "", one) for one in found["metrics"]]
    rows += [_row(row["metric"], one["slice"], row) for one in found["slices"] for row in one["metrics"]]
    head = ["| metric | slice | candidate | champion | difference |", "|---|---|---|---|---|"]
    refused = [f"- {code(one)}" for one in judged.refusals]
    verdict = ["The gates say **no**; merged all the same, the rollout ends REFUSED:", "", *refused]
    told = verdict if refused else ["Every gate is met."]
    against = f" against {code(champion.name)}" if champion else ""
    data = code(found["data"]["digest"])
    confidence = f"; intervals at {found['confidence']:.4g}" if isinstance(found["confidence"], int | float) else ""
    return "\n".join([*told, "", f"Evaluated{against} on {data}{confidence}.", "", *head, *rows]) + "\n"


def _row(metric: str, part: str, found: Mapping[str, Any]) -> str:
    values = " | ".join(_number(found[side]) for side in ("candidate", "champion", "difference"))
    return f"| {code(metric)} | {code(part)} | {values} |"


def _number(found: Mapping[str, Any] | None) -> str:
    if found is None:
        return ""
    low, high = found["low"], found["high"]
    interval = f" ({low:.4g} … {high:.4g})" if low is not None and high is not None else ""
    return f"{found['value']:.4g}{interval}"


def _origin(release: Release, champion: Release | None) -> str:
    submission = release.submission
    before = champion.submission if champion else None
    rows = {
        "what changed since the release before it": ", ".join(submission.cause),
        "commit": submission.revision,
        "subject": submission.subject,
        "author": submission.author,
        "data": submission.data_digest,
    }
    if before is not None:
        same = "the same data" if before.data_digest == submission.data_digest else "other data"
        code_of = "the same code" if before.code_digest == submission.code_digest else "other code"
        rows["against the champion"] = f"{code_of}, {same}"
        rows["the champion's commit"] = before.revision
        rows["the champion's data"] = before.data_digest
    return table(rows)


def _cost(release: Release, folder: Folder, champion: Release | None) -> str:
    training = configuration_of(release.submission).training
    spent = training_costs(release, training)
    hours = f"{spent['hours']:.4g} hours, {spent['gpuHours']:.4g} GPU-hours" if spent else "hours not known"
    roles = f"{sum(role.replicas for role in training.roles.values())} replicas, {gpus(training)} GPUs"
    services = "2 services" if champion else "1 service"
    replicas = f"{folder.serving.get('minReplicas', 1)} replicas each at least"
    resources = folder.serving.get("resources", {})
    rows = {
        "training": f"{hours}; {roles}",
        "serving while it is under way": f"{services}, {replicas}",
        "serving afterwards": f"1 service, {replicas}",
        "resources of each replica": "; ".join(f"{kind}: {dict(values)}" for kind, values in resources.items()),
    }
    return table({name: value for name, value in rows.items() if value})


def _merged(environment: Environment, proposal: Proposal, champion: Release | None) -> str:
    lines = ["Merging authorises the plan as it stands; a plan that is changed before is refused then."]
    if environment.approvals:
        lines.append(f"{environment.approvals} `mlgitops approve` must follow before it starts.")
    lines.append("A hold and a freeze window make it wait.")
    if champion is None:
        lines.append("It gets all traffic once it is ready: there is nothing to compare it with.")
    else:
        steps = ", ".join(f"{one['weight']} % for {one['seconds']:g} s" for one in proposal.plan["steps"])
        lines.append(f"The canary gets {steps}, then all traffic. What harms is taken back by itself.")
    return _listed(lines)


def _undone(state: EnvironmentState) -> str:
    rollback = f"mlgitops rollback --model {state.model} --environment {state.environment}"
    lines = [
        "Before the merge: close this pull request; automation does not propose this release here again.",
        f"After it: `{rollback}`, or `git revert` of what was merged. `rollback` waits for no review.",
    ]
    return _listed(lines)


def _listed(lines: Sequence[str]) -> str:
    return "\n".join(f"- {line}" for line in lines) + "\n"
