"""Messages really arrive through the library, hold nobody up, and tell no address."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from mlgitops.adapters.notifier.apprise import AppriseNotifier
from mlgitops.adapters.notifier.marks import FileMarks
from mlgitops.ports.notifier import Letter
from tests.support.inbox import inbox

HOOK = "MLGITOPS_NOTIFY_HOOK"
TOKEN = "s3cr3t-t0k3n-0f-a-ch4t"
LETTER = Letter(variable=HOOK, title="mlgitops: digits in production: rolled back", body="line one\nline <two> & three")
needs_apprise = pytest.mark.skipif(
    not __import__("importlib.util").util.find_spec("apprise"), reason="apprise is not installed (extra `notify`)"
)


@needs_apprise
def test_a_message_arrives_as_it_was_written() -> None:
    """A service gets title and body as plain text, byte for byte."""
    with inbox() as found:
        notifier = AppriseNotifier({HOOK: f"json://127.0.0.1:{found.port}/{TOKEN}"})
        assert notifier.knows(HOOK)
        assert notifier.send([LETTER]) == ("",)
        assert [(one["title"], one["message"]) for one in found.letters] == [(LETTER.title, LETTER.body)]


@needs_apprise
def test_a_service_that_refuses_is_told_without_its_address(capfd) -> None:
    """A failed message is a problem in words, and neither they nor anything printed hold the address."""
    with inbox() as found:
        found.status = 500
        notifier = AppriseNotifier({HOOK: f"json://127.0.0.1:{found.port}/{TOKEN}", f"{HOOK}_2": "nothing://known/x"})
        told = notifier.send([LETTER, Letter(variable=f"{HOOK}_2", title="t", body="b")])
    assert told == (
        f"the service behind {HOOK} did not take it",
        f"{HOOK}_2 holds no address that Apprise knows",
    )
    said = capfd.readouterr()
    assert said.out + said.err == ""


@needs_apprise
def test_a_service_that_hangs_holds_nobody_up() -> None:
    """All messages together take a bounded time, and one that hangs keeps no other from being sent."""
    with inbox() as found, inbox() as well:
        found.silent.set()
        addresses = {HOOK: f"json://127.0.0.1:{found.port}/", f"{HOOK}_2": f"json://127.0.0.1:{well.port}/"}
        begun = time.monotonic()
        told = AppriseNotifier(addresses, patience_seconds=1.5).send(
            [LETTER, Letter(variable=f"{HOOK}_2", title="t", body="b")]
        )
        assert time.monotonic() - begun < 3
        assert told == ("it took longer than 1.5 s", "")
        assert [one["title"] for one in well.letters] == ["t"]


def test_only_variables_of_notifications_are_addresses() -> None:
    """Whoever may edit environments.yaml cannot have another secret of the process sent somewhere."""
    notifier = AppriseNotifier({"MLGITOPS_TOKEN": "json://127.0.0.1/", HOOK: "  "})
    assert not notifier.knows("MLGITOPS_TOKEN")
    assert not notifier.knows(HOOK)


def test_without_the_library_the_mend_is_told() -> None:
    """The extra is optional: without it, each message says what to install."""
    program = (
        "import sys; sys.modules['apprise'] = None; import importlib.util as u; u.find_spec = lambda name: None\n"
        "from mlgitops.adapters.notifier.apprise import AppriseNotifier\n"
        "from mlgitops.ports.notifier import Letter\n"
        f"print(AppriseNotifier({{{HOOK!r}: 'json://x'}}).send([Letter(variable={HOOK!r}, title='t', body='b')])[0])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "Apprise is not installed: `pip install 'mlgitops[notify]'`\n"


def test_marks_survive_and_damage_forgets(tmp_path: Path) -> None:
    """What was told is remembered over processes; a file that was cut off is as if nothing was."""
    file = tmp_path / "deep" / "notified.json"
    assert FileMarks(file).read() == {}
    FileMarks(file).write({"chat": "a" * 40})
    assert FileMarks(file).read() == {"chat": "a" * 40}
    file.write_bytes(file.read_bytes()[:-5])
    assert FileMarks(file).read() == {}
