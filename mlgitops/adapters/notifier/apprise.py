"""The `Notifier` port on Apprise, which knows some hundred services by one form of address.

Source: https://github.com/caronc/apprise/wiki
"""

import logging
import threading
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from time import monotonic
from typing import Final

from mlgitops.core.redaction import NOTIFY
from mlgitops.ports.notifier import Letter

PATIENCE_SECONDS: Final = 10.0
"""How long all messages of one look may take together."""
_MISSING: Final = "Apprise is not installed: `pip install 'mlgitops[notify]'`"


class AppriseNotifier:
    """Sends each message in a thread of its own, and waits a bounded time for all."""

    def __init__(self, variables: Mapping[str, str], *, patience_seconds: float = PATIENCE_SECONDS) -> None:
        """Know the addresses among environment variables: those whose names begin with `MLGITOPS_NOTIFY_`."""
        self._addresses = {
            name: value.strip() for name, value in variables.items() if name.startswith(NOTIFY) and value.strip()
        }
        self._patience_seconds = patience_seconds

    def knows(self, variable: str) -> bool:
        """Say whether this process was given that address."""
        return variable in self._addresses

    def send(self, letters: Sequence[Letter]) -> Sequence[str]:
        """Send messages; see the port."""
        if letters and find_spec("apprise") is None:
            return [_MISSING] * len(letters)
        late = f"it took longer than {self._patience_seconds:g} s"
        found = [late] * len(letters)

        def deliver(number: int, one: Letter) -> None:
            found[number] = _deliver(self._addresses[one.variable], one)

        # Nobody waits for a thread that hangs, not even the end of the process.
        threads = [
            threading.Thread(target=deliver, args=(number, one), daemon=True, name=f"notify-{number}")
            for number, one in enumerate(letters)
        ]
        for thread in threads:
            thread.start()
        deadline = monotonic() + self._patience_seconds
        for thread in threads:
            thread.join(max(0.0, deadline - monotonic()))
        return tuple(found)


def _deliver(address: str, letter: Letter) -> str:
    """Send one message; returns why it was not sent, never with the address or what a service answered."""
    import apprise

    # It would write addresses, and what services answer, to the standard error of whoever runs this.
    logging.getLogger("apprise").setLevel(logging.CRITICAL + 1)
    try:
        client = apprise.Apprise(asset=apprise.AppriseAsset(app_id="mlgitops", app_desc="mlgitops", app_url=""))
        if not client.add(address):
            return f"{letter.variable} holds no address that Apprise knows"
        sent = client.notify(
            title=letter.title, body=letter.body, body_format=apprise.NotifyFormat.TEXT, interpret_escapes=False
        )
    except Exception as error:  # noqa: BLE001 - whatever a plugin of the library raises, no pass may fail by it
        return f"{letter.variable}: {type(error).__name__}"
    return "" if sent else f"the service behind {letter.variable} did not take it"
