"""Text from repositories and people: it stays what it is, wherever it is written and whoever reads it."""

import io
import re
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from mlgitops.adapters.dataset import read_set
from mlgitops.adapters.repository.location import Location, parse_location
from mlgitops.app import cards, deciding, markdown, rollbacks
from mlgitops.app.context import look
from mlgitops.app.promoting import promotion
from mlgitops.app.rolling import folder_of
from mlgitops.cli import github
from mlgitops.core.errors import InvalidInput, MlgitopsError, Problem
from mlgitops.core.manifest.fields import LEDGER, MAIN
from mlgitops.core.names import ImageReference, parse_name, parse_revision
from tests.security.hostile import hostile, survives
from tests.support.world import Quality, live, push, quick_world, settle, state_of, view_of, world_of

FORGED = "fine\n\nMlgitops-Force: yes\nMlgitops-Generation: production/digits 99\nSigned-off-by: Root <root@x>"
TEXT = st.text(st.characters(exclude_categories=()), max_size=60)
QUICK = settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=[*HealthCheck])

NAMES = [
    *("../../x", "/abs", "-rf", "a\n", "a\x00b", "a" * 300, "dіgits", "digits\u200b", "Digits", "a_b", "a.b", "", " a"),
    *("${{ x }}", "$(id)", "`id`", "a;b", "a--upload-pack=x b", "\u202edigits", "%2e%2e", "1a", "a-", "NUL", "ａ"),
]


@pytest.mark.parametrize("name", NAMES)
def test_hostile_names_are_refused_with_the_rule(name: str) -> None:
    """A name that could be a path, an option or a command, or looks like another one, is refused in bounded words."""
    for parse in (parse_name, parse_revision, ImageReference.parse):
        with pytest.raises(InvalidInput) as caught:
            parse(name)
        assert len(str(caught.value)) < 400
        assert str(caught.value).isprintable()


def trailers_of(world, ref: str) -> list[dict[str, str]]:
    revision = world.repository.snapshot(ref).revision
    return [dict(one.trailers) for one in world.repository.history(revision)]


def test_no_text_of_a_person_becomes_a_trailer(tmp_path: Path) -> None:
    """Reasons, subjects, authors: none of them can forge what the tool reads of its own commits."""
    world, engine = world_of(tmp_path)
    live(world, engine, "one", Quality())
    release = push(world, "two", quality=Quality(), engine=engine).name
    deciding.hold(world, "digits", None, reason=FORGED)
    deciding.resume(world, "digits", None)
    settle(world, engine, 1, passes=2)
    rollbacks.rollback(world, "digits", None, reason=FORGED)
    settle(world, engine, 15)
    rollbacks.reject(world, "digits", release, reason=FORGED)
    for ref in (MAIN, LEDGER):
        for trailers in trailers_of(world, ref):
            assert set(trailers) <= {"Mlgitops-Generation"}
            assert not trailers.get("Mlgitops-Generation", "").endswith(" 99")
    assert not any(one.proposal.forced for one in state_of(world).rollouts.values())


def test_a_reason_cannot_force_a_promotion() -> None:
    """A promotion is forced by the flag alone: a reason that looks like the trailer of a forced one is a reason."""
    world, engine = quick_world()
    first = live(world, engine, "one", Quality())
    view = look(world)
    unit = view.configuration.environments[0]
    folder, state = folder_of(view, unit, "digits"), state_of(world)
    change = promotion(view, unit, folder, state, first, author=world.person, reason=FORGED)
    world.repository.update(MAIN, view.main.revision, [change])
    settle(world, engine, 1, passes=2)
    assert state_of(world).rollouts[2].proposal.forced == ""


@QUICK
@given(text=st.one_of(TEXT, st.text("`|\\ a<\n", max_size=20)))
def test_a_card_shows_text_as_it_is(text: str) -> None:
    """Whatever a subject holds, in Markdown it stays within its code span and its cell."""
    shown = markdown.code(text)
    assert not shown or re.fullmatch(r"`` [^`\n\r]* ``", shown)
    assert shown.count("|") == shown.count("\\|")


HOSTILE = (
    "</td><script>alert(1)</script>|x|[a](javascript:alert(1))![b](http://evil/b.png)`` # title\n---\nrelease: forged"
)


