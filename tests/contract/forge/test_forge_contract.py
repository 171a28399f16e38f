"""What every forge adapter promises."""

import pytest

from mlgitops.core.errors import Conflict, Denied, NotFound, Unavailable
from mlgitops.ports.forge import PullRequestState, Status, StatusState
from tests.contract.forge.conftest import Place


def opened(place: Place, branch: str) -> int:
    place.propose(branch)
    return place.forge.open(branch=branch, base="main", title=f"promote {branch}", body="body").number


def test_a_pull_request_is_what_was_opened(place: Place) -> None:
    """What is opened is told back by listing and by its branch, with the revision that its branch is at."""
    head = place.propose("proposals/one")
    made = place.forge.open(branch="proposals/one", base="main", title="one", body="**one**")
    assert (made.state, made.branch, made.base, made.head) == (PullRequestState.OPEN, "proposals/one", "main", head)
    assert place.forge.opened("main", "proposals/") == [made]
    assert place.forge.of_branch("proposals/one") == [made]
    assert made.url.startswith("https://")


def test_lists_are_read_to_their_end(place: Place) -> None:
    """Pull requests beyond the first page are seen, and those of other branches are not."""
    numbers = {opened(place, f"proposals/{one}") for one in range(5)}
    opened(place, "feature")
    assert {one.number for one in place.forge.opened("main", "proposals/")} == numbers
    assert place.forge.opened("other", "proposals/") == []


def test_a_fork_is_nobody(place: Place) -> None:
    """A pull request from a fork whose branch has the name of one of ours is never taken for ours."""
    number = opened(place, "proposals/one")
    place.server.pulls[number].fork = True
    assert place.forge.opened("main", "proposals/") == []
    assert place.forge.of_branch("proposals/one") == []


def test_merged_and_closed_are_told_apart(place: Place) -> None:
    """Merged is merged, closed is closed, with who did it; both stay in the history of their branch."""
    merged, closed = opened(place, "proposals/one"), opened(place, "proposals/two")
    place.server.merge(merged)
    place.server.close(closed, by="Eve")
    assert place.forge.opened("main", "proposals/") == []
    assert [one.state for one in place.forge.of_branch("proposals/one")] == [PullRequestState.MERGED]
    assert [one.state for one in place.forge.of_branch("proposals/two")] == [PullRequestState.CLOSED]
    assert place.forge.closed_by(closed) == "Eve"


def test_there_is_one_open_pull_request_of_a_branch(place: Place) -> None:
    """A second one of the same branch is a conflict; after the first was closed it is a new one, told first."""
    first = opened(place, "proposals/one")
    with pytest.raises(Conflict):
        place.forge.open(branch="proposals/one", base="main", title="again", body="")
    place.forge.close(first)
    place.forge.close(first)
    second = place.forge.open(branch="proposals/one", base="main", title="again", body="")
    assert [one.number for one in place.forge.of_branch("proposals/one")] == [second.number, first]


def test_title_and_body_are_replaced(place: Place) -> None:
    """An update changes what reviewers read, line breaks in a title included; what is too long is cut and says so."""
    number = opened(place, "proposals/one")
    place.forge.update(number, title="two\nlines", body="x" * 100_000)
    found = place.forge.of_branch("proposals/one")[0]
    assert found.title == "two lines"
    assert len(found.body) < 65_536
    assert found.body.endswith("(cut: it is longer than a forge takes)")


def test_one_comment_per_topic_changes_in_place(place: Place) -> None:
    """A topic has one comment however often something is said, and other topics have their own."""
    number = opened(place, "proposals/one")
    for words in ("first", "second", "second"):
        place.forge.comment(number, "state", words)
    place.forge.comment(number, "superseded", "by #2")
    assert place.forge.comments(number) == {"state": "second", "superseded": "by #2"}
    assert len(place.server.pulls[number].comments) == 2
    assert sum(call.startswith("PATCH") for call in place.server.calls) == 1


def test_a_person_who_quotes_the_tool_is_not_written_over(place: Place) -> None:
    """What people say stays, also when it carries the mark of the tool's own comments."""
    number = opened(place, "proposals/one")
    forged = "<!-- mlgitops:state -->\nmine"
    identity = place.server.say(number, forged)
    place.forge.comment(number, "state", "the tool's")
    assert place.server.texts[identity]["body"] == forged
    assert place.forge.comments(number) == {"state": "the tool's"}


def test_a_status_is_set_once(place: Place) -> None:
    """A status that stands already is not sent again; a changed one is; a long description is cut to what is taken."""
    head = place.propose("proposals/one")
    pending, success = (StatusState.PENDING, "on hold"), (StatusState.SUCCESS, "x" * 200)
    for state, words in (pending, pending, success):
        place.forge.set_status(head, Status(context="mlgitops/proposal", state=state, description=words))
    assert [one["state"] for one in place.server.statuses[head]] == ["pending", "success"]
    assert len(place.server.statuses[head][-1]["description"]) == 140


def test_no_secret_reaches_the_forge(place: Place) -> None:
    """A secret in a title, a body, a comment or a status is taken out before it is sent."""
    head = place.propose("proposals/one")
    number = place.forge.open(branch="proposals/one", base="main", title="hunter2hunter2", body="hunter2hunter2").number
    place.forge.update(number, title="is hunter2hunter2", body="is hunter2hunter2")
    place.forge.comment(number, "state", "hunter2hunter2")
    place.forge.set_status(head, Status(context="c", state=StatusState.FAILURE, description="hunter2hunter2"))
    told = f"{place.server.pulls} {place.server.texts} {place.server.statuses}"
    assert "hunter2" not in told


def test_what_is_not_there_is_not_found(place: Place) -> None:
    """A number that nobody has is not found, a branch without pull requests has none."""
    with pytest.raises(NotFound):
        place.forge.update(99, title="t", body="b")
    assert place.forge.of_branch("proposals/none") == []
    with pytest.raises(Denied):
        place.forge.open(branch="proposals/none", base="main", title="t", body="b")


def test_a_lost_answer_is_no_second_pull_request(place: Place) -> None:
    """Where the answer to opening is lost, it is not sent again by itself: the next look finds what was made."""
    place.propose("proposals/one")
    place.server.lost = 1
    with pytest.raises(Unavailable):
        place.forge.open(branch="proposals/one", base="main", title="t", body="b")
    assert len(place.forge.of_branch("proposals/one")) == 1
