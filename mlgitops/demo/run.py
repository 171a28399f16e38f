"""The demo: a user who only pushes and types commands, beside an engine that `mlgitops local up` runs."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, TextIO

from mlgitops.app import reading
from mlgitops.app.context import Context, look
from mlgitops.core.errors import InvalidInput, MlgitopsError, Unavailable
from mlgitops.demo import leftovers, models
from mlgitops.local import wiring
from mlgitops.local.setup import ENVIRONMENT_REPOSITORY
from mlgitops.ports.repository import Person

MODEL: Final = "digits"
MODEL_FOLDER: Final = "model"
HOME_FOLDER: Final = ".mlgitops"
MARKER: Final = ".mlgitops-demo"
RATE: Final = 80
"""Requests per second that the demo's users send."""
WAIT_SECONDS: Final = 600
ENVIRONMENTS: Final = """\
# The demo's environment: one minute where a real one takes hours.
apiVersion: mlgitops.dev/v1
kind: Environments

environments:
  - name: production
    plan: minutes
    probationSeconds: 5
    gates:
      - {metric: accuracy, minimum: 0.8}

plans:
  - name: minutes
    alpha: 0.01
    dispersion: 1.0         # the demo's users are independent of each other
    steps:
      - {weight: 10, seconds: 8}
      - {weight: 50, seconds: 5}
      - {weight: 95, seconds: 5}
    metrics:
      - {kind: errors, effect: 50, margin: 2}
      - {kind: latency, effect: 200, margin: 20}  # who gets more traffic on two busy cores answers later
      - {kind: labels, effect: 6, margin: 1.5}
    extendSeconds: 120
    maximumAgeSeconds: 600

training:
  namespace: training
  claim: mlgitops-store
"""
ADA: Final = Person(name="Ada Lovelace", email="ada@example.org")


