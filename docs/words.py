"""What the reference says beside the names that code gives: phases, exit codes, endpoints, files."""

from collections.abc import Mapping, Sequence
from typing import Final

from mlgitops.core.manifest import fields

PHASES: Final[Mapping[str, str]] = {
    "SUBMITTED": "A push was accepted: its tests passed, its data is stored, its image is built.",
    "QUEUED": "It waits until no other training of the model is open.",
    "TRAINING": "Its TFJob is listed on `main`.",
    "EVALUATING": "The job left a model; the model is being measured on the evaluation set and probed.",
    "CANDIDATE": "It met its own limits and may be rolled out. An end, unless a person rejects it.",
    "FAILED": "The answer was no: training failed, or a gate was not met.",
    "ABORTED": "A person stopped it, or a newer push superseded it.",
    "REJECTED": "A person refused it for good.",
    "PROPOSED": "`rollout.yaml` asks for it; gates, holds, freeze windows and approvals are looked at.",
    "STARTING": "Its server starts; no user meets it yet.",
    "STEP": "A weight is on `main` and not yet observed at the router.",
    "ANALYSING": "The weight is observed; requests of both sides are counted and judged.",
    "COMPLETING": "The last judged step passed; all traffic moves, then the canary moves into the champion's place.",
    "LIVE": "It serves everything: on probation first, then trusted.",
    "RETIRED": "A later rollout replaced it. A rollback can bring it back.",
    "ROLLING_BACK": "All traffic is on its way back. There is no failing exit: it is tried until it is observed.",
    "ROLLED_BACK": "The former state was observed.",
    "WITHDRAWN": "Taken back before any traffic moved.",
    "REFUSED": "A gate, a policy or the champion's comparison said no before any traffic moved.",
    "ERRORED": "No answer could be had.",
}
PLACES: Final[Mapping[str, Mapping[str, tuple[float, float]]]] = {
    "release": {
        "SUBMITTED": (0, 0),
        "QUEUED": (1, 0),
        "TRAINING": (2, 0),
        "EVALUATING": (3, 0),
        "ABORTED": (0, 1.2),
        "ERRORED": (1, 1.2),
        "FAILED": (2, 1.2),
        "CANDIDATE": (3, 1.2),
        "REJECTED": (1.5, 2.2),
    },
    "rollout": {
        "REFUSED": (0, -1.1),
        "WITHDRAWN": (1, -1.1),
        "ERRORED": (2, -1.1),
        "PROPOSED": (0, 0),
        "STARTING": (1, 0),
        "STEP": (2, 0),
        "ANALYSING": (3, 0),
        "RETIRED": (0, 1),
        "LIVE": (1, 1),
        "COMPLETING": (3, 1),
        "ROLLING_BACK": (2, 2.1),
        "ROLLED_BACK": (3, 2.1),
    },
}
"""Column and row of each phase in the diagrams."""
CODES: Final[Sequence[tuple[int, str, str]]] = (
    (0, "Done, or nothing to do.", ""),
    (1, "The answer is no, or a named thing is not there.", "Read the message; running it again gives the same."),
    (2, "The command line itself is wrong.", "`mlgitops <verb> --help` tells what there is."),
    (3, "A file or an argument cannot be accepted. Every problem is listed.", "Mend them all; each says how."),
    (4, "Somebody else moved a branch again and again while the command decided.", "Run it again."),
    (5, "A service, a file or git gave no answer.", "Run it again later; nothing is half-written."),
    (
        10,
        "What was asked about is not good: tests failed, `doctor` found an error, a followed training made no model.",
        "Mend it; a commit whose tests failed is not built, and is pushed again.",
    ),
    (11, "Reserved: a decision without an answer yet.", ""),
    (130, "Interrupted.", "Run it again."),
    (255, "A bug in mlgitops. The traceback is in the file that the message names.", "Please report it."),
)
ENDPOINTS: Final[Mapping[str, str]] = {
    "* /{environment}/{model}/{rest}": "Predictions and everything else below `v1/` and `v2/`, sent to one side of the "
    "split. Answers carry `X-Request-Id`, `X-Mlgitops-Release` and `X-Mlgitops-Cohort`.",
    "POST /{environment}/{model}/labels": 'True labels of served requests: `{"labels": [{"id": …, "label": …}]}`, '
    "with the bearer token of the engine's file `serving/label-token`. The first label of a request counts. A flood is "
    "answered with 429.",
    "GET /{environment}/{model}/requests/{id}": "Which release answered a request, as what; with the token of the "
    "engine's file `serving/control-token`, so that nobody who only reports labels can aim them.",
    "GET /metrics": "Counts in Prometheus' format.",
    "GET /-/state": "The configuration in force; for the engine alone.",
    "POST /-/reload": "Puts a new configuration in force; for the engine alone.",
    "POST /-/replay": "Replays requests to both sides of a route, past its weights and not counted; for the engine "
    "alone.",
    "GET /v1/models": "V1: the model's name.",
    "GET /v1/models/{model}": "V1: whether the model is ready.",
    "POST /v1/models/{model}:predict": 'V1: a prediction, `{"instances": [row, …]}`.',
    "GET /v2": "V2: the server's name and version.",
    "GET /v2/health/live": "V2: whether the process answers.",
    "GET /v2/health/ready": "V2: whether the process can predict.",
    "GET /v2/models/{model}": "V2: inputs and outputs of the signature, the release, the artifact's digest.",
    "GET /v2/models/{model}/ready": "V2: whether the model is ready.",
    "POST /v2/models/{model}/infer": "V2: a prediction on named tensors.",
}
OPENING: Final[Mapping[str, str]] = {
    "model": "Stands at the top of a model repository. `mlgitops init` writes a first one, `mlgitops lint` checks it.",
    "environments": "Stands at the top of the environment repository, on `main`. `mlgitops local up` writes one.",
    "rollout": "One for each model and environment, `environments/<environment>/<model>/rollout.yaml` on `main`. "
    "`mlgitops promote` writes it.",
}


