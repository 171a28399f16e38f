"""`mlgitops init`."""

from pathlib import Path

import click

from mlgitops.cli import options
from mlgitops.cli.words import examples


@click.command(
    "init",
    epilog=examples(
        "mlgitops init",
        "mlgitops init --script train.py --data data/train.npz --evaluation data/evaluation.npz",
        "mlgitops init --notebook model.ipynb --dry-run",
        "mlgitops init --dockerfile",
        "mlgitops init --codeowners ../environment",
        "mlgitops init --workflows example/mlgitops@11bd71901bbe5b1630ceea73d27597364c9af683 ../environment",
    ),
)
@click.argument("directory", default=".")
@click.option("--name", help="The model's name; default: the folder's.")
@click.option("--script", metavar="PATH", help="Training script; default: found where it is unambiguous.")
@click.option("--notebook", metavar="PATH", help="Training notebook instead; converted at every build.")
@click.option("--data", metavar="PATH", help="File or folder that is trained on.")
@click.option("--evaluation", metavar="PATH", help="Evaluation set, an .npz file.")
@click.option("--codeowners", is_flag=True, help="In an environment repository: write .github/CODEOWNERS instead.")
@click.option(
    "--workflows",
    metavar="OWNER/NAME@COMMIT",
    help="In either repository: write the workflows that call those of mlgitops, which are there.",
)
@click.option("--dockerfile", is_flag=True, help="In a model repository: write a Dockerfile and a .dockerignore.")
@options.output
@options.dry_run
def command(
    directory: str,
    name: str | None,
    script: str | None,
    notebook: str | None,
    data: str | None,
    evaluation: str | None,
    codeowners: bool,
    workflows: str | None,
    dockerfile: bool,
    output: str,
    verbose: bool,
    dry_run: bool,
) -> None:
    """Make a folder with a training script or notebook a model repository that mlgitops can release.

    DIRECTORY is the folder, by default this one. Writes mlgitops.yaml and, where they are missing, a lock of
    requirements; never over a file that is there.

    With --codeowners, DIRECTORY is a checkout of an environment repository: writes who must approve what, from `owners`
    in its environments.yaml. With --workflows, writes what has a forge call `train`, or `reconcile`, `promote`,
    `rollback` and `review`; a workflow that is there stays as it is. With --dockerfile, writes what a Docker Engine
    builds the image of mlgitops.yaml from.
    """
    del verbose
    from mlgitops.app.calling import initialise_workflows
    from mlgitops.app.dockerfile import initialise_dockerfile
    from mlgitops.app.initialise import initialise_model, initialise_owners

    told = (name, script, notebook, data, evaluation)
    asked = sum(map(bool, (codeowners, workflows, dockerfile)))
    if asked and any(one is not None for one in told):
        message = "--codeowners, --workflows and --dockerfile write nothing else; the other options are about a model"
        raise click.UsageError(message)
    if asked > 1:
        raise click.UsageError("--codeowners, --workflows and --dockerfile are asked for one at a time")
    if dockerfile:
        files = initialise_dockerfile(Path(directory), dry_run=dry_run)
    elif workflows:
        files = initialise_workflows(Path(directory), workflows, dry_run=dry_run)
    elif codeowners:
        files = initialise_owners(Path(directory), dry_run=dry_run)
    else:
        files = initialise_model(
            Path(directory),
            name=name,
            script=script,
            notebook=notebook,
            data=data,
            evaluation=evaluation,
            dry_run=dry_run,
        )
    verb = "would write" if dry_run else "wrote"
    words = "\n".join(f"{verb} {path}" for path in files) or "it is current already"
    options.show({"files": sorted(files), "dryRun": dry_run}, words, output)
