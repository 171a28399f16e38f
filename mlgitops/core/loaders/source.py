"""One configuration file while it is checked: its document, and every problem found so far."""

import math
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from mlgitops.core.configuration import Gate
from mlgitops.core.errors import InvalidInput, Problem
from mlgitops.core.evaluation.costs import COSTS
from mlgitops.core.manifest.read import Document, pointer_text, read_document
from mlgitops.core.manifest.validate import Path, problem_at, schema_problems

LONGEST_PATH: Final = 1000
RESERVED_VARIABLES: Final = frozenset(
    {
        *("TF_CONFIG", "PATH", "HOME", "TMPDIR", "LANG", "SHELL", "ENV", "BASH_ENV", "IFS"),
        *("PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP", "PYTHONINSPECT", "LD_PRELOAD", "LD_LIBRARY_PATH", "LD_AUDIT"),
        *("DYLD_INSERT_LIBRARIES", "DYLD_LIBRARY_PATH", "GLIBC_TUNABLES", "KUBERNETES_SERVICE_HOST"),
    }
)
"""Variables that the engine, the interpreter or the loader of programs reads."""
OWN_PREFIX: Final = "MLGITOPS_"


class Source:
    """A document that has been compared with its schema; `refuse` adds what the schema cannot say."""

    def __init__(self, data: bytes, path: str, name: str) -> None:
        self.document: Document = read_document(data, path)
        self.problems: list[Problem] = schema_problems(self.document, name)
        self._faulty = [one.pointer or "" for one in self.problems]

    def sound(self, *pointer: str | int) -> Any:
        """Return the value at `pointer` when it is there and fits the schema; else None.

        What does not fit has been told already; a check that goes on with it would tell it twice.
        """
        value, where = _at(self.document.value, pointer), pointer_text(pointer)
        return None if any(_inside(faulty, where) for faulty in self._faulty) else value

    def entries(self, *pointer: str | int) -> list[tuple[int, Any]]:
        """Return index and value of the sound entries of the list at `pointer`."""
        value = _at(self.document.value, pointer)
        found = [(index, self.sound(*pointer, index)) for index in range(len(value))] if isinstance(value, list) else []
        return [(index, one) for index, one in found if one is not None]

    def refuse(self, pointer: Path, message: str, mend: str | None = None) -> None:
        """Add a problem."""
        self.problems.append(problem_at(self.document, pointer, message, mend))

    def finish(self) -> Mapping[str, Any]:
        """Return the document's value.

        Raises:
            InvalidInput: There were problems; all of them, in the order of the file.
        """
        if self.problems:
            raise InvalidInput(sorted(self.problems, key=lambda one: (one.line or 0, one.column or 0)))
        value: Mapping[str, Any] = self.document.value
        return value

    def check_unique(self, entries: Sequence[tuple[Path, str]], what: str) -> None:
        """Refuse a name that an earlier entry has."""
        first: dict[str, Path] = {}
        for pointer, name in entries:
            if name in first:
                line = self.document.position(first[name])[0]
                self.refuse(pointer, f"{what} {name!r:.60} is on line {line} already", "give each its own")
            first.setdefault(name, pointer)

    def check_path(self, pointer: Path, *, ending: str = "", whole: bool = False) -> None:
        """Refuse a path that could leave the repository, or that has the wrong ending."""
        text = self.sound(*pointer)
        if not isinstance(text, str) or (whole and text == "."):
            return
        fault = path_fault(text)
        if fault:
            self.refuse(
                pointer, f"path {text!r:.60} {fault}", "write it from the repository's root, like data/train.npz"
            )
        elif ending and not text.endswith(ending):
            self.refuse(pointer, f"path {text!r:.60} does not end in {ending}", f"name a file that ends in {ending}")

    def check_gates(self, pointer: Path, slices: Sequence[str] | None = None) -> None:
        """Refuse gates without a limit, with limits that exclude each other, or for a slice that is not there."""
        for index, gate in self.entries(*pointer):
            where = (*pointer, index)
            limits = [gate[key] for key in ("minimum", "maximum", "maximumLoss", "maximumRatio") if key in gate]
            if not limits:
                self.refuse(where, "the gate has no limit", "add minimum, maximum, maximumLoss or maximumRatio")
            if gate.get("metric") in COSTS:
                self._check_cost(where, gate)
            elif "maximumRatio" in gate:
                self.refuse((*where, "maximumRatio"), "only a cost is compared by ratio", "write maximumLoss")
            if not all(math.isfinite(one) for one in limits):
                self.refuse(where, "a limit is not a finite number", "write a number")
            if gate.get("minimum", -math.inf) > gate.get("maximum", math.inf):
                self.refuse((*where, "minimum"), "minimum is more than maximum: nothing passes", "swap them")
            name = gate.get("slice")
            if slices is not None and name is not None and name not in slices:
                known = f"known: {', '.join(slices)}" if slices else "declare it in evaluation.slices"
                self.refuse((*where, "slice"), f"there is no slice {name!r:.60}", known)

    def _check_cost(self, where: Path, gate: Mapping[str, Any]) -> None:
        """Refuse what makes no sense for a cost, which has neither an interval nor slices."""
        for key, mend in (("maximumLoss", "write maximumRatio"), ("slice", "a cost is one of the whole model")):
            if key in gate:
                self.refuse((*where, key), f"{gate['metric']} is a cost, and {key} is not for costs", mend)


