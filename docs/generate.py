"""Write `docs/reference/` and the README's help text anew from the code: commands, schemas, rules, tables, constants.

    python docs/generate.py            writes the files
    python docs/generate.py --check    exits with 1 and names the files that are not what the code says

The same code gives the same bytes. What code cannot say (what a phase is for, what an endpoint answers) stands in
words.py beside the names it belongs to; a name without words is an error, so nothing new stays undescribed.
"""

import inspect
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import click

ROOT: Final = Path(__file__).resolve().parent
REFERENCE: Final = ROOT / "reference"
SCHEMAS: Final = ROOT.parent / "schemas"
sys.path[:0] = [str(ROOT.parent), str(ROOT)]

from drawing import drawing  # noqa: E402
from words import CODES, ENDPOINTS, OPENING, PHASES, PLACES, labels, variables  # noqa: E402

from mlgitops import training  # noqa: E402
from mlgitops.cli import failure  # noqa: E402
from mlgitops.cli.main import VERBS, cli  # noqa: E402
from mlgitops.core import release, rollout  # noqa: E402
from mlgitops.core.analysis.counts import Arm  # noqa: E402
from mlgitops.core.manifest import fields  # noqa: E402
from mlgitops.core.manifest.lint import ALLOW_PREFIX, RULES  # noqa: E402

README: Final = ROOT.parent / "README.md"
HELP_MARK: Final = "<!-- checked: mlgitops --help -->\n"
HEAD: Final = "<!-- Written by docs/generate.py. Change the code, then run `make docs`. -->\n"


def main() -> int:
    """Write or check the reference; returns the exit code."""
    pages = {REFERENCE / f"{name}.md": HEAD + "\n" + make().rstrip() + "\n" for name, make in PAGES.items()}
    for name, moves, group in (
        ("release", release.RELEASE, release.OPEN),
        ("rollout", rollout.ROLLOUT, rollout.MOVED),
    ):
        title = f"The phases of a {name} and the events between them"
        pages[ROOT / "images" / f"{name}.svg"] = drawing(title, moves, group, PLACES[name])
    pages[README] = readme(README.read_text(encoding="utf-8"))
    stale = [path for path, text in pages.items() if not path.exists() or path.read_text(encoding="utf-8") != text]
    stale += [path for path in sorted(REFERENCE.glob("*.md")) if path not in pages]
    if sys.argv[1:] == ["--check"]:
        for path in stale:
            sys.stdout.write(f"{path.relative_to(ROOT.parent)} is not what the code says; run `make docs`\n")
        return 1 if stale else 0
    REFERENCE.mkdir(exist_ok=True)
    for path in stale:
        if path in pages:
            path.write_text(pages[path], encoding="utf-8")
        else:
            path.unlink()
    return 0


def readme(text: str) -> str:
    """Return the README with the help text that `mlgitops --help` prints now."""
    before, mark, rest = text.partition(HELP_MARK)
    after = rest.split("\n```\n", 1)[1]
    command = [sys.executable, "-m", "mlgitops", "--help"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT.parent).stdout
    return f"{before}{mark}```text\n{shown.rstrip()}\n```\n{after}"


def table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join("| " + " | ".join(_cell(cell) for cell in line) + " |" for line in lines) + "\n"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _first(text: str | None) -> str:
    return " ".join((text or "").strip().split("\n\n")[0].split())


# --- commands ---------------------------------------------------------------------------------------------------------


