"""The write protocol as a small model: two reconcilers, a rollback and a revert by people, and death anywhere.

One model in one environment. Rollout 0 is last-good, rollout 1 serves, and automation may bring rollout 2 out. What the
model leaves out moves no traffic: gates, waiting, analysis. Each atomic step is one call of the repository's port.
"""

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple


class Phase(StrEnum):
    """Where a rollout is."""

    NONE = "none"
    PROPOSED = "proposed"
    STEP = "step"
    LIVE = "live"
    RETIRED = "retired"
    BACK = "rolling back"
    OFF = "off"


class Call(StrEnum):
    """One call of the repository's port."""

    READ_MAIN = "read main"
    READ_LEDGER = "read ledger"
    PUSH_LEDGER = "push ledger"
    PUSH_MAIN = "push main"


@dataclass(frozen=True, kw_only=True)
class Protocol:
    """What the protocol is made of; each part can be taken out to see what it is for."""

    main_first: bool = True
    """`main` is read before the ledger."""
    generation: bool = True
    """Each decision that changes what `main` must say has a number, and `main` shows it."""
    ahead: bool = True
    """A `main` that is ahead of the ledger stops everything: the ledger was rewound."""
    look_again: bool = True
    """Before a person's deed on `main` is concluded, `main` is read once more."""


class Shown(NamedTuple):
    """What people and engines see on `main`."""

    number: int
    stable: int
    weight: int


class Main(NamedTuple):
    """The branch `main`; its commits tell one revision from another."""

    shown: Shown
    generation: int
    commits: tuple[str, ...]


class Ledger(NamedTuple):
    """The ledger; its decisions tell one revision from another."""

    last: int
    one: Phase
    two: Phase
    held: bool
    generation: int
    projections: tuple[Shown, ...]
    decisions: tuple[str, ...]


class Actor(NamedTuple):
    """A process: the call it makes next, and what it keeps in memory until it dies."""

    next: Call
    main: Main | None = None
    ledger: Ledger | None = None
    decided: Ledger | None = None
    written: Main | None = None
    calls: tuple[Call, ...] = ()


class State(NamedTuple):
    """Everything."""

    main: Main
    ledger: Ledger
    actors: tuple[Actor, Actor, Actor]
    """Two reconcilers, and the command `rollback`."""
    chosen: int | None = None
    """The rollout that the person wants off."""
    finished: int | None = None
    """How many commits `main` had when the command `rollback` came to its end; None before that."""
    reverted: bool = False
    alarm: bool = False
    """Somebody was told that the ledger was rewound."""


PERSON = 2
NAMES = ("reconciler A", "reconciler B", "rollback")
BEGIN = Shown(1, 1, 0)
Trace = tuple[str, ...]
Word = tuple[Call, ...]


class _Rewound(Exception):
    """`main` is ahead of the ledger."""


def idle(protocol: Protocol) -> Actor:
    """Return a process that knows nothing."""
    return Actor(Call.READ_MAIN if protocol.main_first else Call.READ_LEDGER)


def first_state(protocol: Protocol) -> State:
    """Return rollout 1 serving everything, and rollout 2 to come."""
    ledger = Ledger(1, Phase.LIVE, Phase.NONE, False, 1, (BEGIN, BEGIN), ())
    nobody = idle(protocol)
    return State(Main(BEGIN, 1, ()), ledger, (nobody, nobody, nobody))


def desired(ledger: Ledger) -> Shown:
    """Return what `main` must say."""
    serving = 1 if ledger.one in {Phase.LIVE, Phase.RETIRED} else 0
    match ledger.two:
        case Phase.PROPOSED:
            return Shown(2, serving, 0)
        case Phase.STEP:
            return Shown(2, serving, 10)
        case Phase.LIVE:
            return Shown(2, 2, 0)
        case _:
            return Shown(serving, serving, 0)


# What a process decides, and what it then shows.


def decided(protocol: Protocol, main: Main, ledger: Ledger, chosen: int | None) -> tuple[Ledger, bool]:
    """Return the ledger after the next decision, the same for none; and whether it rests on a person's deed."""
    if protocol.ahead and (_generation(protocol, main, ledger) > ledger.generation or main.shown.number > 2):
        raise _Rewound
    answered, deed = _answered(protocol, main, ledger, Phase.PROPOSED if chosen is None else Phase.OFF)
    if chosen is not None:
        return _rolled_back(answered, chosen), deed
    if deed:
        return answered, True
    if _behind(protocol, main, ledger):
        return ledger, False
    return _moved(ledger), False


