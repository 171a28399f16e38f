"""The process's redactor: what looks like a secret, and what this process's environment holds."""

import os
from functools import lru_cache
from typing import Any

from mlgitops.core.redaction import Redactor, secrets_of


def redactor(*secrets: str | None) -> Redactor:
    """Return the redactor that knows the secrets of the environment as it is now, and `secrets`."""
    return _redactor((*secrets_of(os.environ), *filter(None, secrets)))


def redacted(text: str) -> str:
    """Return `text` without secrets."""
    return redactor()(text)


def redacted_values(values: Any) -> Any:
    """Return plain values with every text in them redacted."""
    return redactor().values(values)


@lru_cache(maxsize=4)
def _redactor(secrets: tuple[str, ...]) -> Redactor:
    return Redactor(secrets)
