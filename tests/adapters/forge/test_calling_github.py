"""How GitHub is called: failures, limits, redirects, and what becomes of the token."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from mlgitops.adapters.forge import calling
from mlgitops.adapters.forge.github import GitHub
from mlgitops.adapters.repository.bare import init_bare
from mlgitops.core.errors import Denied, NotFound, Unavailable
from tests.support.github import TOKEN, GitHubServer, github

LIST = "GET /repos/acme/environments/pulls"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[GitHubServer]:
    init_bare(tmp_path / "e.git")
    with github(tmp_path / "e.git") as forge:
        yield forge


def asked(server: GitHubServer, waited: list[float], token: str | None = TOKEN) -> GitHub:
    return GitHub(server.address, token, redact=str, sleep=waited.append)


@pytest.mark.parametrize(
    ("status", "headers", "least"),
    [
        (500, {}, 0.0),
        (503, {}, 0.0),
        (429, {"Retry-After": "7"}, 7.0),
        (403, {"Retry-After": "3"}, 3.0),
    ],
)
def test_what_passes_is_waited_for(server: GitHubServer, status: int, headers: dict[str, str], least: float) -> None:
    """A failure of the server and a limit are asked again, after the time that the server names."""
    server.answers = [(status, headers, b"{}")] * 2
    waited: list[float] = []
    assert asked(server, waited).opened("main", "") == []
    assert len(waited) == 2
    assert all(seconds >= least for seconds in waited)


@pytest.mark.parametrize("headers", [{"Retry-After": "3600"}, {"X-RateLimit-Remaining": "0"}])
def test_what_takes_too_long_is_not_waited_for(server: GitHubServer, headers: dict[str, str]) -> None:
    """A limit that lasts longer than a pass may wait is unavailable, with the time after which to try again."""
    server.answers = [(403, headers, b'{"message": "API rate limit exceeded"}')]
    waited: list[float] = []
    with pytest.raises(Unavailable) as caught:
        asked(server, waited).opened("main", "")
    assert waited == []
    assert caught.value.retry_after_seconds is not None
    assert caught.value.retry_after_seconds >= 60


def test_attempts_end(server: GitHubServer) -> None:
    """A server that is broken for good is asked a few times, and then given up."""
    server.answers = [(502, {}, b"<html>")] * 20
    waited: list[float] = []
    with pytest.raises(Unavailable, match="502"):
        asked(server, waited).opened("main", "")
    assert server.calls == [LIST] * 5


def test_a_refused_token_is_in_no_error(server: GitHubServer) -> None:
    """A token that is not taken is refused at once, and its text is in no error."""
    waited: list[float] = []
    with pytest.raises(Denied, match="does not take the token") as caught:
        asked(server, waited, "github_pat_wrong").opened("main", "")
    assert waited == []
    assert "github_pat" not in f"{caught.value!r} {caught.value.__cause__!r}"


def test_nobody_listening_is_unavailable(server: GitHubServer) -> None:
    """Where nobody answers, nothing is known; the token is in no error and in no representation."""
    forge = GitHub("http://127.0.0.1:9/repos/acme/environments", TOKEN, redact=str, sleep=lambda _: None)
    with pytest.raises(Unavailable) as caught:
        forge.opened("main", "")
    assert TOKEN not in f"{caught.value!r} {forge._calls!r}"


def test_a_redirect_is_not_followed(server: GitHubServer) -> None:
    """A repository that moved is told; the token goes nowhere else."""
    server.answers = [(301, {"Location": f"{server.url}/elsewhere"}, b"")]
    with pytest.raises(Denied, match="moved"):
        asked(server, []).opened("main", "")
    assert server.calls == [LIST]


def test_the_next_page_is_not_fetched_from_another_server(server: GitHubServer) -> None:
    """A list that goes on elsewhere is refused: the token would go there, too."""
    server.answers = [(200, {"Link": '<http://127.0.0.1:9/x?page=2>; rel="next"'}, b"[]")]
    with pytest.raises(Unavailable, match="another server"):
        asked(server, []).opened("main", "")


@pytest.mark.parametrize("data", [b"<html>", b"{}", b'[{"number": 1}]', b'[{"head": {}, "base": {}}]', b"[1]"])
def test_answers_of_another_shape_are_unavailable(server: GitHubServer, data: bytes) -> None:
    """What is no list of pull requests is no answer, and no traceback."""
    server.answers = [(200, {}, data)]
    with pytest.raises(Unavailable):
        asked(server, []).opened("main", "")


def test_an_answer_without_end_is_cut(server: GitHubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer that is longer than any list could be is not read to its end."""
    monkeypatch.setattr(calling, "LARGEST_ANSWER_BYTES", 1000)
    server.answers = [(200, {}, b"[" + b" " * 100_000 + b"]")]
    with pytest.raises(Unavailable, match="too long"):
        asked(server, []).opened("main", "")


def test_the_users_netrc_does_not_replace_the_token(
    server: GitHubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Credentials that the user keeps for other programs are not sent in place of the token."""
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login x password y\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    assert asked(server, []).opened("main", "") == []


def test_words_of_a_refusal_are_told(server: GitHubServer) -> None:
    """What the forge says of a refusal is told, without control characters."""
    server.answers = [(403, {}, b'{"message": "Resource not\\u001b[31m accessible"}')]
    with pytest.raises(Denied, match=r"Resource not \[31m accessible"):
        asked(server, []).opened("main", "")
    with pytest.raises(NotFound):
        asked(server, []).closed_by(4)