def _answered(protocol: Protocol, main: Main, ledger: Ledger, phase: Phase) -> tuple[Ledger, bool]:
    """Return the ledger after what a person did on `main`; without the generation, only a promotion can be told."""
    if main.shown.number > ledger.last:
        return _taken_up(main, ledger, phase), True
    if not protocol.generation:
        return ledger, False
    expected = ledger.projections[min(main.generation, ledger.generation)]
    if main.shown.number == expected.number or ledger.two not in {Phase.PROPOSED, Phase.STEP, Phase.LIVE}:
        return ledger, False
    after = Phase.OFF if ledger.two is Phase.PROPOSED else Phase.BACK
    return _settled(ledger._replace(two=after, held=ledger.held or after is Phase.BACK), "reverted 2"), True


def _generation(protocol: Protocol, main: Main, ledger: Ledger) -> int:
    return main.generation if protocol.generation else ledger.generation


def _behind(protocol: Protocol, main: Main, ledger: Ledger) -> bool:
    """Say whether `main` does not show the last decision yet."""
    if protocol.generation:
        return main.generation < ledger.generation
    return main.shown != desired(ledger)


def _taken_up(main: Main, ledger: Ledger, phase: Phase) -> Ledger:
    """Record a promotion on `main`: the projections say it as well, as `main` does."""
    known = list(ledger.projections)
    for number in {min(main.generation, ledger.generation), ledger.generation}:
        known[number] = known[number]._replace(number=main.shown.number)
    word = "refused 2" if phase is Phase.OFF else "taken up 2"
    return _settled(ledger._replace(last=2, two=phase, projections=tuple(known)), word)


def _rolled_back(ledger: Ledger, chosen: int) -> Ledger:
    if chosen == 2 and ledger.two in {Phase.STEP, Phase.LIVE}:
        return _settled(ledger._replace(two=Phase.BACK, held=True), "back 2")
    if chosen == 1 and ledger.one is Phase.LIVE:
        other = {Phase.PROPOSED: Phase.OFF, Phase.STEP: Phase.BACK}.get(ledger.two, ledger.two)
        return _settled(ledger._replace(one=Phase.BACK, two=other, held=True), "back 1")
    return ledger


def _moved(ledger: Ledger) -> Ledger:
    """Return the ledger after automation's next move; what leaves waits for nothing."""
    if ledger.two is Phase.BACK:
        one = Phase.LIVE if ledger.one is Phase.RETIRED else ledger.one
        return _settled(ledger._replace(one=one, two=Phase.OFF), "off 2")
    if ledger.one is Phase.BACK:
        return _settled(ledger._replace(one=Phase.OFF), "off 1")
    if ledger.held:
        return ledger
    if ledger.two is Phase.PROPOSED:
        return _settled(ledger._replace(two=Phase.STEP), "step 2")
    if ledger.two is Phase.STEP:
        return _settled(ledger._replace(one=Phase.RETIRED, two=Phase.LIVE), "live 2")
    return ledger


def _settled(ledger: Ledger, decision: str) -> Ledger:
    """Add a decision, with a new generation where it changes what `main` must say."""
    ledger = ledger._replace(decisions=(*ledger.decisions, decision))
    wanted = desired(ledger)
    if wanted == ledger.projections[ledger.generation]:
        return ledger
    return ledger._replace(generation=ledger.generation + 1, projections=(*ledger.projections, wanted))


def projected(protocol: Protocol, main: Main, ledger: Ledger, *, automation: bool) -> Main | None:
    """Return `main` with what it still lacks; None for nothing."""
    if main.shown.number > ledger.last:
        return None
    if _behind(protocol, main, ledger):
        name = f"generation {ledger.generation}"
        shown = ledger.generation if protocol.generation else main.generation
        return Main(desired(ledger), shown, (*main.commits, name))
    if automation and ledger.two is Phase.NONE and not ledger.held and ledger.one is Phase.LIVE:
        return Main(main.shown._replace(number=2), main.generation, (*main.commits, "promotion 2"))
    return None