def commands() -> str:
    """Return every verb with its words, arguments and options, from click."""
    parts = [
        "# Commands\n",
        (
            "Data goes to standard output, words to standard error. `--output json` prints the same as data; "
            "failures then are data, too. Exit codes: see [exit-codes.md](exit-codes.md).\n"
        ),
        table(("verb", "what it does"), [(f"[`{name}`](#mlgitops-{name})", words) for name, words in VERBS.items()]),
        "## Where a command finds things\n",
        table(
            ("what", "option", "variable", "otherwise"),
            [
                ("the engine's folder", "`--home`", "`MLGITOPS_HOME`", "the nearest `.mlgitops` at or above here"),
                (
                    "the environment repository",
                    "`--environment-repository`, `-R`",
                    "`MLGITOPS_ENVIRONMENT_REPOSITORY`",
                    "the engine's own",
                ),
                ("the model", "`--model`, `-m`", "", "the only one there is"),
                ("the only model that may be changed", "", "`MLGITOPS_ONLY_MODEL`", "the one that a verb is about"),
                ("the environment", "`--environment`, `-e`", "", "the last of `environments.yaml`"),
                ("who decides", "", "`GIT_AUTHOR_NAME`, `GIT_AUTHOR_EMAIL`", "git's `user.name` and `user.email`"),
                ("a token or password for https", "", "`MLGITOPS_TOKEN`", "what the address holds"),
                ("the private key for ssh", "", "`MLGITOPS_SSH_KEY`, `MLGITOPS_SSH_PASSPHRASE`", "the ssh agent"),
                ("the trusted host keys for ssh", "", "`MLGITOPS_KNOWN_HOSTS`", "`~/.ssh/known_hosts`"),
                (
                    "the key that signs commits",
                    "",
                    "`MLGITOPS_SIGNING_KEY`: a path or gpg's key id; `MLGITOPS_SIGNING_PROGRAM`: `ssh` or `gpg`",
                    "commits are not signed; the program is ssh",
                ),
                (
                    "the repository in its forge's API",
                    "",
                    "`MLGITOPS_FORGE`",
                    "for one on github.com, what its address says; else none",
                ),
                (
                    "a token for the forge",
                    "",
                    "`MLGITOPS_FORGE_TOKEN`",
                    "`MLGITOPS_TOKEN` for one on github.com; else none",
                ),
                ("a Prometheus server", "", "`MLGITOPS_PROMETHEUS`, `MLGITOPS_PROMETHEUS_TOKEN`", "none"),
                ("the command that tells counts", "", "`MLGITOPS_METRICS_COMMAND`", "none"),
                (
                    "addresses of notifications",
                    "",
                    "`MLGITOPS_NOTIFY_…`, as `environments.yaml` names them",
                    "nobody is told",
                ),
                (
                    "the credentials of a registry",
                    "",
                    "`MLGITOPS_REGISTRY`, `MLGITOPS_REGISTRY_USER`, `MLGITOPS_REGISTRY_PASSWORD`",
                    "Docker's `config.json` and its credential helpers",
                ),
                ("clones of repositories behind a server", "", "`XDG_CACHE_HOME`", "`~/.cache/mlgitops`"),
            ],
        ),
    ]
    context = click.Context(cli, info_name="mlgitops")
    for name in VERBS:
        command = cli.get_command(context, name)
        assert command is not None
        parts += _command(command, f"mlgitops {name}")
    return "\n".join(parts)


def _command(command: click.Command, words: str) -> Iterator[str]:
    context = click.Context(command, info_name=words)
    yield f"## {words}\n" if words.count(" ") == 1 else f"### {words}\n"
    yield inspect.cleandoc(command.help or "") + "\n"
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            assert child is not None
            yield from _command(child, f"{words} {name}")
        return
    yield f"```text\n{words} {' '.join(command.collect_usage_pieces(context))}\n```\n"
    options = [one for one in command.params if isinstance(one, click.Option) and not one.hidden]
    if options:
        yield table(("option", "what it does"), [_option(one, context) for one in options])
    if command.epilog:
        lines = (line.strip() for line in command.epilog.replace("\b", "").splitlines())
        yield "```text\n" + "\n".join(line for line in lines if line) + "\n```\n"


def _option(option: click.Option, context: click.Context) -> tuple[str, str]:
    value = "" if option.is_flag else f" {option.make_metavar(context)}"
    names = ", ".join(f"`{name}{value if name.startswith('--') else ''}`" for name in reversed(option.opts))
    return names, (option.help or "") + (" Required." if option.required else "")


# --- schemas ----------------------------------------------------------------------------------------------------------


def configuration() -> str:
    """Return the files that people write, field by field."""
    parts = [
        "# Configuration\n",
        (
            "Fields of the files that people write, from the published JSON Schemas (2020-12) in "
            "[`schemas/`](../../schemas). An unknown field is an error that names the nearest known one.\n"
        ),
    ]
    for name in OPENING:
        schema = _schema(name)
        parts += [f"## {schema['title']}\n", f"{schema['description']} {OPENING[name]}\n", *_fields(schema, name)]
    return "\n".join(parts)


