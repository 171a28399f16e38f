"""The embedded cluster's engine: applies objects as a GitOps engine does, and runs the controller's passes."""

import dataclasses
import json
import shutil
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from mlgitops.adapters.cluster.admission import parse_job
from mlgitops.adapters.cluster.embedded import ENGINE_LOCK, SERVICE, SYNC_FILE
from mlgitops.adapters.cluster.images import Puller, Resolve
from mlgitops.adapters.cluster.network import free_ports
from mlgitops.adapters.cluster.objects import findings, identity, kinds_of
from mlgitops.adapters.cluster.observe import capture, observe
from mlgitops.adapters.cluster.pods import POD_RESTART_POLICIES, Node, Options, RunningPod, describe
from mlgitops.adapters.cluster.records import Record, document, restore, status_document
from mlgitops.adapters.cluster.state import Lock, folders, instant, newest, read_json, text, write_json
from mlgitops.adapters.cluster.tfjob import Advance, TrainingJob, advance, created, pod_name, tf_config
from mlgitops.core.errors import Conflict, InvalidInput, Problem, Unavailable
from mlgitops.core.names import parse_name
from mlgitops.ports.clock import Clock

KEPT_JOBS: Final = 200
"""Deleted jobs per environment whose observation and logs are kept; the oldest go first."""
_LOCK_SECONDS: Final = 1.0
_DRAIN_MARGIN_SECONDS: Final = 5.0


