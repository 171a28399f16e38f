"""Pods as processes: what a kubelet does for one, with folders in place of its memory.

A pod is a folder: `pod.json` says what it is, each numbered folder is one run of its container, written by the shim.
Everything else is derived, so that a new engine knows what the one before it knew. `home` of a pod:

    pods/<name>/<uid>/pod.json          what to run, and whether deletion was asked for
    pods/<name>/<uid>/<number>/         one run of the container: run.json, process.json, status.json, lock
    logs/<name>/                        its output, over all runs; outlives the pod

The program gets a private copy of the image's working directory as its own, a private `HOME` and `TMPDIR`, and an
environment made from nothing: no variable of the engine reaches it. That keeps credentials out of training code by
default; it is no sandbox, as the program has the rights of the user who runs the engine.
"""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path, PurePosixPath
from typing import Any, Final

from mlgitops.adapters.cluster import shim
from mlgitops.adapters.cluster.images import ImageContent, Puller, Pulling
from mlgitops.adapters.cluster.logs import last_words
from mlgitops.adapters.cluster.objects import quantity
from mlgitops.adapters.cluster.state import Lock, folders, held, instant, read_json, text, write_json
from mlgitops.adapters.cluster.tfjob import PodPhase, PodView, Replicas
from mlgitops.core.errors import InvalidInput
from mlgitops.core.manifest.fields import MOUNTS_VARIABLE

TERMINATION_VARIABLE: Final = "MLGITOPS_TERMINATION_LOG"
POD_RESTART_POLICIES: Final = ("Always", "OnFailure", "Never")
STEADY_SECONDS: Final = 600.0
"""A container that ran this long restarts at once, as with the kubelet."""
KILL_MARGIN_SECONDS: Final = 2.0
"""How much longer than the grace period a shim may take before it is ended itself."""
_EXIT_SECONDS: Final = 0.5
"""A shim that has written its status exits within milliseconds."""
_REFERENCE: Final = re.compile(r"\$(\$|\(([-._a-zA-Z0-9]+)\))")
_PYTHON: Final = ("python", "python3")


@dataclass(frozen=True, kw_only=True)
class Options:
    """How this machine runs pods."""

    grace_seconds: float = 5.0
    """Between SIGTERM and SIGKILL for pods that do not say `terminationGracePeriodSeconds`."""
    backoff_seconds: float = 1.0
    """Pause before the second restart of a container, doubled for each one more; the first follows at once."""
    longest_backoff_seconds: float = 300.0
    log_bytes: int = 8 << 20
    """What is kept of one pod's output: its beginning and its end."""
    python: str = sys.executable
    """Interpreter for commands that say `python` or `python3`."""

    def pause(self, restarts: int) -> timedelta:
        """Return how long to wait before restart number `restarts`, from 1."""
        pause = 0.0 if restarts < 2 else self.backoff_seconds * 2.0 ** min(restarts - 2, 30)
        return timedelta(seconds=min(pause, self.longest_backoff_seconds))


@dataclass(frozen=True, kw_only=True)
class Node:
    """What all pods of this machine share."""

    options: Options
    puller: Puller
    claims: Mapping[str, Path]
    """Folders of volume claims."""


@dataclass(frozen=True, kw_only=True)
class Pod:
    """What a pod is, as it is written."""

    name: str
    role: str
    index: int
    uid: str
    image: str
    command: tuple[str, ...]
    """Replaces the image's entrypoint; empty to keep it."""
    arguments: tuple[str, ...]
    working_directory: str | None
    """Absolute path in the image; None for the image's own."""
    environment: tuple[tuple[str, str], ...]
    tf_config: str
    """Empty when the job is not distributed."""
    claims: Mapping[str, str]
    """Claim by volume name, of the volumes the container mounts."""
    scratch: tuple[str, ...]
    """Empty volumes that the container mounts; they live as long as the pod."""
    restart_policy: str
    grace_seconds: float
    memory_bytes: int
    """Limit, 0 for none."""
    gpu: bool
    """Whether the container may see this machine's GPUs."""
    message_from_log: bool
    """Without a termination message, a failed container's last output stands for it."""
    deleted_at: datetime | None = None


