"""Which address a token is sent to."""

import pytest

from mlgitops.adapters.forge.address import check_address, hosted_repository
from mlgitops.core.errors import InvalidInput

HOSTED = "https://api.github.com/repos/acme/environments"


@pytest.mark.parametrize(
    "location",
    [
        "https://github.com/acme/environments",
        "https://github.com/acme/environments.git",
        "https://x-access-token:secret@github.com/acme/environments.git",
        "git@github.com:acme/environments.git",
        "ssh://git@github.com/acme/environments",
    ],
)
def test_a_repository_on_github_tells_its_forge(location: str) -> None:
    """Each way to write a repository on github.com leads to the same address of its API."""
    assert hosted_repository(location) == HOSTED


@pytest.mark.parametrize(
    "location",
    [
        "/srv/environments.git",
        "https://github.com.evil.example/acme/environments",
        "https://evil.example/github.com/acme/environments",
        "https://evil.example#@github.com/acme/environments",
        "https://github.com/acme/environments/../../evil/x",
        "http://github.com/acme/environments",
    ],
)
def test_nothing_else_does(location: str) -> None:
    """A location that only looks like github.com tells no forge, so no token goes there."""
    assert hosted_repository(location) is None


@pytest.mark.parametrize(
    "address", [f"{HOSTED}/", "https://git.example/api/v3/repos/a/b", "http://127.0.0.1:80/repos/a/b"]
)
def test_addresses_that_are_taken(address: str) -> None:
    """GitHub, its enterprise server, and a server on loopback without TLS."""
    assert check_address(address, "MLGITOPS_FORGE") == address.rstrip("/")


@pytest.mark.parametrize(
    "address",
    [
        "http://git.example/repos/a/b",
        "https://user:secret@git.example/repos/a/b",
        "https://git.example/a/b",
        "https://git.example/repos/a/b?x=secret",
        "https://git.example:secret/repos/a/b",
        "ftp://127.0.0.1/repos/a/b",
        "secret",
    ],
)
def test_addresses_that_are_not(address: str) -> None:
    """What is no repository's address, or would show the token, is refused, and never repeated."""
    with pytest.raises(InvalidInput, match="MLGITOPS_FORGE") as caught:
        check_address(address, "MLGITOPS_FORGE")
    assert "secret" not in str(caught.value)
