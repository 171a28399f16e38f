"""Pull-request mode: every way in which a proposal can go on, and what people do to it that is never undone."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pygit2
import pytest

from mlgitops.adapters.forge.github import GitHub
from mlgitops.app import deciding, describing, rollbacks
from mlgitops.app.context import World, look
from mlgitops.app.proposing import CHECK
from mlgitops.app.reconciling import reconcile
from mlgitops.app.rehearsing import rehearsed
from mlgitops.core.errors import Denied, InvalidInput, Unavailable
from mlgitops.core.manifest.fields import MAIN
from mlgitops.core.release import Rejected, Release, ReleasePhase
from mlgitops.core.rollout import RolloutPhase as P
from mlgitops.ports.forge import PullRequest
from tests.support.github import BOT, TOKEN, GitHubServer, Pull, RefusedError, github
from tests.support.memory import edited
from tests.support.world import (
    ENVIRONMENTS,
    FOLDER,
    IDENTITY,
    MODEL,
    Engine,
    Quality,
    push,
    seen_by,
    settle,
    state_of,
    world_of,
)

GOOD, BETTER, WORSE = Quality(accuracy=0.95, wrong=0.05), Quality(accuracy=0.97, wrong=0.03), Quality(accuracy=0.2)
MODE = ENVIRONMENTS.replace("    plan: quick\n", "    plan: quick\n    writeMode: pull-request\n")
ROLLOUT = f"{FOLDER}/rollout.yaml"


@dataclass
class Desk:
    """An environment in pull-request mode, in which a first release serves."""

    world: World
    engine: Engine
    server: GitHubServer

    def push(self, code: str, quality: Quality = BETTER) -> Release:
        return push(self.world, code, quality=quality, engine=self.engine)

    def settle(self, seconds: float = 1) -> None:
        for one in settle(self.world, self.engine, seconds):
            assert not one.problems, one.problems

    @property
    def open(self) -> list[Pull]:
        return [one for one in self.server.pulls.values() if one.state == "open"]

    def only(self) -> Pull:
        assert len(self.open) == 1, self.open
        return self.open[0]

    def check(self, pull: Pull) -> tuple[str, str]:
        found = self.server.statuses[str(self.server.tip(pull.branch))][-1]
        assert found["context"] == CHECK
        return found["state"], found["description"]

    def said(self, pull: Pull) -> list[str]:
        return [self.server.texts[one]["body"] for one in pull.comments]

    def main(self, path: str = ROLLOUT) -> bytes:
        return self.world.repository.snapshot(MAIN).read(path) or b""


def opened_desk(tmp_path: Path, environments: str = MODE) -> Iterator[Desk]:
    world, engine = world_of(tmp_path, environments=environments)
    with github(tmp_path / "environment.git") as server:
        forge = GitHub(server.address, TOKEN, redact=str, sleep=lambda _: None)
        yield Desk(replace(world, forge=lambda: forge), engine, server)
        assert not server.refused, server.refused


@pytest.fixture
def empty(tmp_path: Path) -> Iterator[Desk]:
    yield from opened_desk(tmp_path)


@pytest.fixture
def desk(empty: Desk) -> Desk:
    empty.push("one", GOOD)
    empty.settle()
    empty.server.merge(empty.only().number)
    empty.settle(15)
    assert state_of(empty.world).rollouts[1].phase is P.LIVE
    return empty


def other_world(desk: Desk, person: str) -> World:
    return replace(seen_by(desk.engine, desk.world.repository, person), forge=desk.world.forge)


def test_a_candidate_is_proposed_and_nothing_else_happens(empty: Desk) -> None:
    """In pull-request mode automation opens a pull request; `main` stays as it was until somebody merges it."""
    before = empty.world.repository.snapshot(MAIN).revision
    release = empty.push("one", GOOD)
    empty.settle(15)
    pull = empty.only()
    assert pull.title == f"promote(digits): release {release.name} → production (rollout 1)"
    assert empty.main() == b""
    tip = str(empty.world.repository.snapshot(MAIN).revision)
    subjects = [one.message.partition("(")[0] for one in empty.world.repository.history(tip, until=before)]
    assert set(subjects) == {"train"}
    assert not state_of(empty.world).rollouts
    assert empty.check(pull) == ("success", "merging it proposes rollout 1")


def test_a_rerun_changes_nothing(desk: Desk) -> None:
    """Passes that find their pull request there write nothing: no second one, no comment, no status, no commit."""
    desk.push("two")
    desk.settle()
    pull = desk.only()
    tips = {branch: desk.server.tip(branch) for branch in ("main", "mlgitops/ledger", pull.branch)}
    desk.server.calls.clear()
    desk.settle()
    assert {call.partition(" ")[0] for call in desk.server.calls} == {"GET"}
    assert {branch: desk.server.tip(branch) for branch in tips} == tips


@pytest.mark.parametrize("how", ["merge", "squash"])
def test_merging_is_the_promotion(desk: Desk, how: str) -> None:
    """Merged either way, the rollout is taken up, goes all the way, and nothing else is proposed."""
    release = desk.push("two")
    desk.settle()
    desk.server.merge(desk.only().number, "merge" if how == "merge" else "squash")
    desk.settle(15)
    state = state_of(desk.world)
    assert (state.champion, state.rollouts[2].phase) == (release.name, P.LIVE)
    assert desk.open == []
    author = state.rollouts[2].proposal.by
    assert ("Bob" in author) if how == "merge" else (BOT in author)


def test_a_newer_candidate_supersedes_the_proposal(desk: Desk) -> None:
    """The newest candidate is proposed; the former pull request is closed with a comment, and its branch stays."""
    desk.push("two")
    desk.settle()
    first = desk.only()
    tip = desk.server.tip(first.branch)
    third = desk.push("three")
    desk.settle()
    second = desk.only()
    assert third.name in second.title
    assert (first.state, first.closed_by) == ("closed", BOT)
    assert f"superseded by #{second.number}" in desk.said(first)[0]
    assert desk.server.tip(first.branch) == tip
    assert 2 not in state_of(desk.world).rollouts


def test_what_was_superseded_comes_back_when_it_is_the_newest_again(desk: Desk) -> None:
    """Closed by the tool is no no: when the newer release is rejected, the former one is proposed again."""
    second = desk.push("two")
    desk.settle()
    third = desk.push("three")
    desk.settle()
    event = Rejected(at=desk.engine.clock.now(), by="Ada <ada@example.org>", reason="wrong labels")
    deciding.end_release(desk.world, third, event, ReleasePhase.REJECTED)
    desk.settle()
    assert second.name in desk.only().title
    assert "is REJECTED" in desk.said(desk.server.pulls[3])[0]


def test_closing_is_a_no(desk: Desk) -> None:
    """A person who closes a pull request is heard for good: it is recorded, and that release not proposed again."""
    release = desk.push("two")
    desk.settle()
    desk.server.close(desk.only().number, by="Eve")
    desk.settle()
    ended = state_of(desk.world).rollouts[2]
    assert (ended.phase, ended.release) == (P.WITHDRAWN, release.name)
    assert ended.reason == "pull request #2 was closed"
    desk.settle()
    assert desk.open == []
    assert state_of(desk.world).champion is not None


def test_life_goes_on_after_a_no(desk: Desk) -> None:
    """After a closed proposal the next candidate is proposed under the next number, and goes live when merged."""
    desk.push("two")
    desk.settle()
    desk.server.close(desk.only().number)
    desk.settle()
    release = desk.push("three")
    desk.settle()
    assert "(rollout 3)" in desk.only().title
    desk.server.merge(desk.only().number)
    desk.settle(15)
    assert state_of(desk.world).champion == release.name
    assert state_of(desk.world).hold is None


def test_a_closed_proposal_that_is_merged_later_is_a_change_by_hand(desk: Desk) -> None:
    """Reopened and merged after its no was recorded, it starts nothing: automation holds, what serves goes on."""
    desk.push("two")
    desk.settle()
    pull = desk.only()
    desk.server.close(pull.number)
    desk.settle()
    champion = state_of(desk.world).champion
    pull.state = "open"
    desk.server.merge(pull.number)
    desk.settle(15)
    state = state_of(desk.world)
    assert state.champion == champion
    assert state.open is None
    assert state.foreign is not None
    assert state.hold is not None


def test_deleting_the_branch_is_closing(desk: Desk) -> None:
    """A forge closes the pull request of a branch that is deleted: that is a no, and no branch comes back."""
    desk.push("two")
    desk.settle()
    branch = desk.only().branch
    desk.server.delete_branch(branch)
    desk.settle()
    assert state_of(desk.world).rollouts[2].phase is P.WITHDRAWN
    assert desk.server.tip(branch) is None


def test_a_branch_without_its_pull_request_is_taken_up(desk: Desk) -> None:
    """Killed between branch and pull request, or left without an answer, the next pass goes on where it was."""
    desk.push("two")
    desk.server.lost = 1
    problems = [one for done in settle(desk.world, desk.engine, 1, passes=4) for one in done.problems]
    assert isinstance(problems[0], Unavailable)
    desk.settle()
    assert len(desk.server.pulls) == 2
    branch = desk.only().branch
    desk.server.pulls.pop(2)  # as if it had never come to be
    desk.settle()
    assert desk.only().branch == branch


def test_a_moved_base_needs_nothing(desk: Desk) -> None:
    """Commits on `main` that touch other files leave the pull request as it is; it can be merged."""
    release = desk.push("two")
    desk.settle()
    pull = desk.only()
    tip = desk.server.tip(pull.branch)
    edited(desk.world.repository, MAIN, {"README.md": b"read me\n"})
    desk.settle()
    assert desk.only() is pull
    assert desk.server.tip(pull.branch) == tip
    desk.server.merge(pull.number)
    desk.settle(15)
    assert state_of(desk.world).champion == release.name


def test_a_conflict_is_computed_anew(desk: Desk) -> None:
    """Where `main` has another `rollout.yaml` by now, a new pull request keeps that edit, and the old one is closed."""
    release = desk.push("two")
    desk.settle()
    former = desk.only()
    commented = desk.main().replace(b"release:", b"# asked by audit\nrelease:", 1)
    assert commented != desk.main()
    edited(desk.world.repository, MAIN, {ROLLOUT: commented})
    with pytest.raises(RefusedError):
        desk.server.merge(former.number)
    desk.settle()
    assert former.state == "closed"
    assert "rollout.yaml on main was changed meanwhile" in desk.said(former)[0]
    desk.server.merge(desk.only().number)
    assert b"# asked by audit\n" in desk.main()
    desk.settle(15)
    assert state_of(desk.world).champion == release.name


def test_a_person_who_takes_a_branch_over_is_left_alone(desk: Desk) -> None:
    """A commit of a person on the branch stays, is not superseded by a newer release, and is said to be theirs."""
    second = desk.push("two")
    desk.settle()
    pull = desk.only()
    theirs = desk.main().replace(b"number: 1", b"number: 2")
    tip = desk.server.push(pull.branch, {ROLLOUT: theirs + b"# mine\n"})
    desk.push("three")
    desk.settle()
    assert desk.only() is pull
    assert desk.server.tip(pull.branch) == tip
    assert "People changed what this pull request asks for" in desk.said(pull)[0]
    assert second.name not in theirs.decode()


def test_what_people_made_of_it_counts_when_it_is_merged(desk: Desk) -> None:
    """Edited and merged, the release that `main` asks for is rolled out, not the one that was proposed."""
    second = desk.push("two")
    desk.settle()
    third = desk.push("three")
    desk.settle()
    pull = desk.only()
    data = (desk.world.repository.snapshot(f"refs/heads/{pull.branch}").read(ROLLOUT) or b"").decode()
    assert third.name in data
    desk.server.push(pull.branch, {ROLLOUT: data.replace(third.name, second.name).encode()})
    desk.settle()
    assert desk.check(pull) == ("success", "merging it proposes rollout 2")
    desk.server.merge(pull.number)
    desk.settle(15)
    assert state_of(desk.world).rollouts[2].release == second.name
    assert state_of(desk.world).rollouts[2].phase is P.LIVE


def test_an_edit_that_cannot_be_taken_up_fails_its_check(desk: Desk) -> None:
    """A check is about the commit it stands on: what a person pushes after it is judged anew, and told."""
    desk.push("two")
    desk.settle()
    pull = desk.only()
    assert desk.check(pull)[0] == "success"
    data = desk.world.repository.snapshot(f"refs/heads/{pull.branch}").read(ROLLOUT) or b""
    desk.server.push(pull.branch, {ROLLOUT: data.replace(state_name(data), b"0123456789ab")})
    desk.settle()
    assert desk.check(pull) == ("failure", "there is no release 0123456789ab of digits")


def state_name(data: bytes) -> bytes:
    return next(line for line in data.splitlines() if line.strip().startswith(b"release:")).split()[-1].strip(b"\"'")


def test_a_branch_that_asks_for_nothing_fails_its_check(desk: Desk) -> None:
    """Where people leave a `rollout.yaml` that nobody can read, the check says so, and the commit stays."""
    desk.push("two")
    desk.settle()
    pull = desk.only()
    tip = desk.server.push(pull.branch, {ROLLOUT: b"{"})
    desk.settle()
    assert desk.check(pull) == ("failure", "its branch asks for no rollout")
    assert (desk.only(), desk.server.tip(pull.branch)) == (pull, tip)


def test_another_file_on_the_branch_makes_it_a_persons(desk: Desk) -> None:
    """A person who adds a manifest to the proposal has their commit kept: no newer release closes it."""
    desk.push("two")
    desk.settle()
    pull = desk.only()
    desk.server.push(pull.branch, {"environments/production/digits/notes.md": b"why\n"})
    desk.push("three")
    desk.settle()
    assert desk.only() is pull


def test_main_merged_into_the_branch_changes_nothing(desk: Desk) -> None:
    """The forge's button that brings a branch up to date does not make it a person's."""
    desk.push("two")
    desk.settle()
    pull = desk.only()
    edited(desk.world.repository, MAIN, {"README.md": b"read me\n"})
    update_branch(desk, pull)
    desk.settle()
    assert desk.said(pull) == []
    desk.push("three")
    desk.settle()
    assert pull.state == "closed"


def update_branch(desk: Desk, pull: Pull) -> None:
    git = desk.server.git
    head, main = git[str(desk.server.tip(pull.branch))], git[str(desk.server.tip("main"))]
    assert isinstance(head, pygit2.Commit)
    assert isinstance(main, pygit2.Commit)
    tree = git.merge_commits(head, main).write_tree(git)
    who = pygit2.Signature("Bob", "bob@example.org")
    git.create_commit(f"refs/heads/{pull.branch}", who, who, "Merge branch 'main'", tree, [head.id, main.id])


def test_merged_after_a_hold_it_waits(desk: Desk) -> None:
    """On hold the check is pending; merged all the same, the rollout waits in PROPOSED until a person resumes."""
    desk.push("two")
    desk.settle()
    pull = desk.only()
    deciding.hold(desk.world, MODEL, None, reason="audit")
    desk.settle()
    assert desk.check(pull) == ("pending", "on hold: audit")
    desk.server.merge(pull.number)
    desk.settle(15)
    assert state_of(desk.world).rollouts[2].phase is P.PROPOSED
    deciding.resume(desk.world, MODEL, None)
    desk.settle(15)
    assert state_of(desk.world).rollouts[2].phase is P.LIVE


def test_a_rollback_waits_for_no_pull_request(desk: Desk) -> None:
    """With a proposal open, a rollback is written at once; what was proposed is proposed anew after its hold."""
    second = desk.push("two")
    desk.settle()
    desk.server.merge(desk.only().number)
    desk.settle(15)
    third = desk.push("three")
    desk.settle()
    pull = desk.only()
    rollbacks.rollback(desk.world, MODEL, None, reason="complaints")
    desk.settle()
    assert state_of(desk.world).champion not in {second.name, third.name}
    assert "rollout.yaml on main was changed meanwhile" in desk.said(pull)[0]
    assert desk.open == []
    deciding.resume(desk.world, MODEL, None)
    desk.settle()
    assert third.name in desk.only().title


def test_a_promotion_that_overtakes_closes_the_proposal(desk: Desk) -> None:
    """A person who writes `rollout.yaml` on `main` takes the number: the proposal under it is closed and says so."""
    desk.push("two")
    desk.settle()
    pull = desk.only()
    data = desk.world.repository.snapshot(f"refs/heads/{pull.branch}").read(ROLLOUT) or b""
    edited(desk.world.repository, MAIN, {ROLLOUT: data})
    desk.settle()
    assert pull.state == "closed"
    assert "rollout 2 was taken up or withdrawn meanwhile" in desk.said(pull)[0]


def test_merged_and_reverted_at_once_is_a_no(desk: Desk) -> None:
    """Reverted before anybody took it up, it is recorded as withdrawn, and not proposed a second time."""
    desk.push("two")
    desk.settle()
    former = desk.main()
    desk.server.merge(desk.only().number)
    edited(desk.world.repository, MAIN, {ROLLOUT: former})
    desk.settle()
    ended = state_of(desk.world).rollouts[2]
    assert (ended.phase, ended.reason) == (P.WITHDRAWN, "pull request #2 was merged, and main does not ask for it")
    assert desk.open == []


def test_approvals_bind_what_was_merged(tmp_path: Path) -> None:
    """After the merge as many must approve as the environment says; nobody who merged it can."""
    approved = MODE.replace("    probationSeconds: 60\n", "    probationSeconds: 60\n    approvals: 1\n")
    for desk in opened_desk(tmp_path, approved):
        desk.push("one", GOOD)
        desk.settle()
        desk.server.merge(desk.only().number, by="Bob")
        desk.settle(15)
        assert state_of(desk.world).rollouts[1].phase is P.PROPOSED
        with pytest.raises(Denied, match="who proposed it"):
            deciding.approve(other_world(desk, "Bob"), MODEL, None)
        deciding.approve(other_world(desk, "Eve"), MODEL, None)
        desk.settle(15)
        assert state_of(desk.world).rollouts[1].phase is P.LIVE


# What a person proposes.
@pytest.fixture
def two(desk: Desk) -> tuple[Desk, Sequence[Release]]:
    """Return a desk on which automation has proposed the newer of two candidates."""
    releases = [desk.push("two"), desk.push("three")]
    desk.settle()
    assert releases[1].name in desk.only().title
    return desk, releases


def test_promote_proposes_what_a_person_wants(two: tuple[Desk, Sequence[Release]]) -> None:
    """`promote` opens a pull request in that person's name, once, and closes what automation proposed instead."""
    desk, (second, third) = two
    answer = deciding.promote(desk.world, MODEL, second.name, None, reason="smaller", force=False)
    pull = desk.only()
    assert (answer.changed, answer.values["pullRequest"]) == (True, pull.number)
    assert str(answer.values["url"]).endswith(f"/pull/{pull.number}")
    assert second.name in pull.title
    again = deciding.promote(desk.world, MODEL, second.name, None, reason="smaller", force=False)
    assert (again.changed, again.values["pullRequest"]) == (False, pull.number)
    desk.settle()
    assert desk.only() is pull
    assert "Ada <ada@example.org>" in pull.body
    with pytest.raises(Denied, match=f"#{pull.number} proposes something else"):
        deciding.promote(other_world(desk, "Eve"), MODEL, third.name, None, reason="", force=False)