def documents() -> str:
    """Return the documents that the tool writes, field by field."""
    parts = ["# Documents that mlgitops writes\n", "From the published JSON Schemas in [`schemas/`](../../schemas).\n"]
    for path in sorted(SCHEMAS.glob("*.schema.json")):
        name = path.name.removesuffix(".schema.json")
        if name not in OPENING:
            schema = _schema(name)
            parts += [f"## {schema.get('title', name)}\n", f"{schema.get('description', '')}\n"]
            parts += _fields(schema, name)
    return "\n".join(parts)


def _schema(name: str) -> dict[str, Any]:
    values: dict[str, Any] = json.loads((SCHEMAS / f"{name}.schema.json").read_bytes())
    return values


def _fields(schema: Mapping[str, Any], name: str) -> Iterator[str]:
    """Return the table of a schema's own fields, then one for each kind of object that it defines."""
    definitions = schema.get("$defs", {})
    rows = list(_rows(schema, definitions, "", name))
    if rows:
        yield table(("field", "type", "default", "what it says"), rows)
    for key, definition in definitions.items():
        if _is_object(definition):
            yield f"### {name}: {key}\n"
            yield f"{definition.get('description', '')}\n"
            yield table(("field", "type", "default", "what it says"), list(_rows(definition, definitions, "", name)))


def _is_object(schema: Mapping[str, Any]) -> bool:
    return "properties" in schema


def _rows(
    schema: Mapping[str, Any], definitions: Mapping[str, Any], prefix: str, name: str
) -> Iterator[tuple[str, str, str, str]]:
    required = schema.get("required", ())
    for key, field in schema.get("properties", {}).items():
        path = f"{prefix}{key}"
        whole = _resolved(field, definitions)
        linked = _link(field, definitions, name)
        shown = linked or _type(whole, definitions, name)
        default = f"`{json.dumps(whole['default'])}`" if "default" in whole else ""
        needed = " **required**" if key in required else ""
        yield f"`{path}`{needed}", shown, default, whole.get("description", "") + _examples(whole)
        if linked:
            continue
        if _is_object(whole):
            yield from _rows(whole, definitions, f"{path}.", name)
        item = whole.get("items")
        if isinstance(item, dict) and not _link(item, definitions, name) and _is_object(item):
            yield from _rows(item, definitions, f"{path}[].", name)


def _resolved(field: Mapping[str, Any], definitions: Mapping[str, Any]) -> dict[str, Any]:
    reference = field.get("$ref", "")
    base = definitions.get(reference.rsplit("/", 1)[-1], {}) if reference.startswith("#/$defs/") else {}
    return {**(_resolved(base, definitions) if base else {}), **field}


def _link(field: Mapping[str, Any], definitions: Mapping[str, Any], name: str) -> str:
    """Return a link to the section of a field that is an object with a section of its own; empty otherwise."""
    reference = str(field.get("$ref", "")).rsplit("/", 1)[-1]
    if reference and _is_object(definitions.get(reference, {})):
        return f"[{reference}](#{name}-{reference.lower()})"
    return ""


def _type(field: Mapping[str, Any], definitions: Mapping[str, Any], name: str) -> str:
    if "const" in field:
        return f"`{json.dumps(field['const'])}`"
    if "enum" in field:
        return "one of " + ", ".join(f"`{one}`" for one in field["enum"])
    choices = field.get("anyOf") or field.get("oneOf")
    if choices:
        found = [
            _link(one, definitions, name) or _type(_resolved(one, definitions), definitions, name) for one in choices
        ]
        return " or ".join(dict.fromkeys(found))
    kind = field.get("type", "anything")
    if kind == "array":
        item = field.get("items", {})
        inner = _link(item, definitions, name) or _type(_resolved(item, definitions), definitions, name)
        return f"list of {inner}"
    words = " or ".join(kind) if isinstance(kind, list) else str(kind)
    if words == "object" and isinstance(field.get("additionalProperties"), dict):
        inner = _resolved(field["additionalProperties"], definitions)
        linked = _link(field["additionalProperties"], definitions, name)
        return f"mapping to {linked or _type(inner, definitions, name)}"
    return words + _limits(field)


def _limits(field: Mapping[str, Any]) -> str:
    signs = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}
    told = [f"{sign} {field[key]}" for key, sign in signs.items() if key in field]
    told += [f"at most {field['maxLength']} characters"] if field.get("maxLength", 10**9) < 1000 else []
    return f", {', '.join(told)}" if told else ""


