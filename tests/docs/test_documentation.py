"""What the documentation says is so: links lead somewhere, examples load, commands exist, references are current."""

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from mlgitops.cli.main import VERBS, cli
from mlgitops.core.loading import load_environments, load_model

ROOT = Path(__file__).parent.parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
WRITTEN = [page for page in PAGES if "reference" not in page.parts]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(?<!`)\[[^\]\n]+\]\(([^)\s]+)\)")
MODEL: dict[str, Any] = {
    "apiVersion": "mlgitops.dev/v1",
    "kind": "Model",
    "metadata": {"name": "m"},
    "inputs": ["train.py"],
    "training": {"script": "train.py"},
    "evaluation": {"data": "data/evaluation.npz", "task": "classification"},
}
PLAN: dict[str, Any] = {
    "name": "standard",
    "steps": [{"weight": 10, "seconds": 600}],
    "metrics": [{"kind": "errors", "effect": 2}],
}
ENVIRONMENTS: dict[str, Any] = {
    "apiVersion": "mlgitops.dev/v1",
    "kind": "Environments",
    "environments": [{"name": "production", "plan": "standard"}],
    "plans": [PLAN],
}


def named(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks(page: Path, language: str) -> Iterator[str]:
    for found, text in FENCE.findall(page.read_text(encoding="utf-8")):
        if found == language:
            yield text


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as forges make them."""
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    found: set[str] = set()
    for heading in re.findall(r"^#+ (.+)$", text, re.MULTILINE):
        plain = re.sub(r"\[([^\]]+)\]\([^)]*\)", r"\1", heading).lower()
        found.add(re.sub(r"[^\w\- ]", "", plain).replace(" ", "-"))
    return found


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_links_lead_somewhere(page: Path) -> None:
    """Every relative link of the documentation leads to a file and a heading that exist."""
    broken = []
    for link in LINK.findall(FENCE.sub("", page.read_text(encoding="utf-8"))):
        path, _, anchor = link.partition("#")
        if "://" in path:
            continue
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    assert not broken


def test_every_page_is_reached_from_the_index() -> None:
    """Nobody has to guess a page's name: each is linked from the index or from a page that is."""
    reached, waiting = set[Path](), [ROOT / "README.md"]
    while waiting:
        page = waiting.pop()
        if page in reached or page.suffix != ".md":
            continue
        reached.add(page)
        links = (link.partition("#")[0] for link in LINK.findall(page.read_text(encoding="utf-8")))
        waiting += [(page.parent / link).resolve() for link in links if link and "://" not in link]
    assert not set(PAGES) - reached


def whole(values: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return a fragment of a configuration within the rest of a file, and which file that is."""
    if values.get("kind") in ("Model", "Environments"):
        return str(values["kind"]), values
    if values.keys() <= {"training", "evaluation", "data", "test", "inputs", "image"}:
        return "Model", {**MODEL, **values}
    if values.keys() <= {"metrics", "steps"} and not isinstance(values.get("metrics"), dict):
        return "Environments", {**ENVIRONMENTS, "plans": [{**PLAN, **values}]}
    return "Environments", {**ENVIRONMENTS, **values}


@pytest.mark.parametrize("page", [page for page in WRITTEN if [*blocks(page, "yaml")]], ids=named)
def test_configurations_load(page: Path) -> None:
    """Every configuration that the documentation shows, whole or in part, is accepted by the loaders."""
    for text in blocks(page, "yaml"):
        kind, values = whole(yaml.safe_load(text))
        data = text.encode() if "kind" in yaml.safe_load(text) else yaml.safe_dump(values).encode()
        (load_model if kind == "Model" else load_environments)(data, named(page))


def test_the_readme_shows_both_files_whole() -> None:
    """A newcomer sees a real configuration of each kind in the README."""
    kinds = {yaml.safe_load(text).get("kind") for text in blocks(ROOT / "README.md", "yaml")}
    assert kinds == {"Model", "Environments"}


def test_the_readme_shows_the_real_help() -> None:
    """The README's help text is what `mlgitops --help` prints."""
    command = [sys.executable, "-m", "mlgitops", "--help"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert f"{shown.rstrip()}\n" in [*blocks(ROOT / "README.md", "text")]


def commands(page: Path) -> Iterator[str]:
    text = page.read_text(encoding="utf-8")
    for language in ("bash", "console"):
        for block in blocks(page, language):
            yield from (line.strip().removeprefix("$ ") for line in block.splitlines())
    yield from (" ".join(span.split()) for span in re.findall(r"`(mlgitops [^`]+)`", FENCE.sub("", text)))


def fault(words: list[str]) -> str:
    """Say what is wrong with the words of a command after `mlgitops`; empty when nothing is."""
    command: click.Command = cli
    while words and isinstance(command, click.Group) and not words[0].startswith("-"):
        child = command.get_command(click.Context(command), words[0])
        if child is None:
            return f"there is no verb {words[0]!r}"
        command, words = child, words[1:]
    context = click.Context(command, info_name=command.name)
    try:
        _, rest, _ = command.make_parser(context).parse_args(words)
    except click.UsageError as error:
        return error.format_message()
    return f"unexpected {rest}" if rest and not isinstance(command, click.Group) else ""


@pytest.mark.parametrize("page", WRITTEN, ids=named)
def test_commands_exist(page: Path) -> None:
    """Every command that the documentation shows has a verb, options and arguments that the tool knows."""
    wrong = []
    for line in commands(page):
        if line.startswith("mlgitops "):
            words = shlex.split(line, comments=True)[1:]
            placeholder = not words or words[0].startswith("<")
            problem = "" if placeholder else fault(words)
            if page.name == "not-yet.md" and problem.startswith("there is no verb"):
                continue  # that page names what is missing
            wrong += [f"{line}: {problem}"] if problem else []
    assert not wrong


def test_a_wrong_command_would_be_found() -> None:
    """The check of commands sees unknown verbs, options and arguments."""
    assert fault(["promot", "x"])
    assert fault(["promote", "x", "--forse"])
    assert fault(["rollback", "digits"])
    assert not fault(["promote", "x", "--force", "--reason", "y"])


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_is_told_about(verb: str) -> None:
    """No verb is known to its help text alone: the reference has a section for each."""
    assert f"## mlgitops {verb}\n" in (ROOT / "docs/reference/commands.md").read_text(encoding="utf-8")


def test_the_reference_is_current() -> None:
    """`docs/reference` and the README's help text are what the code says now."""
    command = [sys.executable, str(ROOT / "docs/generate.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize("page", [*PAGES, ROOT / "docs/images/chain.svg"], ids=named)
def test_pages_name_no_machine(page: Path) -> None:
    """Documentation names no folder of the machine it was written on."""
    found = re.findall(r"(?<![\w.~])/(?:work|root|home)/\S*", page.read_text(encoding="utf-8"))
    assert not found
