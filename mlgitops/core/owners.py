"""CODEOWNERS of an environment repository: who must approve what, written from `owners` in environments.yaml.

A model's owners approve changes of its folders in every environment; they cannot approve a change of the minima, plans
and approvals that bind them, nor of this file. The last matching line counts:
https://docs.github.com/en/repositories/managing-your-repositorys-settings-and-features/customizing-your-repository/about-code-owners
"""

from typing import Final

from mlgitops.core.configuration import EnvironmentsConfiguration

CODEOWNERS_FILE: Final = ".github/CODEOWNERS"
FIRST_LINE: Final = "# Written by `mlgitops init --codeowners` from `owners` in environments.yaml.\n"
_NONE: Final = "# There are no `owners`: anybody who may approve pull requests may approve all of them.\n"
_KEPT: Final = ("/environments.yaml", "/.github/", "/policies/", "/clusters/")
"""What binds every model: no model's owners may approve a change of it alone."""


def codeowners(configuration: EnvironmentsConfiguration) -> bytes:
    """Return the file that a forge reads; the same configuration gives the same bytes."""
    owners = configuration.owners
    if owners is None:
        return (FIRST_LINE + _NONE).encode()
    lines = [("*", owners.default)]
    lines += [(f"/environments/*/{name}/", people) for name, people in sorted(owners.models.items())]
    lines += [(place, owners.default) for place in _KEPT]
    width = max(len(place) for place, _ in lines) + 2
    return (FIRST_LINE + "".join(f"{place:<{width}}{' '.join(people)}\n" for place, people in lines)).encode()