def _examples(field: Mapping[str, Any]) -> str:
    examples = field.get("examples", ())
    return f" Example: `{json.dumps(examples[0], ensure_ascii=False)}`." if examples and "const" not in field else ""


# --- rules and codes --------------------------------------------------------------------------------------------------


def lint_rules() -> str:
    """Return every lint rule, from the table that lint itself uses."""
    parts = [
        "# Lint rules\n",
        (
            "`mlgitops lint` names the rule with each problem in a manifest. Errors refuse a change; warnings and "
            f"infos are told. Where a rule can be allowed, the annotation `{ALLOW_PREFIX}<rule>` on the object does "
            "so; its value is `<reason> until <YYYY-MM-DD>`, and the problem stays in sight as an info until then. "
            "With `mlgitops lint --base origin/main` an annotation counts only where the base has it: a change cannot "
            "excuse itself.\n"
        ),
        table(
            ("rule", "severity", "what it is about"),
            [(f"[`{one.name}`](#{one.name})", one.severity, one.what) for one in RULES.values()],
        ),
    ]
    for one in RULES.values():
        allowed = "can be allowed" if one.can_be_allowed else "cannot be allowed"
        parts += [
            f"## {one.name}\n",
            f"{one.severity.capitalize()}, {allowed}. {_sentence(one.what)}\n",
            f"Why: {_sentence(one.why)}\n\nMend: {_sentence(one.mend)}\n",
        ]
    return "\n".join(parts)


def _sentence(text: str) -> str:
    return text if text.endswith((".", "…", "?", "!")) else f"{text}."


def exit_codes() -> str:
    """Return the published exit codes, with the errors that lead to each."""
    known = {one for one, _, _ in CODES}
    used = {*failure.CODES.values(), failure.DONE, failure.ANSWER_NO, failure.INCONCLUSIVE, failure.BUG}
    if not used <= known:
        raise SystemExit(f"exit codes without words: {sorted(used - known)}")
    rows = []
    for code, words, mend in CODES:
        kinds = [kind for kind, one in failure.CODES.items() if one == code]
        rows.append((str(code), words, ", ".join(f"`{kind.__name__}`" for kind in kinds), mend))
    meanings = [(f"`{kind.__name__}`", _first(kind.__doc__)) for kind in failure.CODES]
    return "\n".join(
        [
            "# Exit codes\n",
            "A published contract: a code never changes its meaning. All others are reserved.\n",
            table(("code", "means", "errors", "what to do"), rows),
            (
                "`mlgitops reconcile` ends with the highest code of what it could not find out, and with 0 when "
                "it found out everything; that a release failed is no failure of `reconcile`.\n"
            ),
            "## Errors\n",
            (
                'With `--output json` a failure is `{"error": {"kind", "message", "hint", "exitCode", '
                '"problems"}}`; `problems` is there for `InvalidInput`.\n'
            ),
            table(("kind", "means"), meanings),
        ]
    )


# --- machines ---------------------------------------------------------------------------------------------------------


def machines() -> str:
    """Return the two transition tables, as diagrams and as tables."""
    parts = [
        "# The two machines\n",
        (
            "A release and a rollout are values. An event moves one from a phase to the next; a move that is not in "
            "its table cannot happen. An arrow from the dashed box starts in each phase inside. "
            "The diagrams and tables below are made from the tables in "
            "[`core/release.py`](../../mlgitops/core/release.py) and "
            "[`core/rollout.py`](../../mlgitops/core/rollout.py).\n"
        ),
    ]
    for title, moves, phases in (
        ("Release", release.RELEASE, release.ReleasePhase),
        ("Rollout", rollout.ROLLOUT, rollout.RolloutPhase),
    ):
        rows = [
            (f"`{one}`", f"`{event.__name__}`", f"`{to}`", _first(event.__doc__)) for (one, event), to in moves.items()
        ]
        parts += [
            f"## {title}\n",
            f"![{title}: phases and events](../images/{title.lower()}.svg)\n",
            table(("phase", "what it means"), [(f"`{one}`", PHASES[one]) for one in phases]),
            table(("in phase", "this event", "leads to", "what happened"), rows),
        ]
    parts += [
        (
            "The rollout's table is narrowed by five rules: `StepPassed` comes only while a judged step is left and "
            "`LastStepPassed` only at the last one; a first rollout, which has no champion, goes from `STARTING` to "
            "`LIVE` by `ServingAll`, and every other one to `STEP` by `CanaryReady`; where the plan has a `shadow`, "
            "`ReplayStarted` comes once before that.\n"
        ),
    ]
    return "\n".join(parts)


