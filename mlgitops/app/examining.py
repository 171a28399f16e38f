"""Examining an environment repository: whether what it says can be trusted, and is kept from being rewritten."""

from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from itertools import islice
from typing import Final

from mlgitops.app.absorbing import check_ahead
from mlgitops.app.context import Context, View, look
from mlgitops.app.rolling import folder_of
from mlgitops.core.errors import InvalidInput, MlgitopsError, NotFound
from mlgitops.core.findings import Finding, Outcome
from mlgitops.core.loading import ENVIRONMENTS_FILE, load_environments
from mlgitops.core.manifest.fields import LEDGER, MAIN
from mlgitops.core.manifest.lint import lint_tree
from mlgitops.core.owners import CODEOWNERS_FILE, FIRST_LINE, codeowners
from mlgitops.ports.repository import Snapshot

SKEW: Final = timedelta(minutes=2)
"""More than two clocks that are kept right differ, and less than anything that is decided here waits for."""
LOOKED_AT: Final = 20
"""Newest commits whose times are compared with this machine's clock."""
TOLD: Final = 20
"""Problems of one kind that are told one by one."""


def examine(context: Context, *, shared: bool) -> Iterator[Finding]:
    """Yield what is found about an environment repository; every question is answered, also where another fails.

    Args:
        context: The repository and the clock.
        shared: Whether it stands on a server, where several people propose changes.
    """
    try:
        main = context.repository.snapshot(MAIN)
    except MlgitopsError as error:
        mend = "see that the address is right, the server can be reached, and MLGITOPS_TOKEN or the ssh key opens it"
        yield Finding(check="repository", outcome="error", message=str(error), mend=mend)
        return
    if main.revision is None:
        mend = "name the environment repository, or make one with `mlgitops local up`"
        yield Finding(check="repository", outcome="error", message="there is no branch main", mend=mend)
        return
    yield Finding(check="repository", outcome="ok", message=f"main is at {main.revision[:12]}")
    questions = {
        "configuration": _configuration(main),
        "manifests": _manifests(context, main),
        "owners": _owners(main, shared=shared),
        "ledger": _ledger(context),
        "clock": _clocks(context, main),
    }
    for check, answers in questions.items():
        try:
            yield from answers
        except MlgitopsError as error:
            yield Finding(check=check, outcome="unknown", message=str(error), mend="run it again")


def _configuration(main: Snapshot) -> Iterator[Finding]:
    data = main.read(ENVIRONMENTS_FILE)
    if data is None:
        mend = "restore it from an earlier commit of main"
        yield Finding(check="configuration", outcome="error", message=f"there is no {ENVIRONMENTS_FILE}", mend=mend)
        return
    try:
        found = load_environments(data, ENVIRONMENTS_FILE)
    except InvalidInput as error:
        for one in error.problems[:TOLD]:
            yield Finding(check="configuration", outcome="error", message=str(one), mend=one.mend or "")
        return
    names = " → ".join(one.name for one in found.environments)
    yield Finding(check="configuration", outcome="ok", message=f"{ENVIRONMENTS_FILE} is valid: {names}")


def _manifests(context: Context, main: Snapshot) -> Iterator[Finding]:
    """Answer whether the engine would take what stands on main; what environments.yaml lacks is told elsewhere."""
    problems = lint_tree(main.read, main.paths(), today=context.clock.now().date())
    found = [one for one in problems if one.path != ENVIRONMENTS_FILE]
    told: dict[str, Outcome] = {"error": "error", "warning": "warning"}
    grave = [one for one in found if one.severity in told]
    for one in grave[:TOLD]:
        yield Finding(check="manifests", outcome=told[one.severity], message=str(one), mend=one.mend or "")
    if len(grave) > TOLD:
        message = f"{len(grave) - TOLD} more problems"
        mend = "run `mlgitops lint` in a checkout of the repository"
        yield Finding(check="manifests", outcome="warning", message=message, mend=mend)
    if not grave:
        yield Finding(check="manifests", outcome="ok", message="every manifest on main passes lint")