def test_numbers_follow_in_the_text(two: tuple[Desk, Sequence[Release]]) -> None:
    """What a person proposes is shown at once; the comparison with the champion follows in the same text."""
    desk, (second, _) = two
    deciding.promote(desk.world, MODEL, second.name, None, reason="", force=False)
    assert "It is being evaluated" in desk.only().body
    desk.settle()
    assert "| `` accuracy `` |  | 0.97 (0.95 … 0.99) | 0.95 (0.93 … 0.97) | 0.02 (" in desk.only().body


def test_a_text_that_people_edited_is_theirs(two: tuple[Desk, Sequence[Release]]) -> None:
    """What a reviewer wrote into the text stays, also when there would be something new to say."""
    desk, (second, _) = two
    deciding.promote(desk.world, MODEL, second.name, None, reason="", force=False)
    pull = desk.only()
    pull.body = pull.body.replace("It is being evaluated", "I measured it: fine. It is being evaluated")
    mine = pull.body
    desk.settle()
    assert pull.body == mine


def test_brought_back_by_force(desk: Desk) -> None:
    """A release that was rolled back comes back by a forced proposal, merged with a merge commit, with its reason."""
    release = desk.push("two")
    desk.settle()
    desk.server.merge(desk.only().number)
    desk.settle(15)
    rollbacks.rollback(desk.world, MODEL, None, reason="skew")
    desk.settle(15)
    deciding.resume(desk.world, MODEL, None)
    deciding.promote(desk.world, MODEL, release.name, None, reason="the skew was in the client", force=True)
    desk.settle()
    pull = desk.only()
    assert "in spite of an earlier rollback: `` the skew was in the client ``" in pull.body
    desk.server.merge(pull.number)
    desk.settle(15)
    back = state_of(desk.world).rollouts[3]
    assert (back.phase, back.release, back.proposal.forced) == (P.LIVE, release.name, "the skew was in the client")