# --- repositories -----------------------------------------------------------------------------------------------------


def repositories() -> str:
    """Return files and branches of an environment repository, and what the tool gives a training job."""
    main, ledger = (one.removeprefix("refs/heads/") for one in (fields.MAIN, fields.LEDGER))
    place = "environments/<environment>/<model>"
    return "\n".join(
        [
            "# Files, branches, labels and variables\n",
            f"## Branch `{main}`: what is to run\n",
            table(
                ("path", "what it says", "who writes it"),
                [
                    ("`environments.yaml`", "environments in order, plans, gates, freeze windows, approvals", "people"),
                    (
                        f"`environments/{fields.TRAINING}/<model>/{fields.TFJOB_FILE}`",
                        "the training job of the newest attempt",
                        "scaffolded once; then people, and the tool in its fields",
                    ),
                    (
                        f"`environments/{fields.TRAINING}/<model>/{fields.KUSTOMIZATION_FILE}`",
                        f"lists `{fields.TFJOB_FILE}` while an attempt is open, and not otherwise",
                        "the tool; other lines are people's",
                    ),
                    (f"`{place}/{fields.ROLLOUT_FILE}`", "which rollout is asked for", "`mlgitops promote`, or people"),
                    (
                        f"`{place}/{fields.GENERATION_FILE}`",
                        "which decision the folder shows",
                        "the tool",
                    ),
                    (
                        f"`{place}/{fields.SERVICE_FILE}`",
                        "the champion's InferenceService",
                        "scaffolded once; then people, and the tool in its fields",
                    ),
                    (f"`{place}/{fields.CANARY_FILE}`", "the candidate's, while a rollout is open", "the tool"),
                    (
                        f"`{place}/{fields.ROUTE_FILE}`",
                        "the split; 100 to 0 between rollouts",
                        "scaffolded once; then people, and the tool in its fields",
                    ),
                    (f"`{place}/{fields.KUSTOMIZATION_FILE}`", "what is applied", "the tool; other lines are people's"),
                ],
            ),
            f"## Branch `{ledger}`: what was decided\n",
            "Only the tool writes it. Without it nothing changes.\n",
            table(
                ("path", "what it says"),
                [
                    ("`ledger.yaml`", "that this is a ledger, and its format"),
                    (
                        "`models/<model>/releases/<release>.yaml`",
                        "a release: its submission, every event since",
                    ),
                    ("`models/<model>/last-submitted`", "the release submitted last, new or recognised"),
                    ("`models/<model>/reports/<key>.json`", "evaluation reports"),
                    ("`models/<model>/logs/<release>.log`", "the end of a training's log"),
                    (f"`{place}/state.yaml`", "generation, hold, approvals, changes by hand, the last projections"),
                    (f"`{place}/rollouts/<number>.yaml`", "a rollout: its proposal and plan, and every event since"),
                    (f"`{place}/decisions/<name>.json`, `.md`", "decision records, for programs and for people"),
                ],
            ),
            "## Labels and annotations\n",
            table(("name", "on", "says"), labels()),
            "## Environment variables of a training job\n",
            table(("variable", "says"), variables()),
        ]
    )


# --- servers and training ---------------------------------------------------------------------------------------------