def _owners(main: Snapshot, *, shared: bool) -> Iterator[Finding]:
    data = main.read(ENVIRONMENTS_FILE)
    try:
        found = load_environments(data or b"", ENVIRONMENTS_FILE)
    except InvalidInput:
        return  # told already, and what CODEOWNERS should say cannot be known
    written, wanted = main.read(CODEOWNERS_FILE), codeowners(found)
    mend = f"run `mlgitops init --codeowners` in a checkout, and propose {CODEOWNERS_FILE}"
    if found.owners is None:
        if shared:
            message = f"{ENVIRONMENTS_FILE} names no owners: whoever may approve may approve changes of every model"
            mend = f"add `owners:` to {ENVIRONMENTS_FILE}, then run `mlgitops init --codeowners` in a checkout"
            yield Finding(check="owners", outcome="warning", message=message, mend=mend)
    elif written is None:
        yield Finding(check="owners", outcome="error", message=f"there is no {CODEOWNERS_FILE}", mend=mend)
    elif written != wanted:
        own = written.startswith(FIRST_LINE.encode())
        message = f"{CODEOWNERS_FILE} is not what `owners` in {ENVIRONMENTS_FILE} says"
        yield Finding(check="owners", outcome="error" if own else "warning", message=message, mend=mend)
    else:
        yield Finding(check="owners", outcome="ok", message=f"{CODEOWNERS_FILE} is current")


def _ledger(context: Context) -> Iterator[Finding]:
    restore = "restore the branch mlgitops/ledger from a clone or a backup, with every file as it was"
    try:
        view = look(context)
    except NotFound:
        message = "there is no ledger: nothing may change without one"
        yield Finding(check="ledger", outcome="error", message=message, mend=restore)
        return
    faults = list(_unreadable(view))
    for fault in faults[:TOLD]:
        yield Finding(check="ledger", outcome="error", message=fault, mend=restore)
    if not faults:
        message = f"every file can be read, and main is not ahead of it ({len(view.ledger.models())} models)"
        yield Finding(check="ledger", outcome="ok", message=message)


def _unreadable(view: View) -> Iterator[str]:
    """Say of every model what of the ledger cannot be read, and where main is ahead of it."""
    for model in view.ledger.models():
        for name in view.ledger.release_names(model):
            try:
                view.ledger.release(model, name)
            except MlgitopsError as error:
                yield str(error)
    known = set(view.ledger.environments())
    places = (path.split("/") for path in view.main.paths("environments"))
    shown = {(parts[1], parts[2]) for parts in places if len(parts) == 4}
    units = {one.name: one for one in view.configuration.environments}
    for environment, model in sorted(known | {one for one in shown if one[0] in units}):
        try:
            state = view.ledger.state(environment, model)
            if environment in units:
                check_ahead(view, folder_of(view, units[environment], model), state)
        except MlgitopsError as error:
            yield str(error)


def _clocks(context: Context, main: Snapshot) -> Iterator[Finding]:
    """Compare this machine's clock with the times of the newest commits: what is decided counts on both."""
    now, ahead = context.clock.now(), timedelta(0)
    revisions = [main.revision, context.repository.snapshot(LEDGER).revision]
    for revision in filter(None, revisions):
        with suppress(NotFound):
            newest = islice(context.repository.history(revision), LOOKED_AT)
            ahead = max([ahead, *(one.committed_at - now for one in newest)])
    if ahead > SKEW:
        seconds = int(ahead.total_seconds())
        message = f"a commit is {seconds} s in the future of this machine's clock: one of two clocks is wrong"
        mend = "set this machine's clock, or that of whoever made the newest commits; steps and probations count on it"
        yield Finding(check="clock", outcome="error", message=message, mend=mend)
    else:
        yield Finding(check="clock", outcome="ok", message="no commit is in the future of this machine's clock")
