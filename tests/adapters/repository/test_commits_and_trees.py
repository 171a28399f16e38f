"""Messages and trees, against whatever text and edits somebody comes up with."""

from collections.abc import Iterator

import pygit2
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from mlgitops.adapters.repository import commits, trees
from mlgitops.core.errors import InvalidInput
from mlgitops.ports.repository import Person

PIECES = [
    "\n\n",
    "\n",
    "\r\n",
    "Decision: 9",
    "A:",
    " ",
    "\t",
    "\x00",
    "\u2028",
    "\u202e",
    "<x>",
    "words",
    "#",
    ".",
    "é",
]
TEXT = st.lists(st.sampled_from(PIECES) | st.characters(), max_size=12).map("".join)
NAMES = st.sampled_from(["Reason", "Decision", "X-1"])
PATHS = st.lists(st.sampled_from("abc"), min_size=1, max_size=3).map("/".join)
EDITS = st.lists(st.dictionaries(PATHS, st.none() | st.binary(max_size=3), max_size=4), max_size=6)


@example("\n\nbody\n\nDecision: 9\n", {})
@example("\n\nwords\nDecision: 9", {})
@given(TEXT, st.dictionaries(NAMES, TEXT))
def test_only_given_trailers_are_read(text, trailers) -> None:
    """Whatever a message and its values hold, exactly the given trailers are read back."""
    message = commits.render_message("subject " + text, trailers)
    assert commits.parse_trailers(message) == {name: commits.one_line(value) for name, value in trailers.items()}
    message.encode()


@given(TEXT, TEXT)
def test_any_author_can_be_written(name, email) -> None:
    """Whatever somebody calls themselves, git can write it down, and reads the same back."""
    person = commits.clean_person(Person(name=name, email=email))
    signature = pygit2.Signature(person.name, person.email, 0, 0, "utf-8")
    assert (signature.name, signature.email) == (person.name, person.email)
    assert commits.clean_person(person) == person


@pytest.mark.parametrize(
    ("message", "trailers"),
    [
        ("s\n\nA: 1\nB: 2\n", {"A": "1", "B": "2"}),
        ("s\n\nA: 1\n  more\nA: 2", {"A": "2"}),
        ("s\r\n\r\nA: 1\r\n", {"A": "1"}),
        ("A: 1", {}),
        ("s\n\nA: 1\n\nend", {}),
        ("s\n\nA: 1\nnot one", {}),
        ("s\n\n  A: 1", {}),
    ],
)
def test_trailers_of_others_commits(message: str, trailers) -> None:
    """Trailers are read from the last paragraph, when it is nothing but trailers and not the subject."""
    assert commits.parse_trailers(message) == trailers


def test_a_message_needs_a_subject() -> None:
    """A message without a first line is refused."""
    for message in ("", "\n\n", " \x00\n"):
        with pytest.raises(InvalidInput, match="subject"):
            commits.render_message(message, {})


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory):
    return pygit2.init_repository(str(tmp_path_factory.mktemp("trees")), bare=True)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(edits=EDITS)
def test_edits_do_what_a_dictionary_of_files_does(repository, edits) -> None:
    """Edits leave the files a plain dictionary would hold; a refused one leaves the tree as it was."""
    tree = None
    files: dict[str, bytes] = {}
    for edit in edits:
        wanted = {path: content for path, content in (files | edit).items() if content is not None}
        fits = not any(path.startswith(other + "/") for path in wanted for other in wanted)
        is_folder = any(kept.startswith(path + "/") for path in edit for kept in files)
        try:
            tree = trees.tree_of(repository, trees.edit(repository, tree, edit))
        except InvalidInput:
            assert not fits or is_folder
            continue
        assert fits
        files = wanted
        assert {path: trees.read(tree, path) for path in trees.regular_paths(tree, "")} == files
        assert all(len(entry) for _, entry in _folders(tree))


def _folders(tree: pygit2.Tree, prefix: str = "") -> Iterator[tuple[str, pygit2.Tree]]:
    for entry in tree:
        if isinstance(entry, pygit2.Tree):
            yield prefix + str(entry.name), entry
            yield from _folders(entry, f"{prefix}{entry.name}/")
