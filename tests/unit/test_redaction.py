"""A planted secret never survives, and ordinary words stay."""

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mlgitops.core.redaction import Redactor, Stream, secret_lines, secrets_of

LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
WORD = st.text(LETTERS, min_size=36, max_size=40)
AROUND = st.text(st.characters(blacklist_categories=["Cs"]), max_size=30)
FORMS = (
    "ghp_{}",
    "github_pat_{}",
    "glpat-{}",
    "xoxb-{}",
    "hf_{}",
    "npm_{}",
    "AIza{}",
    "sk-{}",
    "eyJhbGciOiJIUzI1NiJ9.{}.c2ln",
    "Authorization: token {}",
    "Authorization: Basic {}",
    "authorization: Bearer {}",
    "https://{}@example.org/x.git",
    "https://ada:{}@example.org/x.git",
    "AWS_SECRET_ACCESS_KEY={}",
    "?token={}&page=2",
    "--password {}",
    '{{"client_secret": "{}"}}',
    "password: '{}'",
    "-----BEGIN OPENSSH PRIVATE KEY-----\n{}\n-----END OPENSSH PRIVATE KEY-----",
)


@given(before=AROUND, after=AROUND, secret=WORD, form=st.sampled_from(FORMS))
@example(before="\x1b[31m", after="", secret="a" * 36, form="ghp_{}")
def test_what_looks_like_a_secret_never_survives(before: str, after: str, secret: str, form: str) -> None:
    """Whatever stands around it, a token, a header, a key, or what a password's name goes before is taken out."""
    told = Redactor()(f"{before} {form.format(secret)} {after}")
    assert secret not in told


@given(before=AROUND, after=AROUND, secret=st.text(min_size=8, max_size=40))
@example(before="", after="", secret='a"b\\c\td')
def test_what_is_known_to_be_secret_never_survives(before: str, after: str, secret: str) -> None:
    """A secret that is told beforehand is taken out as it is, in JSON, and in a URL."""
    from urllib.parse import quote

    redact = Redactor([secret])
    if secret in "***" + before + after:
        return
    for form in (secret, json.dumps(secret)[1:-1], quote(secret, safe="")):
        told = redact(f"{before}\n{form}\n{after}")
        assert form not in told.replace(before, "").replace(after, "")


@given(lines=st.lists(st.sampled_from(["epoch 1", "", "loss 0.5\r"]), max_size=4), secret=WORD, cuts=st.data())
def test_a_stream_that_is_cut_anywhere(lines: list[str], secret: str, cuts: st.DataObject) -> None:
    """However output is cut into pieces, no piece of a secret passes, and all other lines do."""
    key = f"-----BEGIN RSA PRIVATE KEY-----\n{secret[:18]}\n{secret[18:]}\n-----END RSA PRIVATE KEY-----"
    before = "\n".join(lines)
    data = f"{before}\nghp_{secret}\n{key}\nthe end".encode()
    stream, said, at = Stream(Redactor()), b"", 0
    while at < len(data):
        step = cuts.draw(st.integers(1, 60))
        said += stream.take(data[at : at + step])
        at += step
    said += stream.end()
    assert said == f"{before}\n***\n***\n\nthe end".encode()


def test_ordinary_words_stay() -> None:
    """Digests, revisions, addresses, URIs of the store and prose about tokens are not hidden."""
    for text in (
        "digits@sha256:" + "a" * 64,
        "pvc://mlgitops-store/models/digits/3f2a9c1d07be",
        "Ada <ada@example.org>",
        "needs a token: the file must be there",
        "tokens=5 of 7 per second",
        "https://example.org/a@b",
    ):
        assert Redactor()(text) == text


def test_values_keep_their_shape() -> None:
    """Numbers, names and structure of plain values stay; text in them is redacted, and what is named as a secret."""
    values = {"a": [1, None, True, "token=abc"], "ghp_0123456789": {"password": "x", "n": 1.5}}
    assert Redactor().values(values) == {"a": [1, None, True, "token=***"], "***": {"password": "***", "n": 1.5}}


@pytest.mark.parametrize(
    ("name", "value", "secret"),
    [
        ("MLGITOPS_TOKEN", "abcd", "abcd"),
        ("HF_TOKEN", "s3cret-value", "s3cret-value"),
        ("AWS_SECRET_ACCESS_KEY", "wJalr/XUtn", "wJalr/XUtn"),
        ("DATABASE_URL", "postgres://ada:pa55@db/x", "pa55"),
        ("MLGITOPS_SSH_KEY", "/home/ada/.ssh/id", None),
        ("API_KEY", "production", None),
        ("HOME", "/home/ada", None),
        ("TOKENIZERS_PARALLELISM", "false-12", None),
        ("MLGITOPS_NOTIFY_", "", None),
    ],
)
def test_which_variables_are_secrets(name: str, value: str, secret: str | None) -> None:
    """Credentials among environment variables are known; paths, plain words and other variables are none."""
    assert secrets_of({name: value}) == ((secret,) if secret else ())


@pytest.mark.parametrize(
    ("address", "secrets", "plain"),
    [
        ("slack://TokenAAAA/TokenBBBB/TokenCCCC", ["TokenAAAA", "TokenBBBB", "TokenCCCC"], ["slack"]),
        ("jsons://hooks.example.org/0123456789abcdef?+key=s3cr3t-k3y", ["0123456789abcdef", "s3cr3t-k3y"], ["hooks"]),
        ("mailtos://ada:pa55word@mail.example.org", ["pa55word"], ["mail.example.org"]),
        ("json://127.0.0.1:80/hook-t0ken, discord://123456789/chat-t0ken", ["hook-t0ken", "chat-t0ken"], ["127.0.0.1"]),
        ("json://[broken", ["json://[broken"], []),
    ],
)  # fmt: skip
def test_addresses_of_notifications_are_secrets(address: str, secrets: list[str], plain: list[str]) -> None:
    """Neither the address of a notification nor what opens it is shown anywhere; the names of hosts are."""
    redact = Redactor(secrets_of({"MLGITOPS_NOTIFY_CHAT": address}))
    assert address not in redact(f"sending to {address} failed")
    assert not [one for one in secrets if one in redact(f"a {one} b")]
    assert [one for one in plain if redact(f"at {one}.") != f"at {one}."] == []


def test_where_a_secret_stands() -> None:
    """What is a secret beyond doubt is named by its line; what may be none is not."""
    text = "a: 1\nb: ghp_0123456789abcdef\nc: token=x\nd: https://a:b@c/d\n"
    assert secret_lines(text) == (2, 4)