# What happens next.


def successors(protocol: Protocol, state: State) -> Iterator[tuple[str, State]]:
    """Yield everything that may happen next, in words."""
    for number, actor in enumerate(state.actors):
        if number == PERSON and state.finished is not None:
            continue
        yield f"{NAMES[number]}: {actor.next}", stepped(protocol, state, number)
        if actor != idle(protocol):
            yield f"{NAMES[number]}: dies", _with(state, number, idle(protocol))
    main = state.main
    # Git takes a promotion back as long as what came after left its lines alone.
    if not state.reverted and main.shown.number == 2 and main.shown.stable and state.ledger.last == 2:
        undone = Main(main.shown._replace(number=1), main.generation, (*main.commits, "revert"))
        yield "a person: git revert of the promotion", state._replace(main=undone, reverted=True)


def stepped(protocol: Protocol, state: State, number: int) -> State:
    """Let one process make its next call; who finds that somebody was faster begins anew."""
    actor = state.actors[number]
    if _lost(actor, state):
        return _with(state, number, idle(protocol))
    actor = actor._replace(calls=(*actor.calls, actor.next))
    match actor.next:
        case Call.READ_MAIN if actor.decided is not None:
            return _with(state, number, actor._replace(next=Call.PUSH_LEDGER))
        case Call.READ_MAIN:
            actor = actor._replace(main=state.main, next=Call.READ_LEDGER)
        case Call.READ_LEDGER:
            actor = actor._replace(ledger=state.ledger, next=Call.READ_MAIN)
        case Call.PUSH_LEDGER:
            assert actor.decided is not None
            return _show(protocol, state._replace(ledger=actor.decided), number, actor, actor.decided)
        case Call.PUSH_MAIN:
            assert actor.written is not None
            return _ended(protocol, state._replace(main=actor.written), number)
    if actor.main is None or actor.ledger is None:
        return _with(state, number, actor)
    return _decide(protocol, state, number, actor, actor.main, actor.ledger)


def _lost(actor: Actor, state: State) -> bool:
    """Say whether what a process is about to write, or to look at a second time, moved since it was read."""
    looks_again = actor.next is Call.READ_MAIN and actor.decided is not None
    main = (looks_again or actor.next is Call.PUSH_MAIN) and actor.main != state.main
    return main or ((looks_again or actor.next is Call.PUSH_LEDGER) and actor.ledger != state.ledger)


def _decide(protocol: Protocol, state: State, number: int, actor: Actor, main: Main, ledger: Ledger) -> State:
    if number == PERSON and state.chosen is None:
        return _with(state._replace(chosen=choice(ledger)), number, idle(protocol))
    try:
        after, deed = decided(protocol, main, ledger, state.chosen if number == PERSON else None)
    except _Rewound:
        return _with(state._replace(alarm=True), number, idle(protocol))
    if after == ledger:
        return _show(protocol, state, number, actor, ledger)
    following = Call.READ_MAIN if deed and protocol.look_again else Call.PUSH_LEDGER
    return _with(state, number, actor._replace(decided=after, next=following))


def _show(protocol: Protocol, state: State, number: int, actor: Actor, ledger: Ledger) -> State:
    assert actor.main is not None
    written = projected(protocol, actor.main, ledger, automation=number != PERSON)
    if written is None:
        return _ended(protocol, state, number)
    return _with(state, number, actor._replace(ledger=None, decided=None, written=written, next=Call.PUSH_MAIN))


def _ended(protocol: Protocol, state: State, number: int) -> State:
    state = _with(state, number, idle(protocol))
    return state._replace(finished=len(state.main.commits)) if number == PERSON else state


def _with(state: State, number: int, actor: Actor) -> State:
    actors = list(state.actors)
    actors[number] = actor
    return state._replace(actors=(actors[0], actors[1], actors[2]))


def without_losers(protocol: Protocol, state: State) -> State:
    """Let who can only lose begin anew at once: branches only grow, so a push on an old revision never lands."""
    for number, actor in enumerate(state.actors):
        if _lost(actor, state):
            state = _with(state, number, idle(protocol))
    return state


