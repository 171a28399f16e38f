"""Renders the report as one HTML file that fetches nothing and runs nothing."""

import base64
import hashlib
from collections.abc import Mapping
from functools import lru_cache
from importlib import resources
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from mlgitops.adapters.report import plots, wording
from mlgitops.adapters.report.characters import visible

_PACKAGE: Final = "mlgitops.adapters.report"


def render(values: Mapping[str, Any]) -> str:
    """Return the report as a page.

    Whatever comes from a repository is escaped, and its invisible characters are made visible. A policy in the page
    itself forbids scripts and every request, should something be overlooked.

    Args:
        values: From `app.reporting.collect`.
    """
    return _environment().get_template("report.html.j2").render(report=values)


def standalone_course(rollout: Mapping[str, Any], made_at: str) -> str | None:
    """Return the drawing of one rollout as an SVG file of its own; None where nothing ever started.

    Args:
        rollout: One of `rollouts` of `app.reporting.collect`.
        made_at: When that was collected.
    """
    drawing = plots.course("course", dict(rollout), made_at)
    return None if drawing is None else standing_alone(drawing)


def standing_alone(drawing: Markup) -> str:
    """Return a drawing as an SVG file of its own, with its style."""
    style = f"<style>{_style()} svg.plot{{background:var(--page,#fff);padding:8px}}</style>"
    head, _, rest = str(drawing).partition(">")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{head} xmlns="http://www.w3.org/2000/svg">{style}{rest}\n'


def _style() -> str:
    return resources.files(_PACKAGE).joinpath("style.css").read_text("utf-8")


@lru_cache(maxsize=1)
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader(_PACKAGE),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_shown,
    )
    style = _style()
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    environment.globals.update(
        plots=plots,
        wording=wording,
        style=Markup(style),  # noqa: S704 - our own file
        policy=f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; base-uri 'none'; form-action 'none'",
    )
    environment.filters.update(
        when=_when,
        number=wording.number,
        interval=wording.interval,
        odds=wording.evidence,
    )
    return environment


def _shown(value: Any) -> Any:
    """Make every text visible before it is escaped; what is not known is a dash."""
    if value is None:
        return "–"
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _when(text: str | None) -> Markup:
    """Return a time for people and for programs."""
    if not text:
        return Markup("–")
    return Markup('<time datetime="{}">{}</time>').format(visible(text), visible(wording.moment(text)))
