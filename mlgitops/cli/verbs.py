"""Every verb with the first line of its help, and the page that lists them; importing this costs nothing."""

VERBS = {
    "init": "Make a training script or notebook a model repository",
    "local": "Run the whole engine on this machine, for your own repository",
    "demo": "Run the whole loop on this machine, on handwritten digits",
    "lint": "Check configuration and manifests; name every problem and its mend",
    "doctor": "Check this machine and the environment repository; name every mend",
    "train": "Make a release of a pushed commit: test, build, submit",
    "reconcile": "Move every release and rollout as far as it goes now",
    "promote": "Ask for a rollout of a release, by a commit",
    "rollback": "Return all traffic to what served before, by a commit, at once",
    "hold": "Stop automation for a model in an environment",
    "resume": "End a hold",
    "approve": "Approve the proposed rollout",
    "reject": "Refuse a release for good",
    "abort": "Stop a release that is still training",
    "status": "Show what serves, what is under way, and what waits for what",
    "history": "Show every release and rollout, and what happened to each",
    "trace": "Follow one production answer back to where it came from",
    "explain": "Say in plain words why a release is where it is",
    "simulate": "Say what a plan would do with a model's traffic",
    "logs": "Show the log of a training",
    "models": "List the models, show one release, write its model card",
    "report": "Write the HTML report of a model",
    "gc": "Delete artifacts that no rollback can need",
    "completion": "Print the completion script of a shell",
}
"""Every verb with the first line of its help; the modules are imported when they are run."""

_SECTIONS = {
    "Start": ("init", "local", "demo", "lint", "doctor"),
    "Move": ("train", "reconcile", "promote", "rollback"),
    "Decide": ("hold", "resume", "approve", "reject", "abort"),
    "Look": ("status", "history", "trace", "explain", "simulate", "logs", "models", "report"),
    "Keep": ("gc", "completion"),
}
_INTRODUCTION = """\
Usage: mlgitops [OPTIONS] VERB [ARGS]...

  Bring models from a git push to production by a judged canary, and back by
  one command. Every change of what runs is a commit in an environment
  repository.

  In a model repository:
    mlgitops init          write mlgitops.yaml
    mlgitops local up      run the engine, in a terminal of its own
    git push local         make a release, and watch it with `mlgitops status`
"""
_END = """\
Options:
  --version   Show the version and exit.
  -h, --help  Show this message and exit.

`mlgitops VERB --help` says more about each. Exit codes: 0 done, 1 error, 2 usage,
3 invalid input, 4 somebody else moved it, 5 unavailable, 10 the answer was no,
130 interrupted, 255 a bug.
"""


def page() -> str:
    """Return the page of `mlgitops --help`."""
    width = max(map(len, VERBS)) + 2
    lists = [
        f"{title}:\n" + "".join(f"  {verb:<{width}}{VERBS[verb]}\n" for verb in verbs)
        for title, verbs in _SECTIONS.items()
    ]
    return "\n".join([_INTRODUCTION, *lists, _END])
