"""Help that teaches, from a page that costs nothing, and completion that works."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest

from mlgitops.cli.main import run
from mlgitops.cli.tree import cli
from mlgitops.cli.verbs import VERBS, page

BIN = Path(sys.executable).parent


def commands(command: click.Command, words: list[str]):
    """Return every command below one, with the words that reach it."""
    yield words, command
    if isinstance(command, click.Group):
        for name in command.list_commands(click.Context(command)):
            child = command.get_command(click.Context(command), name)
            assert child is not None, name
            yield from commands(child, [*words, name])


EVERY = [(" ".join(words), command) for words, command in commands(cli, [])][1:]


def test_the_page_is_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    """`mlgitops`, `-h` and `--help` print one page of at most 82 columns that lists every verb."""
    for words in ([], ["-h"], ["--help"]):
        assert run(words) == 0
        assert capsys.readouterr().out == page()
    assert cli.get_help(click.Context(cli, info_name="mlgitops")) == page().rstrip("\n")
    assert all(f"  {verb} " in page() for verb in VERBS)
    assert max(map(len, page().splitlines())) <= 82


def test_every_verb_is_there() -> None:
    """Each listed verb has a module, and each module is listed."""
    modules = {file.stem for file in Path("mlgitops/cli/commands").glob("*.py")} - {"__init__"}
    assert modules == set(VERBS)


@pytest.mark.parametrize(("words", "command"), EVERY, ids=[words for words, _ in EVERY])
def test_each_help_teaches(words, command, capsys: pytest.CaptureFixture[str]) -> None:
    """A command's help begins with what it does, documents arguments and options, and shows how it is typed."""
    assert run([*words.split(), "--help"]) == 0
    told = capsys.readouterr().out
    first = (command.help or "").split("\n\n")[0].replace("\n", " ").strip()
    assert first.split()[0][0].isupper()
    assert not first.split()[0].endswith("s"), "an imperative"
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            assert parameter.hidden or parameter.help, parameter.name
        else:
            assert parameter.name.upper() in command.help, f"{parameter.name} is not explained"
    assert f"mlgitops {words}" in told.split("Examples:")[1]


@pytest.mark.parametrize(("words", "command"), EVERY, ids=[words for words, _ in EVERY])
def test_examples_are_real(words, command) -> None:
    """Every example of a command parses: its verbs and options exist."""
    import shlex

    for line in (command.epilog or "").splitlines():
        typed = shlex.split(line.split(" | ")[0].split(" > ")[0], comments=True)
        if typed[:1] != ["mlgitops"] or isinstance(command, click.Group):
            continue
        own = typed[1:]
        below: click.Command = cli
        context = click.Context(cli)
        while isinstance(below, click.Group):
            found = below.get_command(context, own.pop(0))
            assert found is not None, line
            below = found
        below.make_context(words, own)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_ask_the_tool(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A shell's script calls this tool for completions."""
    assert run(["completion", shell]) == 0
    assert f"_MLGITOPS_COMPLETE={shell}_complete" in capsys.readouterr().out


def test_completion_works_in_bash(tmp_path: Path) -> None:
    """In a real bash, half a verb becomes the verb and half an option the option."""
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("there is no bash")
    script = """
    eval "$(mlgitops completion bash)"
    COMP_WORDS=(mlgitops ro) COMP_CWORD=1; _mlgitops_completion mlgitops; echo "${COMPREPLY[@]}"
    COMPREPLY=(); COMP_WORDS=(mlgitops hold --rea) COMP_CWORD=2; _mlgitops_completion mlgitops; echo "${COMPREPLY[@]}"
    """
    environment = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}"}
    done = subprocess.run(
        [bash, "-c", script], capture_output=True, text=True, env=environment, cwd=tmp_path, check=True
    )
    assert done.stdout.split() == ["rollback", "--reason"]


def test_the_version_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    """--version names the tool and its version."""
    assert run(["--version"]) == 0
    assert capsys.readouterr().out.startswith("mlgitops, version 0.")
