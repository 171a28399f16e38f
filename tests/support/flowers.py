"""A model repository with a script that really trains with TensorFlow, and the command line beside it."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

TRAIN = """
import numpy as np
import tensorflow as tf

from mlgitops import training


def main():
    with np.load(training.data_path()) as data:
        x, y = data["x"], data["y"]
    weights = np.stack([x[y == one].mean(axis=0) for one in range(2)]).T.astype("float32")
    module = tf.Module()
    module.weights = tf.Variable(weights)
    module.offset = tf.Variable(-0.5 * (weights ** 2).sum(axis=0))

    def serve(x):
        return {"scores": tf.nn.softmax(tf.matmul(x, module.weights) + module.offset)}

    artifact = training.export(module, signature=serve, inputs={"x": ([None, 4], "float32")})
    training.report({"examples": float(len(x))}, artifact=artifact)


if __name__ == "__main__":
    training.run(main)
"""


def flowers(folder: Path) -> Path:
    """Make the repository, with nothing committed yet."""
    import numpy as np

    (folder / "data").mkdir(parents=True)
    random = np.random.default_rng(1)
    for name, count in (("train", 200), ("evaluation", 120)):
        y = random.integers(0, 2, count)
        x = (random.normal(size=(count, 4)) + 3 * y[:, None]).astype("float32")
        np.savez(folder / "data" / f"{name}.npz", x=x, y=y)
    (folder / "train.py").write_text(TRAIN)
    git(folder, "init", "-q", "-b", "main")
    return folder


def git(folder: Path, *words: str) -> str:
    return subprocess.run(["git", "-C", str(folder), *words], check=True, capture_output=True, text=True).stdout


def tool(folder: Path, *words: str) -> str:
    command = [sys.executable, "-m", "mlgitops", *words]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def wait(what: str, ready: Callable[[], Any], seconds: float = 240) -> None:
    deadline = time.monotonic() + seconds
    while not ready():
        assert time.monotonic() < deadline, f"{what}: nothing after {seconds} s"
        time.sleep(0.5)


def production(folder: Path) -> dict[str, Any]:
    models = json.loads(tool(folder, "status", "--output", "json"))["models"]
    found: dict[str, Any] = models[0]["environments"][-1] if models else {}
    return found


def leftovers(home: Path) -> list[str]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                words = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            if str(home) in words:
                found.append(words)
    return found