def labels() -> list[tuple[str, str, str]]:
    """Return labels and annotations that the tool owns: name, objects, meaning."""
    return [
        (f"`{fields.MANAGED_BY}`", "every scaffolded object", "that mlgitops made it"),
        (f"`{fields.MODEL_LABEL}`", "every scaffolded object", "the model"),
        (f"`{fields.RELEASE_LABEL}`", "TFJob, InferenceService", "the release"),
        (f"`{fields.IMAGE_TAG_ANNOTATION}`", "TFJob", "the image's tag, for people"),
        (f"`{fields.REVISION_ANNOTATION}`", "TFJob", "the commit of the model repository"),
        (
            f"`{fields.ARTIFACT_DIGEST_ANNOTATION}`",
            "InferenceService",
            "digest of the model's files, the only served",
        ),
        (f"`{fields.COHORT_ANNOTATION}`", "HTTPRoute", "the step that requests are counted under, `<rollout>-<step>`"),
    ]


def variables() -> list[tuple[str, str]]:
    """Return environment variables of a training job: name, meaning."""
    return [
        ("`TF_CONFIG`", "the replicas of the job and which one this is; set by the operator"),
        (
            f"`{fields.DATA_URI_VARIABLE}`",
            "where the data is; several `data:` entries name a variable each",
        ),
        (
            f"`{fields.OUTPUT_URI_VARIABLE}`",
            "where the model goes: `<version>/saved_model.pb`, `metadata.json`",
        ),
        (f"`{fields.CHECKPOINT_URI_VARIABLE}`", "where checkpoints go; the same for every restart of an attempt"),
        (f"`{fields.MOUNTS_VARIABLE}`", "embedded engine only: local folders of volume claims, as JSON"),
        ("`MLGITOPS_SOURCE_REVISION`", "the commit of the model repository"),
        ("`MLGITOPS_DATA_DIGEST`", "the digest over all data inputs"),
    ]