class Demo:
    """Walks the table of pushes, and checks that each led to what it should."""

    def __init__(self, folder: Path, out: TextIO) -> None:
        """Run in `folder`, telling `out`."""
        self._folder, self._out = folder, out
        self._model = folder / MODEL_FOLDER
        self._environment = folder / "environment"
        self._home = self._model / HOME_FOLDER
        self._children: list[subprocess.Popen[Any]] = []
        self._started = time.monotonic()
        self._lock = threading.Lock()
        self._context: Context | None = None

    # --- telling ------------------------------------------------------------------------------------------------------

    def tell(self, words: str = "") -> None:
        """Print one line, with the time since the start."""
        with self._lock:
            passed = time.monotonic() - self._started
            self._out.write(f"[{int(passed // 60)}:{passed % 60:04.1f}] {words}\n" if words else "\n")
            self._out.flush()

    def title(self, words: str) -> None:
        """Print a heading."""
        self.tell()
        self.tell(f"━━ {words} " + "━" * max(0, 96 - len(words)))

    # --- what a user does ---------------------------------------------------------------------------------------------

    def run(self) -> Path:
        """Walk the whole loop; returns the report's path.

        Raises:
            MlgitopsError: Something led to something else than it should.
        """
        self._clean()
        try:
            self._prepare()
            self._pushes()
            self._by_hand()
            return self._finish()
        finally:
            self._end()

    def _prepare(self) -> None:
        self.title("a model repository, and an engine on this machine")
        self._model.mkdir(parents=True)
        (self._folder / MARKER).touch()
        self._git(self._model, "init", "-q", "-b", "main")
        self._person(self._model)
        self._commit(1)
        self._engine()
        self._git(self._folder, "clone", "-q", str(self._home / ENVIRONMENT_REPOSITORY), str(self._environment))
        self._person(self._environment)
        (self._environment / "environments.yaml").write_text(ENVIRONMENTS)
        self._git(self._environment, "commit", "-qam", "configure: judge canaries within minutes")
        self._git(self._environment, "push", "-q", "origin", "main")

    def _pushes(self) -> None:
        self.title("push 1, code: the first release has no champion to be compared with")
        first = self._push()
        self._await(f"release {first} serves production", lambda: self._champion() == first)
        self._users()
        self.title("push 2, code: a better model, judged at 10, 50 and 95 % of the traffic")
        self._commit(2)
        second = self._push()
        self._await(f"release {second} serves production", lambda: self._champion() == second)
        before = self._manifests()
        self.title("push 3, code: a worse model, refused by the comparison with the champion")
        self._commit(3)
        third = self._push()
        self._await(f"release {third} is refused", lambda: self._phase(third) == "REFUSED")
        self._await("production is untouched, byte for byte", lambda: self._manifests() == before)
        self.title("push 4, code: right in evaluation, wrong on single digits; only users can see it")
        self._git(self._model, "revert", "--no-edit", "HEAD")
        self._commit(4)
        fourth = self._push()
        self._await(f"release {fourth} is rolled back", lambda: self._phase(fourth) == "ROLLED_BACK")
        self._expect(self._manifests() == before, "production's manifests are as before, byte for byte")
        self._expect(self._status()["hold"] is not None, "automation is on hold")
        self.title("push 5: git revert of push 4 is the second release again")
        self._git(self._model, "revert", "--no-edit", "HEAD")
        self._expect(self._push() == second, "recognised: nothing is trained")
        self.title("push 6, data: the same code on more data, after `mlgitops resume`")
        self._type("resume")
        self._commit(6)
        self._sixth = self._push()
        self._second = second
        self._await(f"release {self._sixth} serves production", lambda: self._champion() == self._sixth)
        cause = next(one for one in self._history()["releases"] if one["release"] == self._sixth)["cause"]
        self._expect(cause == ["data"], f"the cause of release {self._sixth} is: {', '.join(cause)}")

    def _by_hand(self) -> None:
        self.title("by hand: where did one production answer come from?")
        self._type("trace", self._told()["last"]["id"])
        self.title("by hand: rollback in one command, resume, and back again by force")
        self._type("rollback", "--reason", "a customer complains")
        self._await(f"release {self._second} serves production", lambda: self._champion() == self._second)
        self._type("resume")
        self._type("promote", self._sixth, "--force", "--reason", "the customer was wrong")
        self._await(f"release {self._sixth} serves production", lambda: self._champion() == self._sixth)
        self.title("by hand: git revert of that promotion on main is a rollback, too")
        self._git(self._environment, "pull", "-q", "--rebase", "origin", "main")
        promotion = self._git(self._environment, "log", "--format=%H", "-1", "--grep=^promote").strip()
        self._git(self._environment, "revert", "--no-edit", promotion)
        self._git(self._environment, "push", "-q", "origin", "main")
        self._await(f"release {self._second} serves production", lambda: self._champion() == self._second)
        self._expect(self._status()["hold"]["by"].startswith(ADA.name), f"the ledger names {ADA.name}")
        self._type("status")

    def _finish(self) -> Path:
        self.title("what is left for inspection")
        told = self._told()
        self.tell(
            f"users sent {told['sent']} requests: {told['answered']} answered, {told['failed']} failed, "
            f"{told['labelled']} labelled"
        )
        self._expect(told["failed"] == 0, "no request was lost in all of it")
        self._git(self._environment, "pull", "-q", "--rebase", "origin", "main")
        self.tell("git log of the environment repository:")
        for line in self._git(self._environment, "log", "--format=%h %s").splitlines():
            self.tell(f"  {line}")
        report = self._folder / "report.html"
        self._type("report", "--file", str(report))
        self.tell(f"model repository:        {self._model}")
        self.tell(f"environment repository:  {self._environment}")
        self.tell(f"report:                  {report}")
        return report

    # --- commands -----------------------------------------------------------------------------------------------------

    def _type(self, *words: str) -> str:
        """Type one command of the tool, and show what it says."""
        self.tell("$ mlgitops " + " ".join(f"'{word}'" if " " in word else word for word in words))
        done = self._call([sys.executable, "-m", "mlgitops", *words], self._model)
        for line in (done.stdout + done.stderr).splitlines():
            self.tell(f"  {line}")
        if done.returncode:
            raise InvalidInput(f"`mlgitops {words[0]}` ended with {done.returncode}")
        return done.stdout

    def _git(self, folder: Path, *words: str) -> str:
        if words[0] in ("push", "revert"):
            self.tell(f"$ git {' '.join(words)}")
        done = self._call(["git", "-C", str(folder), *words], self._folder)
        if done.returncode:
            raise InvalidInput(f"`git {' '.join(words)}` failed: {done.stderr.strip()}")
        return done.stdout

    def _call(self, words: Sequence[str], folder: Path) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(words, cwd=folder, env=self._variables(), capture_output=True, text=True, check=False)

    def _variables(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("GIT_", "MLGITOPS_"))}
        return kept | {"GIT_CONFIG_GLOBAL": os.devnull, "CUDA_VISIBLE_DEVICES": "-1", "TF_CPP_MIN_LOG_LEVEL": "2"}

    def _person(self, folder: Path) -> None:
        self._git(folder, "config", "user.name", ADA.name)
        self._git(folder, "config", "user.email", ADA.email)

    def _commit(self, variant: int) -> None:
        message = models.write_model_repository(self._model, variant)
        self._git(self._model, "add", "-A")
        self._git(self._model, "commit", "-qm", message)

    def _push(self) -> str:
        """Push, and wait until the engine made or recognised a release of it."""
        revision = self._git(self._model, "rev-parse", "HEAD").strip()
        self._git(self._model, "push", "-q", "local")
        pushed = self._home / "pushed.json"

        def taken() -> bool:
            return pushed.exists() and json.loads(pushed.read_bytes())["revision"] == revision

        self._await("the push is submitted", taken)
        found: dict[str, Any] = json.loads(pushed.read_bytes())
        if found["code"]:
            raise InvalidInput(f"the push was refused with exit code {found['code']}")
        return self._last_submitted()

    # --- looking ------------------------------------------------------------------------------------------------------

    def _view(self) -> Context:
        if self._context is None:
            location = str(self._home / ENVIRONMENT_REPOSITORY)
            self._context = wiring.context(location, self._folder / "cache", ADA)
        return self._context

    def _last_submitted(self) -> str:
        found = look(self._view()).ledger.last_submitted(MODEL)
        if found is None:
            raise Unavailable("release", "the push left none")
        return found.name

    def _status(self) -> dict[str, Any]:
        values: dict[str, Any] = reading.status(self._view(), MODEL)["models"][0]["environments"][-1]
        return values

    def _history(self) -> dict[str, Any]:
        return reading.history(self._view(), MODEL, None)

    def _champion(self) -> str | None:
        """Return what serves alone, nothing being under way."""
        status = self._status()
        found: str | None = status["champion"] if status["rollout"] is None else None
        return found

    def _phase(self, release: str) -> str:
        rows = [one for one in self._history()["rollouts"] if one["release"] == release]
        return str(rows[-1]["phase"]) if rows else ""

    def _manifests(self) -> dict[str, bytes]:
        main = self._view().repository.snapshot("refs/heads/main")
        folder = f"environments/production/{MODEL}"
        paths = [one for one in main.paths(folder) if not one.endswith("/generation")]
        return {path: main.read(path) or b"" for path in paths}

    def _told(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self._folder / "users.json").read_bytes())
        return found

    def _await(self, what: str, ready: Callable[[], bool]) -> None:
        deadline = time.monotonic() + WAIT_SECONDS
        while not ready():
            ended = [one for one in self._children if one.poll() is not None]
            if ended or time.monotonic() > deadline:
                why = f"a process ended with {ended[0].returncode}" if ended else f"nothing after {WAIT_SECONDS} s"
                raise Unavailable(what, why)
            time.sleep(0.4)
        self.tell(f"✓ {what}")

    def _expect(self, true: bool, what: str) -> None:  # noqa: FBT001 - reads as the sentence it is
        if not true:
            raise InvalidInput(f"expected and not so: {what}")
        self.tell(f"✓ {what}")

    # --- processes ----------------------------------------------------------------------------------------------------

    def _engine(self) -> None:
        self.tell("$ mlgitops local up")
        process = self._start([sys.executable, "-m", "mlgitops", "local", "up"], stdout=subprocess.PIPE)
        ready = threading.Event()

        def follow() -> None:
            assert process.stdout is not None
            for line in process.stdout:
                self.tell(f"  │ {line.rstrip()}")
                if line.startswith("push with"):
                    ready.set()

        threading.Thread(target=follow, daemon=True).start()
        self._await("the engine runs", ready.is_set)

    def _users(self) -> None:
        images = self._folder / "traffic.npz"
        models.write_traffic(images)
        words = [str(self._home), MODEL, str(RATE), str(images), str(self._folder / "users.json")]
        self._start([sys.executable, "-m", "mlgitops.demo.traffic", *words], stdout=subprocess.DEVNULL)
        self._await(f"users send {RATE} digits a second", (self._folder / "users.json").exists)

    def _start(self, words: list[str], *, stdout: int) -> "subprocess.Popen[str]":
        process = subprocess.Popen(
            words,
            cwd=self._model,
            env=self._variables(),
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self._children.append(process)
        return process

    def _end(self) -> None:
        for process in reversed(self._children):
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
                try:
                    process.wait(40)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()
        self._children.clear()

    def check(self) -> bool:
        """Say whether an earlier run is in the folder; `InvalidInput` where something else is."""
        there = self._folder.exists() and any(self._folder.iterdir())
        if there and not (self._folder / MARKER).exists():
            raise InvalidInput(f"{self._folder} is not empty and was not made by the demo; name another --directory")
        return there

    def foretell(self) -> Sequence[str]:
        """Return what `run` would do, in words; nothing is touched.

        Raises:
            InvalidInput: The folder holds something that the demo did not make.
        """
        removed = [f"end what still runs of the earlier run in {self._folder}, and remove the folder"]
        return (
            *(removed if self.check() else ()),
            f"make a model repository in {self._model}, and start an engine for it",
            f"make a clone of the environment repository in {self._environment}",
            *(f"push {number}: {one.message.splitlines()[0]}" for number, one in sorted(models.PUSHES.items())),
            f"send {RATE} requests a second to production, from the first release on",
            "trace an answer; roll back, resume, promote by force, and revert on main",
            f"write {self._folder / 'report.html'}, and end everything it started",
        )

    def _clean(self) -> None:
        """Take away what an earlier run left, also one that was killed."""
        if not self._folder.exists():
            self._folder.mkdir(parents=True)
            return
        self.check()
        leftovers.end_processes(self._folder, f"{MODEL_FOLDER}/{HOME_FOLDER}")
        try:
            leftovers.remove(self._folder)
        except OSError as error:
            raise Unavailable(f"folder {self._folder}", error.strerror or str(error)) from error
        self._folder.mkdir()


def run(folder: Path, out: TextIO) -> Path:
    """Run the demo in `folder`; returns the report's path.

    Raises:
        MlgitopsError: Something led to something else than it should.
    """
    demo = Demo(folder, out)
    try:
        return demo.run()
    except MlgitopsError:
        demo.tell("the demo stopped; everything it made is left for a look")
        raise