def describe(replicas: Replicas, *, name: str, role: str, index: int, tf_config: str, options: Options) -> Pod:
    """Return the pod of one replica, from its template."""
    template, container = replicas.template["spec"], replicas.container
    limits = (container.get("resources") or {}).get("limits") or {}
    mounted = {mount.get("name") for mount in container.get("volumeMounts") or []}
    volumes = [volume for volume in template.get("volumes") or [] if volume["name"] in mounted]
    grace = template.get("terminationGracePeriodSeconds")
    return Pod(
        name=name,
        role=role,
        index=index,
        uid=uuid.uuid4().hex[:12],
        image=container["image"],
        command=tuple(container.get("command") or ()),
        arguments=tuple(container.get("args") or ()),
        working_directory=container.get("workingDir"),
        environment=tuple((one["name"], one.get("value") or "") for one in container.get("env") or []),
        tf_config=tf_config,
        claims={
            one["name"]: one["persistentVolumeClaim"]["claimName"]
            for one in volumes
            if one.get("persistentVolumeClaim")
        },
        scratch=tuple(one["name"] for one in volumes if not one.get("persistentVolumeClaim")),
        restart_policy=replicas.pod_restart_policy,
        grace_seconds=options.grace_seconds if grace is None else float(grace),
        memory_bytes=quantity(limits.get("memory")) or 0,
        gpu=any(str(key).endswith("/gpu") and str(value) not in ("0", "") for key, value in limits.items()),
        message_from_log=container.get("terminationMessagePolicy") == "FallbackToLogsOnError",
    )


def expand(word: str, variables: Mapping[str, str]) -> str:
    """Replace `$(NAME)` as Kubernetes does: `$$` is one `$`, unknown names stay as they are."""

    def known(match: re.Match[str]) -> str:
        return "$" if match[1] == "$" else variables.get(match[2], match[0])

    return _REFERENCE.sub(known, word)


