"""Following a training: what its pods write, while they write it, until it is over."""

from collections.abc import Callable, Mapping, Sequence

from mlgitops.app.context import World, look
from mlgitops.core.manifest.fields import TRAINING
from mlgitops.core.names import job_name
from mlgitops.core.release import Release, ReleasePhase
from mlgitops.ports.cluster import LogPart, left_out

LOOK_SECONDS = 1.0
TRAINS = (ReleasePhase.SUBMITTED, ReleasePhase.QUEUED, ReleasePhase.TRAINING)
Tell = Callable[[str, bytes], None]
"""Told a pod's name and what it wrote next."""


def follow(world: World, model: str, name: str, tell: Tell) -> Release:
    """Tell what a training's pods write until the training is over; returns the release as it then is.

    Args:
        world: The outside world.
        model: The model.
        name: The release.
        tell: Told every byte once, in order for each pod, with a note where some were not kept.

    Raises:
        NotFound: There is no such release.
        Unavailable: Nobody runs the training now, so it would be followed for ever.
    """
    read: dict[str, int] = {}
    phase = None
    while True:
        release = look(world).ledger.release(model, name)
        if release.phase in (ReleasePhase.SUBMITTED, ReleasePhase.QUEUED) and release.phase is not phase:
            world.observer.note(f"release {name} is {release.phase}: its training has not started")
        phase = release.phase
        # The release first: whatever was written before it moved on is read after it was seen to.
        _read(world.cluster.log_parts(TRAINING, job_name(model, name), read), read, tell)
        if phase not in TRAINS:
            return release
        world.cluster.job(TRAINING, job_name(model, name))
        world.sleep(LOOK_SECONDS)


def _read(found: Mapping[str, Sequence[LogPart]], read: dict[str, int], tell: Tell) -> None:
    for pod, parts in sorted(found.items()):
        for part in parts:
            told = left_out(part.position - read.get(pod, 0)) + part.data
            read[pod] = part.position + len(part.data)
            if told:
                tell(pod, told)
