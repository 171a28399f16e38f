"""Text without secrets: the one place that says what a secret looks like.

Standard library only: the process that keeps a container's output imports this without anything installed.
"""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

MARK: Final = "***"
"""What stands in a secret's place."""
OWN: Final = ("MLGITOPS_TOKEN", "MLGITOPS_FORGE_TOKEN", "MLGITOPS_SSH_PASSPHRASE", "MLGITOPS_REGISTRY_PASSWORD")
"""Variables that hold this tool's own credentials, whatever they look like."""
NOTIFY: Final = "MLGITOPS_NOTIFY_"
"""How variables begin that hold addresses for notifications: whoever knows one can write there."""
SHORTEST_OWN: Final = 4
SHORTEST: Final = 8
"""What is shorter would hide ordinary words, and is no secret."""
PENDING_BYTES: Final = 65_536
"""A line that is longer is taken in parts."""

_CREDENTIAL: Final = (
    r"(?:[\w-]*[_-])?(?:token|password|passwd|passphrase|secret|credentials?|signature|"
    r"(?:api|access|private|signing|encryption|secret)[_-]?key)(?:[_-](?:id|key|value))?"
)
_CREDENTIAL_NAME: Final = re.compile(_CREDENTIAL, re.IGNORECASE)
_USERINFO: Final = re.compile(r"(\b[a-z][a-z0-9+.-]*://)[^/\s]*@", re.IGNORECASE)
_URL_PASSWORD: Final = re.compile(r"://[^/\s:@]*:([^/\s]+)@")
_KEY_BEGINS: Final = re.compile(r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----")
_KEY_ENDS: Final = re.compile(r"-----END [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----")
_KEY: Final = re.compile(f"{_KEY_BEGINS.pattern}.*?(?:{_KEY_ENDS.pattern}|\\Z)", re.DOTALL)
# Forms by GitHub, GitLab, Slack, AWS, Google, Hugging Face, npm, PyPI, Docker, OpenAI; and a JSON Web Token. No word
# boundary in front: an escape sequence's last letter may stand there.
_TOKEN: Final = re.compile(
    r"gh[pousr]_[A-Za-z0-9]{8,}|github_pat_\w{8,}|glpat-[\w-]{8,}|xox[abeprs]-[\w-]{8,}|A(?:KIA|SIA)[0-9A-Z]{12,}"
    r"|AIza[\w-]{30,}|hf_[A-Za-z0-9]{16,}|npm_[A-Za-z0-9]{30,}|pypi-AgE[\w-]{16,}|dckr_pat_[\w-]{16,}"
    r"|sk-[A-Za-z0-9_-]{32,}|eyJ[\w-]{8,}\.[\w-]{8,}(?:\.[\w-]*)?"
)
_HEADER: Final = re.compile(r"\b(Bearer|Basic)\s+[\w.~+/=-]{8,}", re.IGNORECASE)
_AUTHORIZATION: Final = re.compile(
    r"\b(Authorization[\"']?\s*[:=]\s*[\"']?)(?!\*\*\*)[^\s\"']+(?:[ \t]+[^\s\"',;]+)?", re.IGNORECASE
)
_NAMED: Final = re.compile(rf"(?<![A-Za-z0-9])({_CREDENTIAL}=)[^\s&;,'\"]+", re.IGNORECASE)
_QUOTED: Final = re.compile(
    rf"(?<![A-Za-z0-9])({_CREDENTIAL}[\"']?\s*[:=]\s*)(?:\"(?:[^\"\\\n]|\\.)+\"|'(?:[^'\\\n]|\\.)+')", re.IGNORECASE
)
_OPTION: Final = re.compile(rf"(?<!\w)(--{_CREDENTIAL}[ \t]+)[^\s\"']+", re.IGNORECASE)
_STRONG: Final = (_KEY, _TOKEN, _URL_PASSWORD)
"""What is a secret beyond doubt, also where it would be refused and not only hidden."""


class Redactor:
    """Takes secrets out of text: by form, and those it is told."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        """Know `secrets`, in every form in which text may carry them."""
        forms = {form for one in secrets for form in _forms(one)}
        longest_first = sorted(forms, key=lambda one: (-len(one), one))
        self._known = re.compile("|".join(re.escape(one) for one in longest_first)) if forms else None

    def __call__(self, text: str) -> str:
        """Return `text` without what is known to be secret and what looks like it: keys, tokens, headers, `token=…`."""
        if self._known is not None:
            text = self._known.sub(MARK, text)
        text = _TOKEN.sub(MARK, _USERINFO.sub(rf"\1{MARK}@", _KEY.sub(MARK, text)))
        text = _AUTHORIZATION.sub(rf"\1{MARK}", _HEADER.sub(rf"\1 {MARK}", text))
        text = _OPTION.sub(rf"\1{MARK}", _QUOTED.sub(rf'\1"{MARK}"', text))
        return _NAMED.sub(rf"\1{MARK}", text)

    def values(self, values: Any) -> Any:
        """Return plain values with every text in them redacted, names in mappings too."""
        if isinstance(values, str):
            return self(values)
        if isinstance(values, Mapping):
            return {self.values(name): self._named(name, value) for name, value in values.items()}
        if isinstance(values, list | tuple):
            return [self.values(value) for value in values]
        return values

    def _named(self, name: Any, value: Any) -> Any:
        secret = isinstance(name, str) and isinstance(value, str) and _CREDENTIAL_NAME.fullmatch(name)
        # A signature is what a model answers to, too; in a URL it is hidden all the same.
        return MARK if secret and value and not name.lower().endswith("signature") else self.values(value)

    def data(self, data: bytes) -> bytes:
        """Return bytes redacted as the text they mostly are; what is no UTF-8 stays."""
        return self(data.decode(errors="surrogateescape")).encode(errors="surrogateescape")


class Stream:
    """Redacts output while it is written, line by line, so that a secret is never on disk."""

    def __init__(self, redactor: Redactor) -> None:
        """Redact with `redactor`."""
        self._redactor, self._pending, self._in_key = redactor, b"", False

    def take(self, data: bytes) -> bytes:
        """Take what was written; return the whole lines that may be kept by now."""
        *lines, self._pending = re.split(rb"(?<=[\n\r])", self._pending + data)
        if len(self._pending) > PENDING_BYTES:
            lines, self._pending = [*lines, self._pending], b""
        return b"".join(self._line(line) for line in lines)

    def end(self) -> bytes:
        """Return what is left: a last line without its end."""
        last, self._pending = self._pending, b""
        return self._line(last)

    def _line(self, line: bytes) -> bytes:
        """Redact one line; of a private key over several, its first alone is told, as the mark."""
        text = line.decode(errors="surrogateescape")
        if self._in_key:
            end = _KEY_ENDS.search(text)
            if end is None:
                return b""
            self._in_key, text = False, text[end.end() :]
        begin = [one.end() for one in _KEY_BEGINS.finditer(text)]
        self._in_key = bool(begin) and _KEY_ENDS.search(text, begin[-1]) is None
        kept = self._redactor(text)
        ending = "\n" if self._in_key and not kept.endswith("\n") else ""
        return (kept + ending).encode(errors="surrogateescape")


def secrets_of(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return the values among environment variables that must not be shown.

    The tool's own credentials; addresses of notifications, and what is secret in them; values of variables that are
    named like a credential, but paths and plain words; passwords in values that are URLs.
    """
    found = [environment.get(name, "").strip() for name in OWN]
    secrets = [one for one in found if len(one) >= SHORTEST_OWN]
    for name, value in environment.items():
        secrets += [one for one in _URL_PASSWORD.findall(value) if len(one) >= SHORTEST_OWN]
        told = value.strip()
        if name.startswith(NOTIFY) and told:
            secrets += _of_address(told)
        if name not in OWN and _CREDENTIAL_NAME.fullmatch(name) and len(told) >= SHORTEST:
            secrets += [] if told.isalpha() or told.startswith(("/", "~", ".")) else [told]
    return tuple(dict.fromkeys(secrets))


def _of_address(address: str) -> list[str]:
    """Return an address and its parts that may be secret by themselves: all but a host's name and short words."""
    from urllib.parse import urlsplit  # most processes are given no address

    found = [address]
    for one in re.split(r"[\s,]+(?=[a-z][a-z0-9+.-]*://)", address):
        try:
            parts = urlsplit(one)
        except ValueError:
            continue
        host = parts.netloc.rpartition("@")[2]
        words = [*re.split(r"[/?&=@:,;#]+", f"{parts.path}?{parts.query}#{parts.fragment}"), parts.netloc[: -len(host)]]
        words += [] if "." in host or host.startswith("localhost") else host.split(":")
        found += [word for word in words if len(word) >= SHORTEST]
    return found


def secret_lines(text: str) -> tuple[int, ...]:
    """Return the lines, from 1, on which something is a secret beyond doubt."""
    starts = {found.start() for form in _STRONG for found in form.finditer(text)}
    return tuple(sorted({text.count("\n", 0, start) + 1 for start in starts}))


def _forms(secret: str) -> Iterable[str]:
    """Return a secret as it may be written: plain, in a URL, in JSON, as Python shows it; each line of a long one."""
    from urllib.parse import quote  # most processes know no secret

    lines = [one.strip() for one in secret.splitlines() if len(one.strip()) >= 2 * SHORTEST]
    for one in {secret, *(lines if len(lines) > 1 else ())}:
        yield from (one, quote(one, safe=""), quote(one), json.dumps(one)[1:-1], repr(one)[1:-1])