class RunningPod:
    """One pod of this machine, made or adopted."""

    def __init__(self, folder: Path, log: Path, pod: Pod, node: Node) -> None:
        self.folder, self.log, self.pod, self._node = folder, log, pod, node
        self.runs = sum(1 for one in folders(folder) if one.name.isdigit())
        self.ended: dict[str, Any] | None = None
        """Status of the newest run; None while it runs or before the first."""
        self.begun = False
        """Whether a container ever started."""
        self.lost = False
        """Whether the shim died without a word: nothing is known of the container, except that it is over."""
        self.gone = False
        """Whether the pod was deleted and nothing of it runs any more."""
        self.waiting = ("ContainerCreating", "")
        """Why no container runs, one word and a sentence."""
        self._process: subprocess.Popen[bytes] | None = None
        self._asked = False

    @classmethod
    def create(cls, folder: Path, log: Path, pod: Pod, node: Node) -> "RunningPod":
        """Make a new pod; its container starts with the first poll."""
        folder.mkdir(parents=True)
        write_json(folder / "pod.json", {**asdict(pod), "deleted_at": text(pod.deleted_at)})
        return cls(folder, log, pod, node)

    @classmethod
    def adopt(cls, folder: Path, log: Path, node: Node) -> "RunningPod | None":
        """Take over a pod that another engine made; None for a folder that never became one."""
        values = read_json(folder / "pod.json")
        if values is None:
            shutil.rmtree(folder, ignore_errors=True)
            return None
        for key in ("command", "arguments", "scratch"):
            values[key] = tuple(values[key])
        values["environment"] = tuple((name, value) for name, value in values["environment"])
        values["deleted_at"] = instant(values["deleted_at"])
        pod = cls(folder, log, Pod(**values), node)
        pod.begun = any((one / "process.json").exists() or (one / "status.json").exists() for one in folders(folder))
        return pod

    @property
    def _run(self) -> Path:
        return self.folder / str(self.runs - 1)

    @property
    def active(self) -> bool:
        """Whether a container runs, or is about to."""
        return self.runs > 0 and self.ended is None

    @property
    def phase(self) -> PodPhase:
        """The pod's phase, as a kubelet would say it."""
        if not self.begun:
            return "Pending"
        if self.ended is None or self._restarts():
            return "Running"
        return "Succeeded" if self.ended["exit_code"] == 0 else "Failed"

    def _restarts(self) -> bool:
        """Say whether the pod starts its ended container again."""
        assert self.ended is not None
        policy = self.pod.restart_policy
        return policy == "Always" or (policy == "OnFailure" and self.ended["exit_code"] != 0)

    @property
    def message(self) -> str:
        """The termination message of the newest run that ended."""
        if self.ended is None:
            return ""
        message = str(self.ended["message"])
        return (
            last_words(self.log) if not message and self.pod.message_from_log and self.ended["exit_code"] else message
        )

    def view(self) -> PodView:
        """Return what the controller sees."""
        phase = self.phase
        code = self.ended["exit_code"] if self.ended is not None and phase in ("Succeeded", "Failed") else None
        return PodView(
            name=self.pod.name,
            role=self.pod.role,
            index=self.pod.index,
            phase=phase,
            exit_code=code,
            restarts=max(self.runs - 1, 0),
            terminating=self.pod.deleted_at is not None,
        )

    def poll(self, now: datetime) -> None:
        """Look at the pod once and do what is due; never waits."""
        if self.active:
            self._look()
        if self.pod.deleted_at is not None:
            self._end(now, self.pod.deleted_at)
        elif not self.lost and (self.runs == 0 or (self.ended is not None and self._restarts())):
            self._start_when_due(now)

    def delete(self, now: datetime) -> None:
        """Ask for the pod's end; it is `gone` after some polls."""
        if self.pod.deleted_at is None:
            self.pod = replace(self.pod, deleted_at=now)
            write_json(self.folder / "pod.json", {**asdict(self.pod), "deleted_at": text(now)})

    # --- the newest run -----------------------------------------------------------------------------------------------

    def _look(self) -> None:
        """Notice that the newest run started, ended or was lost."""
        over = self._process is not None and self._process.poll() is not None
        self.begun = self.begun or (self._run / "process.json").exists()
        status = read_json(self._run / "status.json")
        if status is None and (self._process is None or over) and not held(self._run / "lock"):
            status = self._give_up()
        if status is not None:
            if self._process is not None:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(_EXIT_SECONDS)
            self.ended, self.begun = status, True
            self.lost = bool(status.get("lost"))

    def _give_up(self) -> dict[str, Any] | None:
        """Declare the newest run lost; None when its shim is alive after all, which the lock decides."""
        lock = Lock(self._run / "lock")
        if not lock.take():
            return None
        try:
            status = read_json(self._run / "status.json")
            if status is None:
                status = {"exit_code": 128 + signal.SIGKILL, "reason": "Lost", "message": "", "message_cut": False}
                status |= {"lost": True, "terminated": False, "started_at": None, "finished_at": None}
                write_json(self._run / "status.json", status)
                kill_leftovers(self._run)
        finally:
            lock.release()
        return status

    def _end(self, now: datetime, asked: datetime) -> None:
        """Bring a deleted pod to its end."""
        if not self.active:
            if self._process is not None and self._process.poll() is None:
                return  # the shim has written its status and is about to exit
            shutil.rmtree(self.folder, ignore_errors=True)
            self.gone = True
            return
        process = read_json(self._run / "shim.json")
        if process is None or not held(self._run / "lock"):
            return
        with contextlib.suppress(ProcessLookupError):
            if not self._asked:
                self._asked = True
                os.kill(process["pid"], signal.SIGTERM)
            elif now > asked + timedelta(seconds=self.pod.grace_seconds + KILL_MARGIN_SECONDS):
                os.kill(process["pid"], signal.SIGKILL)

    # --- a new run ----------------------------------------------------------------------------------------------------

    def _start_when_due(self, now: datetime) -> None:
        if self.ended is not None:
            finished = instant(self.ended["finished_at"]) or now
            started = instant(self.ended["started_at"]) or finished
            steady = (finished - started).total_seconds() >= STEADY_SECONDS
            self.waiting = ("CrashLoopBackOff", f"container ended with {self.ended['exit_code']}, restart pending")
            if not steady and now < finished + self._node.options.pause(self.runs):
                return
        unknown = sorted(set(self.pod.claims.values()) - set(self._node.claims))
        if unknown:
            self.waiting = ("Unschedulable", f'persistentvolumeclaim "{unknown[0]}" not found')
            return
        content = self._node.puller.get(self.pod.image)
        if isinstance(content, Pulling):
            self.waiting = (content.reason, content.message)
            return
        try:
            self._start(content)
        except InvalidInput as error:
            self.waiting = ("CreateContainerConfigError", str(error))

    def _start(self, content: ImageContent) -> None:
        folder = self.folder / str(self.runs)
        source = _inside(content.root, self.pod.working_directory or content.working_directory)
        environment = self._environment(content, folder)
        words = (*(self.pod.command or content.entrypoint), *self.pod.arguments)
        words = tuple(expand(word, environment) for word in words)
        if not words:
            raise InvalidInput(f"neither the container nor its image {self.pod.image} says what to run")
        if words[0] in _PYTHON:
            words = (self._node.options.python, *words[1:])
        folder.mkdir()
        run = {
            "command": words,
            "environment": environment,
            "source": str(source),
            "log": str(self.log),
            "log_bytes": self._node.options.log_bytes,
            "grace_seconds": self.pod.grace_seconds,
            "memory_bytes": self.pod.memory_bytes,
            "number": self.runs,
        }
        write_json(folder / "run.json", run)
        self._process = start_shim(folder)
        self.runs += 1
        self.ended = None
        self.waiting = ("ContainerCreating", "")

    def _environment(self, content: ImageContent, folder: Path) -> dict[str, str]:
        """Return the program's whole environment."""
        mounts = {claim: str(self._node.claims[claim]) for claim in self.pod.claims.values()}
        for volume in self.pod.scratch:
            path = self.folder / f"volume-{volume}"
            path.mkdir(exist_ok=True)
            mounts.setdefault(volume, str(path))
        variables = {name: value for name, value in content.environment.items() if name != "PATH"}
        variables |= {
            "PATH": f"{Path(self._node.options.python).parent}:/usr/local/bin:/usr/bin:/bin",
            "HOME": str(folder / "home"),
            "TMPDIR": str(folder / "tmp"),
            "LANG": "C.UTF-8",
        }
        if not self.pod.gpu:
            variables["CUDA_VISIBLE_DEVICES"] = "-1"
        own = {MOUNTS_VARIABLE: json.dumps(mounts), TERMINATION_VARIABLE: str(folder / "termination-log")}
        if self.pod.tf_config:
            own["TF_CONFIG"] = self.pod.tf_config
        for name, value in self.pod.environment:
            variables[name] = expand(value, variables)
        return variables | own


def start_shim(folder: Path) -> subprocess.Popen[bytes]:
    """Start the shim of a run in a session of its own, without this process's environment."""
    with (folder / "shim.err").open("wb") as errors:
        return subprocess.Popen(
            [sys.executable, "-I", "-S", shim.__file__, str(folder)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            start_new_session=True,
            env={"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"},
            cwd=folder,
        )


def kill_leftovers(run: Path) -> None:
    """End what a lost shim left behind: every process whose environment names its run."""
    mark = f"{TERMINATION_VARIABLE}={run}/".encode()
    for _ in range(3):
        found = [pid for pid in _processes() if mark in _environment_of(pid)]
        for pid in found:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        if not found:
            return


def _processes() -> list[int]:
    return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]


def _environment_of(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""


def _inside(root: Path, directory: str) -> Path:
    """Return a directory of an image on this machine; one that leaves the image is refused."""
    path = root.joinpath(*PurePosixPath(directory).parts[1 if directory.startswith("/") else 0 :]).resolve()
    if not path.is_relative_to(root.resolve()):
        raise InvalidInput(f"working directory {directory!r:.120} leaves the image")
    return path