def choice(ledger: Ledger) -> int:
    """Return the rollout that `rollback` is about: what moves, else what serves."""
    if ledger.two in {Phase.STEP, Phase.BACK, Phase.LIVE}:
        return 2
    return 1


# What must hold.


def overtaken(state: State) -> str:
    """Say how an older promotion overtook a finished rollback; empty when none did."""
    main, ledger, chosen = state.main, state.ledger, state.chosen
    if state.finished is None or chosen is None or (ledger.one, ledger.two)[chosen - 1] not in {Phase.BACK, Phase.OFF}:
        return ""
    words = f"rollout {chosen} was rolled back, and an older promotion overtook it: "
    if "promotion 2" in main.commits[state.finished :]:
        return words + "it landed on main afterwards"
    if main.shown.weight or main.shown.stable >= chosen or main.shown.number == chosen:
        return words + f"main shows {main.shown}"
    return words + "it moves" if ledger.two in {Phase.STEP, Phase.LIVE} else ""


def doubled(state: State) -> str:
    """Say what was decided or written twice; empty for nothing."""
    for name, done in (("decision", state.ledger.decisions), ("commit", state.main.commits)):
        if len({*done}) < len(done):
            return f"a {name} was made twice: {', '.join(done)}"
    return ""


def slandered(state: State) -> str:
    """Say what a person is said to have done, or told of, that never was; empty for nothing."""
    if state.alarm:
        return "a person is told that the ledger was rewound, and it was not"
    if "reverted 2" in state.ledger.decisions and not state.reverted:
        return "a promotion was taken back in the name of a person who did nothing"
    return ""


def overwritten(state: State) -> str:
    """Say how a person's revert was written over by what was decided before it; empty when it was not."""
    commits = state.main.commits
    undone = state.reverted and state.main.shown.number == 2
    return f"a revert by hand was written over: {', '.join(commits)}" if undone else ""


def broken(state: State) -> str:
    """Say which promise a state breaks; empty for none."""
    return overtaken(state) or doubled(state) or slandered(state) or overwritten(state)


@dataclass(frozen=True, kw_only=True)
class Found:
    """What an exploration found."""

    states: frozenset[State]
    broken: str
    """The first promise that does not hold; empty when all do."""
    trace: Trace
    """A shortest way to where it does not."""
    words: frozenset[Word]
    """The calls that a process makes one after the other, from its first reading to its end."""


def explore(protocol: Protocol, promise: Callable[[State], str] = broken) -> Found:
    """Try everything that can happen in any order, breadth first, until a promise breaks."""
    start = first_state(protocol)
    reached: dict[State, tuple[str, State] | None] = {start: None}
    waiting, words = deque([start]), set[Word]()
    while waiting:
        state = waiting.popleft()
        fault = promise(state)
        if fault:
            return Found(states=frozenset(reached), broken=fault, trace=_trace(reached, state), words=frozenset(words))
        for label, after in successors(protocol, state):
            words.update(_words(protocol, label, state, after))
            following = without_losers(protocol, after)
            if following not in reached:
                reached[following] = (label, state)
                waiting.append(following)
    return Found(states=frozenset(reached), broken="", trace=(), words=frozenset(words))


def _words(protocol: Protocol, label: str, before: State, after: State) -> Iterator[Word]:
    if label.endswith("dies"):
        return
    for one, other in zip(before.actors, after.actors, strict=True):
        if one != other and other == idle(protocol):
            yield (*one.calls, one.next)


def _trace(reached: dict[State, tuple[str, State] | None], state: State) -> Trace:
    labels = []
    while (came := reached[state]) is not None:
        labels.append(came[0])
        state = came[1]
    return tuple(reversed(labels))


def alone(protocol: Protocol, state: State, number: int, calls: int = 60) -> State:
    """Let everybody die, and one process go on undisturbed until a whole look changes nothing."""
    state = state._replace(actors=(idle(protocol),) * 3)
    for _ in range(calls):
        before = state
        while True:
            state = stepped(protocol, state, number)
            if state.actors[number] == idle(protocol):
                break
        if state == before or (number == PERSON and state.finished is not None):
            return state
    raise AssertionError(f"{NAMES[number]} does not come to an end")
