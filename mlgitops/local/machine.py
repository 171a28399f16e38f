"""Examining the machine that a command runs on: packages, programs, the engine, and the token that it was given."""

import shutil
import sys
from collections.abc import Iterator, Mapping
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from packaging.requirements import Requirement

from mlgitops.adapters.cluster.embedded import EmbeddedCluster
from mlgitops.adapters.isolation import can_leave_network
from mlgitops.adapters.repository.location import parse_location
from mlgitops.core.errors import MlgitopsError
from mlgitops.core.findings import Finding
from mlgitops.local.wiring import CLUSTER

SPARE_BYTES: Final = 2 << 30
"""A training's data, image and model fit into this in small cases; less is told before it is missed."""
_PACKAGE: Final = "mlgitops"
_GITHUB: Final = "github.com"


def examine_machine(home: Path | None) -> Iterator[Finding]:
    """Yield what is found about this machine.

    Args:
        home: Folder of the embedded engine; None where there is none.
    """
    yield from _packages()
    git = shutil.which("git")
    if git is None:
        mend = "install git: people's identity, hooks and pushes of several references need it"
        yield Finding(check="git", outcome="error", message="there is no git program", mend=mend)
    else:
        yield Finding(check="git", outcome="ok", message=f"git is {git}")
    if home is not None:
        yield from _engine(home)


def _packages() -> Iterator[Finding]:
    wrong = [fault for line in metadata.requires(_PACKAGE) or () if (fault := _fault(Requirement(line)))]
    for fault in wrong:
        mend = "install this package again; its lock has versions that work together"
        yield Finding(check="packages", outcome="error", message=fault, mend=mend)
    if not wrong:
        version = ".".join(str(part) for part in sys.version_info[:3])
        message = f"mlgitops {metadata.version(_PACKAGE)} and all it needs are there, on Python {version}"
        yield Finding(check="packages", outcome="ok", message=message)


def _fault(needed: Requirement) -> str:
    """Say what is wrong with one requirement; empty when it is met, or belongs to an extra."""
    if needed.marker is not None and not needed.marker.evaluate({"extra": ""}):
        return ""
    try:
        found = metadata.version(needed.name)
    except metadata.PackageNotFoundError:
        return f"{needed.name} is missing"
    if needed.specifier.contains(found, prereleases=True):
        return ""
    return f"{needed.name} is {found}, and {needed.specifier} is needed"


def _engine(home: Path) -> Iterator[Finding]:
    if find_spec("tensorflow") is None:
        mend = "install tensorflow or tensorflow-cpu beside mlgitops"
        yield Finding(check="tensorflow", outcome="warning", message="nothing can be evaluated or served", mend=mend)
    if can_leave_network():
        yield Finding(check="isolation", outcome="ok", message="evaluations run without a network")
    else:
        message = "this machine gives no process a network of its own: what is evaluated can reach the network"
        mend = "allow user namespaces to this account, or run the engine in a container without a network"
        yield Finding(check="isolation", outcome="warning", message=message, mend=mend)
    if (home / CLUSTER).is_dir() and EmbeddedCluster(home / CLUSTER).running:
        yield Finding(check="engine", outcome="ok", message=f"the engine of {home} runs")
    else:
        mend = "start it with `mlgitops local up`"
        yield Finding(check="engine", outcome="warning", message=f"the engine of {home} does not run", mend=mend)
    free = shutil.disk_usage(home).free
    if free < SPARE_BYTES:
        message = f"{free >> 20} MB are free at {home}"
        mend = "free some space, with `mlgitops gc` for one"
        yield Finding(check="disk", outcome="warning", message=message, mend=mend)


def examine_token(location: str, token: str | None, variables: Mapping[str, str]) -> Iterator[Finding]:
    """Yield what is found about the token of a GitHub workflow; nothing elsewhere.

    A workflow's own GITHUB_TOKEN opens the repository that the workflow runs in, and no other; what it pushes starts no
    workflow: https://docs.github.com/en/actions/concepts/security/github_token

    Args:
        location: The environment repository.
        token: What was given to open it; None for what the location holds.
        variables: The environment variables.
    """
    own = variables.get("GITHUB_TOKEN")
    if variables.get("GITHUB_ACTIONS") != "true":
        return
    try:
        place = parse_location(location)
    except MlgitopsError:
        return  # told elsewhere
    given = token or place.password
    if place.kind != "http" or place.host != _GITHUB:
        return
    name = place.url.removeprefix(f"https://{_GITHUB}/").removesuffix("/").removesuffix(".git")
    here = variables.get("GITHUB_REPOSITORY", "").lower() == name.lower()
    mend = "give MLGITOPS_TOKEN the token of a GitHub App, or of a person for this repository alone"
    if given is None:
        yield Finding(check="token", outcome="error", message="there is no token that may push", mend=mend)
    elif given == own and not here:
        message = f"the workflow's own GITHUB_TOKEN cannot push to {name}"
        yield Finding(check="token", outcome="error", message=message, mend=mend)
    elif given == own:
        message = "what the workflow's own GITHUB_TOKEN pushes starts no workflow: nothing reconciles after it"
        yield Finding(check="token", outcome="warning", message=message, mend=mend)
    else:
        yield Finding(check="token", outcome="ok", message=f"a token of its own opens {name}")