# What a reviewer is told.
def test_gates_that_say_no_are_told_before_the_merge(desk: Desk) -> None:
    """A release that is worse than its champion fails the check, and the text says which gate says no."""
    desk.push("two", Quality(accuracy=0.6))
    desk.settle()
    pull = desk.only()
    assert desk.check(pull)[0] == "failure"
    assert "The gates say **no**" in pull.body
    assert "accuracy" in desk.check(pull)[1]


def test_nothing_is_proposed_before_it_is_known_how_it_does(desk: Desk) -> None:
    """Automation opens its pull request once the comparison with the champion is there, not before."""
    desk.push("two")
    desk.engine.slow_evaluations = 3
    seen = []
    for _ in range(8):
        reconcile(desk.world)
        seen.append(len(desk.open))
    assert seen[0] == 0
    assert seen[-1] == 1
    assert "It is being evaluated" not in desk.only().body


def test_hostile_words_render_as_words(desk: Desk) -> None:
    """A commit's subject and author can neither mention people, nor add HTML, close a table, or hide text."""
    hostile = "`@acme/all` <img src=x onerror=alert(1)> | # [x](http://evil) \u202e ``` </details>"
    submission = replace(desk.push("two").submission, subject=hostile, author=f"{hostile} <e@x>")

    release = look(desk.world).ledger.release(MODEL, submission.identity.hex[:12])
    text = describing._origin(replace(release, submission=submission), None)
    for line in text.splitlines()[2:]:
        assert line.count("``") == 2
        assert "`@" not in line
        assert "\u202e" not in line
        assert line.replace("\\|", "").count("|") == 3


