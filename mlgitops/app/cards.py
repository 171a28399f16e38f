"""Model cards: metrics, data, lineage and decisions of one release, in Markdown with a front matter."""

from typing import Any

from mlgitops.app.context import View, configuration_of
from mlgitops.app.markdown import code, plain, table
from mlgitops.app.reading import aliases, lineage
from mlgitops.core.manifest.dump import dump


def card(view: View, environment: str, model: str, release: str) -> str:
    """Return the model card of a release.

    Every text that comes from a repository is put into code spans or quoted values, so that it renders as what it is.
    """
    values = lineage(view, environment, model, release)
    found = view.ledger.release(model, release)
    configuration = configuration_of(found.judged_by)
    report = view.ledger.report(model, found.report) if found.report else None
    parts = [
        _front(values, configuration.evaluation.specification),
        f"# {model}, release {release}\n",
        f"Phase {values['phase']}; called {', '.join(aliases(view, model, found)) or 'nothing in particular'}.\n",
        "## Metrics\n",
        _metrics(values["metrics"], report),
        "## Where it comes from\n",
        _lineage(values),
        "## What was decided\n",
        _decisions(values),
    ]
    return "\n".join(parts)


def _front(values: dict[str, Any], specification: Any) -> str:
    front = {
        "library_name": "tensorflow",
        "pipeline_tag": f"tabular-{specification.get('task', 'classification')}",
        "release": values["release"],
        "artifact_digest": values["artifact"]["digest"] or "",
        "metrics": [{"name": name, "value": value} for name, value in values["metrics"].items()],
    }
    return f"---\n{dump(front).decode()}---\n"


def _metrics(metrics: Any, report: Any) -> str:
    if not metrics:
        return "It was not evaluated.\n"
    rows = ["| metric | value |", "|---|---|"]
    rows += [f"| {code(name)} | {value:.5g} |" for name, value in metrics.items()]
    data = report.get("data", {}) if report else {}
    told = f"\nEvaluation set {code(data.get('digest', ''))}.\n" if data.get("digest") else ""
    return "\n".join(rows) + "\n" + told


def _lineage(values: dict[str, Any]) -> str:
    rows = {
        "commit": values["revision"],
        "subject": values["subject"],
        "author": values["author"],
        "cause": ", ".join(values["cause"]),
        "data": values["dataDigest"],
        "image": values["image"],
        "model": values["artifact"]["uri"],
        "model's digest": values["artifact"]["digest"] or "not trained",
    }
    return table(rows)


def _decisions(values: dict[str, Any]) -> str:
    lines = [f"- rollout {one['rollout']}: {one['phase']} {code(one['reason'])}" for one in values["rollouts"]]
    lines += [f"- {code(one['name'])}: {plain(one['words'])}" for one in values["decisions"]]
    return "\n".join(lines) + "\n" if lines else "Nothing yet.\n"
