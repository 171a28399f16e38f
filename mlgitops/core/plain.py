"""Reading YAML fast, where nobody needs to know what stands on which line: what mlgitops wrote, and what only looks.

What people write is read by `core.manifest.read`, which is strict and knows every place.
"""

from typing import Any, Final

import yaml

from mlgitops.core.errors import InvalidInput

# PyYAML's constructors trust a tag: `!!timestamp x` is an AttributeError, `!!int ''` an IndexError, `!!bool x` a
# KeyError, a number of 5,000 digits a ValueError.
_FAULTS: Final = (yaml.YAMLError, AttributeError, LookupError, TypeError, ValueError, ArithmeticError, RecursionError)


def load_plain(data: bytes, path: str) -> Any:
    """Return plain data.

    Args:
        data: YAML, of which the last of a repeated key stands.
        path: The file, for the message.

    Raises:
        InvalidInput: It cannot be read.
    """
    try:
        return yaml.load(data, Loader=yaml.CSafeLoader)
    except _FAULTS as error:
        raise InvalidInput(f"is no YAML that can be read: {type(error).__name__}: {error!s:.200}", path=path) from error