# What is not there, or does not answer.
def test_without_a_forge_it_is_told(empty: Desk) -> None:
    """Without a forge nothing is proposed, the problem names the mend, and trainings and gates go on."""
    lonely = replace(empty.world, forge=None)
    release = empty.push("one", GOOD)
    done = settle(lonely, empty.engine, 1)
    told = done[-1].problems[0]
    assert isinstance(told, InvalidInput)
    assert "MLGITOPS_FORGE" in str(told.problems[0].mend)
    with pytest.raises(InvalidInput):
        deciding.promote(lonely, MODEL, release.name, None, reason="", force=False)


def test_a_forge_that_is_down_stops_no_rollout(desk: Desk) -> None:
    """While the forge does not answer, what was merged goes on and what serves is watched."""
    release = desk.push("two")
    desk.settle()
    desk.server.merge(desk.only().number)

    class Down(GitHub):
        def opened(self, base: str, prefix: str) -> Sequence[PullRequest]:
            raise Unavailable("github.example", "nobody answers")

    broken = replace(desk.world, forge=lambda: Down(desk.server.address, TOKEN, redact=str))
    done = settle(broken, desk.engine, 15)
    assert state_of(desk.world).champion == release.name
    assert isinstance(done[-1].problems[0], Unavailable)


def test_two_at_once_open_one(desk: Desk) -> None:
    """Another pass that opened the same pull request a moment before is found, not told as an error."""
    desk.push("two")
    desk.settle()
    desk.server.pulls.pop(2)

    class Late(GitHub):
        def of_branch(self, branch: str) -> Sequence[PullRequest]:
            found = super().of_branch(branch)
            if not found:
                self.open(branch=branch, base="main", title="somebody else's", body="")
            return found

    late = replace(desk.world, forge=lambda: Late(desk.server.address, TOKEN, redact=str))
    done = reconcile(late)
    assert not done.problems
    assert len(desk.server.pulls) == 2
    desk.server.refused.clear()  # GitHub's word for it: a pull request already exists