def _at(value: Any, pointer: Path) -> Any:
    """Return what is at `pointer`, None when nothing is."""
    for step in pointer:
        try:
            value = value[step]
        except (KeyError, IndexError, TypeError):
            return None
    return value


def _inside(pointer: str, parent: str) -> bool:
    """Say whether one written pointer is another or lies below it."""
    return not parent or pointer == parent or pointer.startswith((f"{parent}.", f"{parent}["))


def path_fault(text: str) -> str | None:
    """Say why a path cannot be taken as one inside a repository; None when it can."""
    parts = text.split("/")
    faults = {
        "is absolute": text.startswith("/"),
        "leads upwards": ".." in parts,
        "starts with '-' and would be taken for an option": text.startswith("-"),
        "has a backslash or a control character": "\\" in text or not text.isprintable(),
        "has an empty part or a '.'": "" in parts[:-1] or "." in parts or text == "",
        "leads into .git": any(part.lower() == ".git" for part in parts),
        "is too long": len(text) > LONGEST_PATH,
    }
    return next((fault for fault, is_so in faults.items() if is_so), None)


def variable_fault(name: str, *, own: bool = False) -> str | None:
    """Say why an environment variable cannot be set; None when it can. `own` lets MLGITOPS_DATA… pass."""
    if name.upper() in RESERVED_VARIABLES or name.upper().startswith("LD_"):
        return f"{name} is reserved: the engine or the interpreter reads it"
    if name.upper().startswith(OWN_PREFIX) and not (own and name.startswith("MLGITOPS_DATA")):
        return f"{name} is reserved: names with {OWN_PREFIX} are set by mlgitops"
    return None


def gates(values: Sequence[Mapping[str, Any]], *, by_environment: bool = False) -> tuple[Gate, ...]:
    """Return gates as values."""
    return tuple(
        Gate(
            metric=one["metric"],
            minimum=one.get("minimum"),
            maximum=one.get("maximum"),
            maximum_loss=one.get("maximumLoss"),
            maximum_ratio=one.get("maximumRatio"),
            slice=one.get("slice"),
            measured=by_environment and not one.get("selfReported", False),
        )
        for one in values
    )


def parse_moment(text: str) -> datetime | None:
    """Return an aware moment, or None when the text is none or has no offset."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment if moment.tzinfo is not None else None