def servers() -> str:
    """Return endpoints and metrics of the embedded servers, from their own routes and registries."""
    from prometheus_client import CollectorRegistry

    from mlgitops.adapters.serving.buckets import LATENCY_BUCKETS_SECONDS
    from mlgitops.adapters.serving.exposition import ServedCollector
    from mlgitops.adapters.serving.router import Router
    from mlgitops.adapters.serving.routing import Configuration
    from mlgitops.adapters.serving.served import ServedLog
    from mlgitops.adapters.serving.server import Identity, ModelServer
    from mlgitops.core.names import Digest

    class Nothing:
        inputs: tuple[()] = ()
        outputs: tuple[()] = ()

        def predict(self, arrays: Any) -> Any:
            return arrays

    with tempfile.TemporaryDirectory() as folder:
        log = ServedLog(Path(folder) / "served")
        config = Path(folder) / "config.json"
        config.write_bytes(Configuration(routes={}).to_bytes())
        router = Router(config, log, Path(folder) / "replays", label_token="", control_token="")
        identity = Identity(model="m", release="r", digest=Digest.of(b""), version="1")
        server = ModelServer(Nothing(), identity)
        registry = CollectorRegistry()
        registry.register(ServedCollector(log))
        parts = [
            "# Embedded servers\n",
            "Both listen on the loopback interface alone.\n",
            "## Router: one address for all models\n",
            "`mlgitops local up --port` chooses its port; `serving/router.json` in the engine's folder tells it.\n",
            table(("request", "answer"), _endpoints(router.application())),
            table(("metric", "labels", "what it counts"), _metrics(registry)),
            "## Model server: one process for each InferenceService\n",
            table(("request", "answer"), _endpoints(server.application())),
            table(("metric", "labels", "what it counts"), _metrics(server._registry)),  # noqa: SLF001
        ]
        log.close()
    bounds = ", ".join(f"{one:g}" for one in LATENCY_BUCKETS_SECONDS)
    arms = " and ".join(f"`{one}`" for one in Arm)
    parts += [
        (
            f"## Labels\n\n`arm` is {arms}. `cohort` is `<rollout>-<step>`, with step 1000 for what serves alone. "
            "`outcome` of a request is `ok`, `refused` (4xx: the request's fault) or `failed` (5xx, timeout, no "
            "connection); of a labelled request `correct` or `incorrect`. `slice` is one that the request named by "
            f"`X-Mlgitops-Slices`. Upper bounds of the latency histograms, in seconds: {bounds}.\n"
        )
    ]
    return "\n".join(parts)


def _endpoints(app: Any) -> list[tuple[str, str]]:
    rows = []
    for route in app.router.routes():
        path = route.resource.canonical if route.resource is not None else ""
        name = f"{route.method} {path}"
        if route.method != "HEAD":
            rows.append((f"`{name}`", ENDPOINTS[name]))
    return rows


def _metrics(registry: Any) -> list[tuple[str, str, str]]:
    rows = []
    for collector in list(registry._collector_to_names):  # noqa: SLF001 - the public names need samples
        for family in collector.collect():
            suffix = "_total" if family.type == "counter" else ""
            labels = getattr(family, "_labelnames", None) or getattr(collector, "_labelnames", ())
            rows.append((f"`{family.name}{suffix}`", ", ".join(labels), family.documentation))
    return rows


def training_api() -> str:
    """Return what a training script imports, from its own docstrings."""
    module = inspect.cleandoc(training.__doc__ or "")
    parts = ["# mlgitops.training\n", _example(module)]
    for name in training.__all__:
        thing = getattr(training, name)
        text = inspect.cleandoc(thing.__doc__ or "")
        is_error = inspect.isclass(thing) and issubclass(thing, Exception)
        shown = name if is_error or inspect.isclass(thing) else f"{name}{inspect.signature(thing)}"
        parts += [f"## {name}\n", f"```text\n{_wrapped(shown)}\n```\n", f"```text\n{text}\n```\n"]
    return "\n".join(parts)


def _wrapped(signature: str) -> str:
    """Break a long signature after each argument."""
    plain = signature.replace("collections.abc.", "").replace("pathlib._local.", "").replace("pathlib.", "")
    if len(plain) <= 100:
        return plain
    depth, out = 0, ""
    for character in plain:
        depth += {"(": 1, "[": 1, ")": -1, "]": -1}.get(character, 0)
        if character == "(" and depth == 1:
            out += "(\n    "
        elif character == "," and depth == 1:
            out += ",\n   "
        elif character == ")" and depth == 0:
            out += ",\n)"
        else:
            out += character
    return out


def _example(text: str) -> str:
    """Return a docstring with its indented block as Python code."""
    lines, inside = [], False
    for line in text.splitlines():
        indented = line.startswith("    ") or (inside and not line)
        if indented and not inside:
            lines.append("```text")
        if inside and not indented:
            while lines[-1] == "":
                lines.pop()
            lines += ["```", ""]
        inside = indented
        lines.append(line.removeprefix("    "))
    return "\n".join(lines) + "\n"


PAGES: Final[Mapping[str, Callable[[], str]]] = {
    "commands": commands,
    "configuration": configuration,
    "documents": documents,
    "lint-rules": lint_rules,
    "exit-codes": exit_codes,
    "machines": machines,
    "repositories": repositories,
    "servers": servers,
    "training": training_api,
}

if __name__ == "__main__":
    sys.exit(main())