def test_a_direct_environment_asks_no_forge(tmp_path: Path) -> None:
    """An environment in direct mode is promoted as ever, and the forge is not asked for anything."""
    for desk in opened_desk(tmp_path, ENVIRONMENTS):
        desk.push("one", GOOD)
        desk.settle(15)
        assert state_of(desk.world).rollouts[1].phase is P.LIVE
        assert desk.server.calls == []


def test_a_fork_that_takes_our_name_is_nobody(desk: Desk) -> None:
    """A pull request from a fork whose branch is called like ours neither stands for ours nor is touched."""
    desk.push("two")
    desk.settle()
    ours = desk.only()
    fork = Pull(9, ours.branch, "main", "free model", "", "mallory", "0" * 40, fork=True)
    desk.server.pulls[9] = fork
    desk.push("three")
    desk.settle()
    assert (fork.state, fork.comments, fork.title) == ("open", [], "free model")
    assert ours.state == "closed"


def test_a_dry_run_opens_nothing(desk: Desk) -> None:
    """A rehearsal reads the forge and writes neither branch, pull request, comment nor status."""
    release = desk.push("two")
    settle(replace(desk.world, forge=None), desk.engine, 1)
    quiet, intents = rehearsed(desk.world, IDENTITY)
    desk.server.calls.clear()
    answer = deciding.promote(quiet, MODEL, release.name, None, reason="", force=False)
    assert answer.changed
    assert [one.ref.rpartition("/")[0] for one in intents] == ["refs/heads/mlgitops-proposals/production/digits"]
    assert {call.partition(" ")[0] for call in desk.server.calls} == {"GET"}
    assert desk.open == []
