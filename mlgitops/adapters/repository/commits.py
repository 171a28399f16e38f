"""Commits: messages and trailers that nothing can forge, cleaned names, and signatures."""

import re
import subprocess
import time
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Literal

import pygit2

from mlgitops.core.errors import InvalidInput, Unavailable
from mlgitops.ports.repository import Change, Commit, Person

_TOKEN: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]*")
_TRAILER: Final = re.compile(r"([A-Za-z0-9][A-Za-z0-9-]*)[ \t]*:[ \t]*(.*)")
_CRUD: Final = " .,:;<>\"\\'"
"""What git strips from both ends of a name."""
_BREAKING: Final = frozenset({"Cc", "Cs", "Zl", "Zp"})
"""Unicode's controls, lone surrogates, and separators of lines and paragraphs."""
_DIRECTION: Final = dict.fromkeys([*range(0x202A, 0x202F), *range(0x2066, 0x206A)])
"""Characters that make a terminal show a text in another order than it has."""
_SIGNING_SECONDS: Final = 60.0
_LATEST: Final = datetime(9999, 12, 31, tzinfo=UTC).timestamp()


@dataclass(frozen=True, kw_only=True)
class Signing:
    """How commits are signed."""

    program: Literal["ssh", "gpg"]
    """`ssh` runs `ssh-keygen -Y sign`, `gpg` runs `gpg`; both must be able to sign without a question."""
    key: str
    """A path to a private (or, with an agent, public) ssh key; a key id or fingerprint for gpg."""


def one_line(text: str) -> str:
    """Return `text` as one line: breaks and control characters become blanks, runs of blanks become one."""
    visible = text.translate(_DIRECTION)
    spaced = "".join(" " if unicodedata.category(letter) in _BREAKING else letter for letter in visible)
    return " ".join(spaced.split())


def render_message(message: str, trailers: Mapping[str, str]) -> str:
    """Return a commit message: subject, body, and `trailers` as the last paragraph, which nothing else can forge.

    Raises:
        InvalidInput: The subject is empty, or a trailer's name is more than letters, digits and `-`.
    """
    wrong = [name for name in trailers if not _TOKEN.fullmatch(name)]
    if wrong:
        raise InvalidInput(f"not a name of a trailer (letters, digits and '-'): {', '.join(map(repr, wrong))}")
    lines = [_clean_line(line) for line in message.replace("\r\n", "\n").replace("\r", "\n").split("\n")]
    text = re.sub(r"\n{3,}", "\n\n", "\n".join(lines).strip("\n"))
    subject, _, body = text.partition("\n")
    if not subject.strip():
        raise InvalidInput("a commit message needs a subject in its first line")
    paragraphs = [subject.strip(), *filter(None, body.strip("\n").split("\n\n"))]
    if trailers:
        paragraphs.append("\n".join(f"{name}: {one_line(value)}".rstrip() for name, value in trailers.items()))
    elif len(paragraphs) > 1:
        paragraphs[-1] = _disarm(paragraphs[-1])
    return "\n\n".join(paragraphs) + "\n"


def _clean_line(line: str) -> str:
    visible = line.translate(_DIRECTION)
    return "".join(
        letter if letter == "\t" or unicodedata.category(letter) not in _BREAKING else " " for letter in visible
    ).rstrip()


def _disarm(paragraph: str) -> str:
    """Indent the lines of a body's last paragraph that would read as trailers."""
    return "\n".join(" " + line if _TRAILER.fullmatch(line) else line for line in paragraph.split("\n"))


def parse_trailers(message: str) -> dict[str, str]:
    """Return the trailers of a message's last paragraph; none unless every line of it belongs to a trailer."""
    paragraphs = re.split(r"\n[ \t]*\n", message.replace("\r\n", "\n").strip("\n"))
    if len(paragraphs) < 2:
        return {}
    trailers: dict[str, str] = {}
    name = ""
    for line in paragraphs[-1].strip("\n").split("\n"):
        if name and line[:1] in {" ", "\t"}:
            trailers[name] = f"{trailers[name]} {line.strip()}".strip()
        elif found := _TRAILER.fullmatch(line):
            name = found[1]
            trailers.pop(name, None)  # the last of a repeated name stands, in its own place
            trailers[name] = found[2].strip()
        else:
            return {}
    return trailers


def clean_person(person: Person) -> Person:
    """Return a person as git can write them down: no control characters, no angle brackets, never nameless."""
    name = one_line(person.name.replace("<", " ").replace(">", " ")).strip(_CRUD)
    email = one_line(person.email.replace("<", " ").replace(">", " ")).strip(_CRUD).replace(" ", "")
    return Person(name=name or "unknown", email=email or "unknown@invalid")


def check_identity(person: Person) -> Person:
    """Return the tool's own identity when git can write it down as it is.

    Raises:
        InvalidInput: It holds control characters or angle brackets, or nothing.
    """
    if clean_person(person) != person:
        raise InvalidInput(
            f"the identity {person.name!r:.80} <{person.email!r:.80}> needs a name and an address, without control "
            "characters and angle brackets"
        )
    return person


def write_commit(
    repository: pygit2.Repository,
    tree: pygit2.Oid,
    parents: Sequence[pygit2.Oid],
    change: Change,
    *,
    identity: Person,
    signing: Signing | None,
) -> pygit2.Oid:
    """Write a commit for `change` and return its identity; no reference moves."""
    now = int(time.time())
    author = _signature(clean_person(change.author) if change.author else identity, now)
    committer = _signature(identity, now)
    message = render_message(change.message, change.trailers)
    if signing is None:
        return repository.create_commit(None, author, committer, message, tree, list(parents))
    # pygit2's stub says Oid; it is the commit's text.
    content = str(repository.create_commit_string(author, committer, message, tree, list(parents)))
    return repository.create_commit_with_signature(content, _sign(content, signing), "gpgsig")


def _signature(person: Person, now: int) -> pygit2.Signature:
    return pygit2.Signature(person.name, person.email, now, 0, "utf-8")


def _sign(content: str, signing: Signing) -> str:
    if signing.program == "ssh":
        command = ["ssh-keygen", "-Y", "sign", "-n", "git", "-f", signing.key]
    else:
        command = ["gpg", "--batch", "--no-tty", "--armor", "--detach-sign", "--local-user", signing.key]
    try:
        done = subprocess.run(
            command, input=content.encode(), capture_output=True, timeout=_SIGNING_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable(command[0], f"the commit could not be signed: {type(error).__name__}") from error
    if done.returncode != 0 or not done.stdout:
        raise Unavailable(
            command[0], "the commit could not be signed: " + one_line(done.stderr.decode(errors="replace"))[:300]
        )
    return done.stdout.decode()


def read_commit(commit: pygit2.Commit) -> Commit:
    """Return a commit as a value."""
    message = commit.raw_message.decode("utf-8", errors="replace")
    return Commit(
        revision=str(commit.id),
        parents=tuple(str(identity) for identity in commit.parent_ids),
        author=_person(commit.author),
        committer=_person(commit.committer),
        # A commit can claim any time; what a date cannot hold is brought to the nearest that it can.
        committed_at=datetime.fromtimestamp(min(max(commit.commit_time, 0), _LATEST), UTC),
        message=message,
        trailers=parse_trailers(message),
    )


def _person(signature: pygit2.Signature) -> Person:
    return Person(
        name=signature.raw_name.decode("utf-8", errors="replace"),
        email=signature.raw_email.decode("utf-8", errors="replace"),
    )