class ClusterController:
    """The engine of one embedded cluster; one process at a time may be it, and one thread at a time may call it.

    Every decision is on disk before it is acted on, and containers run under shims of their own. So an engine may be
    killed at any moment: the next one on the same `home` finds its jobs, and goes on with containers that still run.
    """

    def __init__(
        self,
        home: Path,
        *,
        image: Resolve,
        clock: Clock,
        claims: Mapping[str, Path] | None = None,
        options: Options | None = None,
    ) -> None:
        """Become the engine of the cluster in `home`.

        Args:
            home: Folder for everything the cluster knows; made when needed.
            image: Returns the content of an image by its reference.
            clock: Says what time it is.
            claims: Folder of each volume claim that pods may mount.
            options: How this machine runs pods; None for the defaults.

        Raises:
            Conflict: Another engine runs on `home`.
        """
        home.mkdir(parents=True, exist_ok=True)
        self.home, self._clock = home.resolve(), clock
        self._lock = Lock(self.home / ENGINE_LOCK)
        deadline = time.monotonic() + _LOCK_SECONDS
        while not self._lock.take():
            if time.monotonic() > deadline:
                raise Conflict(f"engine of {home}", None, "another engine", "one process at a time runs a cluster")
            time.sleep(0.05)
        self._options = options or Options()
        self._node = Node(options=self._options, puller=Puller(image), claims=dict(claims or {}))
        self._records: list[Record] = []
        self.changes = 0
        """Grows whenever a job is seen otherwise than before; who looks need not look before it does."""
        for parent in (one for environment in folders(self.home / "jobs") for one in folders(environment)):
            for folder in folders(parent):
                self._load(folder)

    # --- the GitOps engine --------------------------------------------------------------------------------------------

    def apply(
        self, environment: str, revision: str, objects: Sequence[Mapping[str, Any]], *, prune: bool = True
    ) -> None:
        """Make the cluster know exactly these objects of an environment.

        What is not there is made; what is there gets the new specification, which changes nothing for a finished job;
        what is no longer listed is deleted: its pods end, its logs and its last observation stay. An object that is
        refused keeps what is there of it, and does not hold up the others.

        Args:
            environment: Name of the environment, like `training`.
            revision: The commit of `main` that the objects are from.
            objects: The objects, built (see `kustomize.build`).
            prune: False when some objects could not be built, so that absence means nothing.

        Raises:
            InvalidInput: An object was refused: each with its reasons; `applied` says so, too.
        """
        now, problems, seen = self._clock.now(), list[Problem](), set[str]()
        for manifest in objects:
            kind, name = identity(manifest)
            found = [one.problem(f"{kind}/{name}") for one in findings(manifest, kinds_of(environment), None)]
            if name in seen:
                found.append(Problem(message="is there twice", path=f"{kind}/{name}"))
            seen.add(name)
            if not found:
                found = self._apply_one(environment, name, manifest, now)
            problems += found
        for record in self._of(environment) if prune else ():
            if record.job.name not in seen:
                self._delete(record, now, "it was removed from the environment repository")
        if problems:
            error = InvalidInput(problems)
            self.record_applied(environment, revision, str(error))
            raise error
        self.record_applied(environment, revision)

    def _apply_one(self, environment: str, name: str, manifest: Mapping[str, Any], now: datetime) -> list[Problem]:
        """Apply one object; returns why it was refused."""
        path = f"TFJob/{name}"
        try:
            job = parse_job(manifest, path)
        except InvalidInput as error:
            return list(error.problems)
        record = next((one for one in self._of(environment) if one.job.name == name), None)
        if record is None:
            self._add(environment, job, manifest, now)
        elif record.job.managed_by != job.managed_by:
            return [Problem(message="is immutable", path=path, pointer="spec.runPolicy.managedBy")]
        elif record.manifest != manifest:
            record.job, record.manifest = job, manifest
            self._write_object(record)
        return []

    def record_applied(self, environment: str, revision: str, error: str = "") -> None:
        """Say that an environment is at a commit, or with `error` why that commit is not applied."""
        path = self.home / "applied" / f"{parse_name(environment)}.json"
        path.parent.mkdir(exist_ok=True)
        before = read_json(path) or {}
        applied = before.get("revision") if error else revision
        fresh = {"revision": applied, "error": error, "newest": revision}
        if fresh != before:
            write_json(path, fresh)

    def take_sync(self) -> bool:
        """Say whether somebody asked to look at `main` now, and take the wish."""
        try:
            (self.home / SYNC_FILE).unlink()
        except FileNotFoundError:
            return False
        return True

    # --- the controller -----------------------------------------------------------------------------------------------

    def tick(self) -> None:
        """Look at every job once and do what is due; never waits for anything.

        Raises:
            Unavailable: This machine could not do it for a job (a full disk); the others had their turn.
        """
        trouble: OSError | None = None
        for record in list(self._records):
            try:
                self._pass(record, self._clock.now())
            except OSError as error:
                trouble = error
        if trouble is not None:
            raise Unavailable(SERVICE, str(trouble)) from trouble

    @property
    def busy(self) -> bool:
        """Whether pods exist, or jobs that have no outcome."""
        return any(record.pods or not record.status.finished for record in self._records)

    def status(self, environment: str, name: str) -> dict[str, Any] | None:
        """Return a job's `status` in the shape of the TFJob's own; None for an object that does not exist."""
        record = next((one for one in self._of(environment) if one.job.name == name), None)
        return None if record is None else status_document(record.status)

    def close(self, *, drain: bool = True) -> None:
        """Stop being the engine.

        Args:
            drain: End all containers, as when a node is drained: the jobs go on with new pods under the next engine,
                and nobody counts a failure. Without it containers run on, and the next engine adopts them.
        """
        if drain:
            self._drain()
        self._node.puller.close()
        self._lock.release()

    def _pass(self, record: Record, now: datetime) -> None:
        for pod in record.pods:
            pod.poll(now)
        self._note_lost(record, now)
        self._forget_gone(record)
        if record.deleted_at is not None:
            if not record.pods:
                shutil.rmtree(record.folder / "pods", ignore_errors=True)
                self._records.remove(record)
            return
        step = advance(record.job, record.status, [pod.view() for pod in record.pods], now)
        finished = step.status.finished and not record.status.finished
        record.status = step.status
        if finished:
            record.outcome = capture(record)
        self._write(record)
        self._act(record, step, now)
        if step.expired:
            self._delete(record, now, "its time to live after its end is over")

    def _act(self, record: Record, step: Advance, now: datetime) -> None:
        for pod in record.pods:
            if pod.pod.name in step.delete:
                pod.delete(now)
                pod.poll(now)
                again = step.status.recreations.get(pod.pod.name, 0)
                record.not_before[pod.pod.name] = now + self._options.pause(again)
        self._forget_gone(record)
        for role, index in step.create:
            self._create(record, role, index, now)

    def _create(self, record: Record, role: str, index: int, now: datetime) -> None:
        """Make one pod, unless it must wait."""
        name, replicas = pod_name(record.job.name, role, index), record.job.roles[role]
        if now < record.not_before.get(name, now) or self._predecessor_runs(record):
            return
        if replicas.pod_restart_policy not in POD_RESTART_POLICIES:
            record.create_error = f"pod {name}: restartPolicy {replicas.restart_policy!r:.40} is not supported"
            return
        record.create_error, config = "", ""
        if record.job.distributed:
            self._allot_ports(record)
            config = tf_config(record.job, role, index, record.ports)
        pod = describe(replicas, name=name, role=role, index=index, tf_config=config, options=self._options)
        folder = record.folder / "pods" / name / pod.uid
        record.pods.append(RunningPod.create(folder, record.folder / "logs" / name, pod, self._node))

    def _allot_ports(self, record: Record) -> None:
        """Give every replica a loopback port of its own; they stay while any of the job's pods exists."""
        job = record.job
        names = [pod_name(job.name, role, index) for role, one in job.roles.items() for index in range(one.count)]
        if not record.pods:
            record.ports = {}
        missing = [name for name in names if name not in record.ports]
        taken = {port for one in self._records for port in one.ports.values()}
        record.ports |= dict(zip(missing, free_ports(len(missing), taken), strict=True))
        self._write(record)

    def _predecessor_runs(self, record: Record) -> bool:
        """Say whether pods of the object's earlier incarnation, which have the same names, are not gone yet."""
        return any(
            one.pods and one is not record and one.environment == record.environment and one.job.name == record.job.name
            for one in self._records
        )

    def _note_lost(self, record: Record, now: datetime) -> None:
        """Treat pods whose shim died as deleted ones: the controller makes them again."""
        for pod in record.pods:
            if pod.lost and pod.pod.deleted_at is None:
                again = record.status.recreations.get(pod.pod.name, 0) + 1
                recreations = {**record.status.recreations, pod.pod.name: again}
                record.status = dataclasses.replace(record.status, recreations=recreations, starting_since=now)
                record.not_before[pod.pod.name] = now + self._options.pause(again)
                pod.delete(now)
                pod.poll(now)

    def _forget_gone(self, record: Record) -> None:
        record.carried_restarts += sum(max(pod.runs - 1, 0) for pod in record.pods if pod.gone)
        record.pods = [pod for pod in record.pods if not pod.gone]

    def _drain(self) -> None:
        """End every container, and wait until they have ended."""
        now, longest = self._clock.now(), 0.0
        for pod in (pod for record in self._records for pod in record.pods):
            if pod.active or not pod.begun:
                pod.delete(now)
                longest = max(longest, pod.pod.grace_seconds)
        deadline = time.monotonic() + longest + _DRAIN_MARGIN_SECONDS
        while time.monotonic() < deadline:
            for record in self._records:
                for pod in record.pods:
                    pod.poll(self._clock.now())
                self._forget_gone(record)
            if not any(pod.pod.deleted_at for record in self._records for pod in record.pods):
                break
            time.sleep(0.02)
        for record in self._records:
            self._write(record)

    # --- objects ------------------------------------------------------------------------------------------------------

    def _of(self, environment: str) -> list[Record]:
        """Return the objects of an environment that are not deleted."""
        return [one for one in self._records if one.environment == environment and one.deleted_at is None]

    def _add(self, environment: str, job: TrainingJob, manifest: Mapping[str, Any], now: datetime) -> None:
        parent = self.home / "jobs" / environment / job.name
        before = newest(parent)
        number = 0 if before is None else int(before.name) + 1
        for old in folders(parent):
            if (
                old.name.isdigit()
                and int(old.name) < number - 1
                and not any(one.folder == old for one in self._records)
            ):
                shutil.rmtree(old, ignore_errors=True)
        record = Record(
            environment=environment, folder=parent / str(number), manifest=manifest, job=job, applied_at=now
        )
        record.status = created(job, now)
        record.folder.mkdir(parents=True, exist_ok=True)
        self._records.append(record)
        self._write(record)
        self._write_object(record)

    def _delete(self, record: Record, now: datetime, because: str) -> None:
        """Delete an object: its pods go with it, what was seen of it stays."""
        record.deleted_at, record.deleted_because = now, because
        self._write_object(record)
        self._write(record)
        for pod in record.pods:
            pod.delete(now)
        self._forget_old(record.environment)

    def _forget_old(self, environment: str) -> None:
        """Keep the newest deleted jobs, and all that exist."""
        known = {one.folder.parent.name for one in self._records if one.environment == environment}
        deleted = [one for one in folders(self.home / "jobs" / environment) if one.name not in known]
        for folder in sorted(deleted, key=lambda one: one.stat().st_mtime)[: max(len(deleted) - KEPT_JOBS, 0)]:
            shutil.rmtree(folder, ignore_errors=True)

    def _load(self, folder: Path) -> None:
        """Take over an object: one that exists, or a deleted one whose pods may not be gone yet."""
        values = read_json(folder / "object.json")
        if values is None or (values["deleted_at"] and not (folder / "pods").exists()):
            return
        now = self._clock.now()
        record = Record(
            environment=folder.parent.parent.name,
            folder=folder,
            manifest=values["manifest"],
            job=parse_job(values["manifest"]),
            applied_at=instant(values["applied_at"]) or now,
            deleted_at=instant(values["deleted_at"]),
            deleted_because=values["deleted_because"],
        )
        restore(record, read_json(folder / "status.json") or document(record, {}))
        for path in (one for name in folders(folder / "pods") for one in folders(name)):
            pod = RunningPod.adopt(path, folder / "logs" / path.parent.name, self._node)
            if pod is not None:
                record.pods.append(pod)
                if record.deleted_at is not None:
                    pod.delete(record.deleted_at)
        if record.status.started_at is not None:
            record.status = dataclasses.replace(record.status, starting_since=now)
        self._records.append(record)

    def _write_object(self, record: Record) -> None:
        values = {
            "manifest": record.manifest,
            "applied_at": text(record.applied_at),
            "deleted_at": text(record.deleted_at),
            "deleted_because": record.deleted_because,
        }
        write_json(record.folder / "object.json", values)

    def _write(self, record: Record) -> None:
        """Write a job's status when it changed."""
        values = document(record, observe(record))
        fresh = json.dumps(values, sort_keys=True)
        if fresh != record.written:
            write_json(record.folder / "status.json", values)
            self.changes += 1
            record.written = fresh
