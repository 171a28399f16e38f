"""`mlgitops doctor`."""

import os
from typing import TYPE_CHECKING

import click

from mlgitops.cli import options, render
from mlgitops.cli.failure import ANSWER_NO
from mlgitops.cli.words import examples
from mlgitops.core.errors import InvalidInput

if TYPE_CHECKING:
    from mlgitops.cli.settings import Settings
    from mlgitops.core.findings import Finding
    from mlgitops.local.wiring import Access


@click.command(
    "doctor",
    epilog=examples(
        "mlgitops doctor",
        "mlgitops doctor --environment-repository https://git.example.org/environment.git",
        "mlgitops doctor --output json",
    ),
)
@options.places
@options.output
def command(home: str | None, environment_repository: str | None, output: str, verbose: bool) -> int:
    """Check this machine and the environment repository; name what is wrong and its mend.

    Looks at configuration, manifests, owners, ledger, clocks, protection, locks, packages, engine and token, and
    changes nothing. Exit code 10 when there is an error; warnings do not change it.
    """
    del verbose
    found = _found(home, environment_repository)
    counts = {f"{name}s": sum(one.outcome == name for one in found) for name in ("error", "warning")}
    values = {"healthy": not counts["errors"], **counts, "findings": [one.to_mapping() for one in found]}
    options.show(values, render.findings(found), output)
    options.report({name: values[name] for name in ("healthy", *counts)}, render.findings(found))
    return ANSWER_NO if counts["errors"] else 0


def _found(home: str | None, location: str | None) -> "list[Finding]":
    """Ask every question; what cannot be opened leaves the others to be answered."""
    from mlgitops.cli.settings import access, read_settings
    from mlgitops.core.findings import Finding
    from mlgitops.local.machine import examine_machine

    try:
        settings = read_settings(home, location)
        given = access()
    except InvalidInput as error:
        faults = [Finding(check="settings", outcome="error", message=str(error), mend="correct it, and run this again")]
        return [*examine_machine(None), *faults]
    return [*examine_machine(settings.home), *_of_repository(settings, given)]


def _of_repository(settings: "Settings", given: "Access") -> "list[Finding]":
    from mlgitops.adapters.repository.protection import examine_protection
    from mlgitops.app.examining import examine
    from mlgitops.core.errors import MlgitopsError
    from mlgitops.core.findings import Finding
    from mlgitops.local.machine import examine_token
    from mlgitops.local.wiring import TOOL, context

    token = given.credentials.token if given.credentials else None
    found = [*examine_token(settings.location, token, os.environ), *examine_protection(settings.location)]
    shared = settings.home is None or not settings.location.startswith(str(settings.home))
    try:
        world = context(settings.location, settings.cache, TOOL, access=given)
        return [*found, *examine(world, shared=shared)]
    except MlgitopsError as error:
        mend = "correct the location, or what opens it"
        return [*found, Finding(check="repository", outcome="error", message=str(error), mend=mend)]