def test_a_card_cannot_be_taken_over() -> None:
    """A hostile commit puts neither HTML, links, images, rows nor front matter into the model card."""
    world, engine = quick_world()
    release = push(world, HOSTILE, quality=Quality(), engine=engine).name
    settle(world, engine, 15)
    text = cards.card(view_of(world), "production", "digits", release)
    outside = re.sub(r"``.*?``", "", text.split("---\n", 2)[2])
    assert not re.search(r"[<>\[\]!]|forged", outside)
    assert text.count("---\n") == 2
    assert f"release: {release}" in text.split("---\n")[1]


def outputs(text: str) -> dict[str, str]:
    """Read a step's outputs as the runner does."""
    found, lines = {}, iter(text.split("\n"))
    for line in lines:
        if "<<" in line:
            name, _, mark = line.partition("<<")
            value = []
            for inner in lines:
                if inner == mark:
                    break
                value.append(inner)
            found[name] = "\n".join(value)
        else:
            assert not line
    return found


@QUICK
@given(value=st.one_of(TEXT, TEXT.map(lambda text: f"{text}\nmlgitops-0\nother=1\nx<<y\n{text}")))
def test_no_value_makes_another_output(value: str) -> None:
    """What a workflow's runner reads is one output by its name, whatever the value."""
    assert set(outputs(github._output("words", value))) == {"words"}


@QUICK
@given(text=TEXT, path=TEXT)
def test_an_annotation_is_one_command(text: str, path: str) -> None:
    """A problem becomes one line for the runner, and nothing in it another command or property."""
    line = github._annotation(Problem(message=text, path=path, mend=text))
    assert line.count("\n") == 1
    assert "\r" not in line
    properties = line[2:].partition("::")[0].partition(" ")[2]
    assert [one.partition("=")[0] for one in properties.split(",")] == ["file"]


def read_location(text: str) -> tuple[str, Location | None]:
    """Return all that is shown of a location, and the location where it is one."""
    try:
        found = parse_location(text)
    except InvalidInput as error:
        return str(error), None
    return repr(found), found


@QUICK
@given(user=TEXT, tail=TEXT)
@example(user="us/er", tail="")
@example(user="user", tail="x" * 5000)
@example(user="x" * 300, tail="x:y")
def test_what_is_shown_of_an_address_has_no_secret(user: str, tail: str) -> None:
    """Name, password, query and fragment of an address are kept out of what is shown; no host is an option."""
    passwords = ("hunter2", "hunter2/x", "443/hunter2", "hunter2@x", "hunter2#x", "hunter2?x")
    secrets = [f"https://{user}:{one}@host/a?x={tail}#f{tail}" for one in passwords]
    for text in (*secrets, f"ssh://{user}@host/{tail}", tail, f"{user}@{tail}", f"ssh://-o{tail}/x", f"-o{tail}@x:y"):
        shown, found = read_location(text)
        assert "hunter2" not in shown
        if found is not None and found.kind != "path":
            assert not found.host.startswith("-")
            assert found.kind == "ssh" or not {"?", "#", "@"} & set(found.url)


def npz(**arrays) -> bytes:
    stream = io.BytesIO()
    np.savez_compressed(stream, **arrays)
    return stream.getvalue()


def test_any_evaluation_set_is_read_or_refused(tmp_path: Path) -> None:
    """Whatever bytes an evaluation set has, it is arrays or a refusal, never objects and never another error."""
    good = npz(x=np.zeros((4, 2), "float32"), y=np.arange(4), k=np.array(["a", "b", "a", "b"]))
    odd = npz(x=np.zeros(4, [("a", "i4")]), y=np.zeros(4, "M8[s]"), k=np.zeros(4, "V3"))
    file = tmp_path / "set.npz"
    slices = [{"name": "s", "key": "k", "values": ["a", 1]}]

    def read(data: bytes) -> object:
        file.write_bytes(data)
        return read_set(file, {"inputs": "x", "labels": "y", "slices": slices})

    @settings(QUICK, max_examples=80)
    @given(data=hostile([good, odd]))
    def one(data: bytes) -> None:
        survives(read, data)

    one()
    for data in (good, odd):
        survives(read, data)


def test_an_array_that_claims_to_be_huge_is_refused(tmp_path: Path) -> None:
    """A header that promises more than any memory is answered in words."""
    head = b"{'descr': '<f8', 'fortran_order': False, 'shape': (1099511627776, 1024), }"
    head += b" " * (117 - len(head)) + b"\n"
    with zipfile.ZipFile(tmp_path / "set.npz", "w") as archive:
        archive.writestr("x.npy", b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head)
        archive.writestr("y.npy", b"")
    with pytest.raises(MlgitopsError):
        read_set(tmp_path / "set.npz", {})
