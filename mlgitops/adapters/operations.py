"""What a SavedModel would do, read from its protobuf before anything is loaded: loading already runs operations.

Files and networks are no business of a model that serves. Operations that reach them are refused wherever they stand:
in the graph, in any function, called or not. Saving and restoring checkpoints is allowed in the two functions that
every TensorFlow 2 export has for it, and only there: the same operations elsewhere could write any file.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from mlgitops.adapters.tensorflow import import_tensorflow
from mlgitops.core.errors import InvalidInput

MODEL_FILE: Final = "saved_model.pb"
LIMIT_BYTES: Final = 1 << 30
_DENIED_PATTERNS: Final = (
    r"ReadFile|WriteFile|FileSystem.*|RecordInput|.*Reader.*",
    r"(Experimental)?MatchingFiles(Dataset)?",
    r".*PyFunc.*",  # runs Python of the process that loads it
    r"(Experimental)?(TFRecord|TextLine|FixedLengthRecord|CSV|Sql|LMDB|Load|Save|Cache)Dataset(V\d)?",
    r".*Snapshot.*Dataset.*|SnapshotDataset.*|(Experimental)?DatasetToTFRecord",
    r"PrintV2",  # writes to any file:// it is given
    r"Debug(Gradient|Identity|NanCount|NumericSummary).*",  # writes to file:// and grpc:// addresses
    r"Create\w*Summary\w*|Write\w*Summary|\w*SummaryWriter\w*|ImportEvent",
    r"InitializeTableFromTextFile(V2)?|GenerateVocabRemapping|LoadAndRemapMatrix",
    r"\w*DataService\w*|RegisterDataset(V2)?|DistributedSave|RemoteCall|_?(Host)?(Send|Recv)|\w*Rpc\w*",
    r"Collective\w*|(Configure|Shutdown)DistributedTPU",
)
_DENIED: Final = re.compile("|".join(_DENIED_PATTERNS))
_CHECKPOINT: Final = re.compile(r"Save(V2|Slices)?|Restore(V2|Slice)?|MergeV2Checkpoints|ShardedFile(name|spec)")


@dataclass(frozen=True, kw_only=True)
class Scan:
    """Operations of a SavedModel."""

    counts: Mapping[str, int]
    """How often each operation occurs, over the graph and all functions."""
    refused: Mapping[str, int]
    """Those that are not allowed, and how often."""

    @property
    def refusal(self) -> str | None:
        """Why the model is refused; None when it is not."""
        if not self.refused:
            return None
        named = ", ".join(f"{name} ({count})" for name, count in sorted(self.refused.items()))
        return f"the SavedModel has operations that a model may not have: {named}"


def scan(directory: Path) -> Scan:
    """Read the operations of the SavedModel in a version directory without loading it.

    Raises:
        InvalidInput: The file is no SavedModel, or another form of the graph lies beside it.
    """
    import_tensorflow()
    from tensorflow.core.protobuf import saved_model_pb2

    for other in ("saved_model.pbtxt", "saved_model.cpb"):
        if (directory / other).exists():
            raise InvalidInput(f"{other} lies beside {MODEL_FILE}: which of them is loaded differs between servers")
    file = directory / MODEL_FILE
    if file.stat().st_size > LIMIT_BYTES:
        raise InvalidInput(f"{MODEL_FILE} has more than {LIMIT_BYTES} bytes")
    model = saved_model_pb2.SavedModel()
    try:
        model.ParseFromString(file.read_bytes())
    except Exception as error:
        # protobuf's error, whose module has no types
        raise InvalidInput(f"{MODEL_FILE} is no SavedModel: {error}") from error
    if not model.meta_graphs:
        raise InvalidInput(f"{MODEL_FILE} holds no graph")
    counts, refused = Counter[str](), Counter[str]()
    for graph in model.meta_graphs:
        for operation, count, refusal in _operations(graph):
            counts[operation] += count
            refused[operation] += count * refusal
    return Scan(counts=dict(sorted(counts.items())), refused={name: count for name, count in refused.items() if count})


def _operations(graph: Any) -> Iterable[tuple[str, int, bool]]:
    """Yield operation, count and whether it is refused, for the graph and each of its functions."""
    functions = {one.signature.name: one.node_def for one in graph.graph_def.library.function}
    savers = _saver_functions(graph, functions)
    for name, nodes in ((None, graph.graph_def.node), *functions.items()):
        for operation, count in Counter(node.op for node in nodes).items():
            if operation in functions:
                continue
            yield operation, count, _is_refused(operation, in_saver=name in savers)


def _is_refused(operation: str, *, in_saver: bool) -> bool:
    from tensorflow.python.framework import op_def_registry

    if _CHECKPOINT.fullmatch(operation):
        return not in_saver
    # An operation TensorFlow does not know comes from a library that would have to be loaded first.
    return bool(_DENIED.fullmatch(operation)) or op_def_registry.get(operation) is None


def _saver_functions(graph: Any, functions: Mapping[str, Any]) -> set[str]:
    """Return the functions that only saving and restoring reaches, through the nodes the saver names."""
    saver = {_node(name) for name in (graph.saver_def.save_tensor_name, graph.saver_def.restore_op_name) if name}
    own = _reach((node for node in graph.graph_def.node if node.name in saver), functions)
    others = _reach((node for node in graph.graph_def.node if node.name not in saver), functions)
    for name, nodes in functions.items():
        if name not in own:
            others |= _reach(nodes, functions)
    return own - others - _callable_by_name(graph)


def _callable_by_name(graph: Any) -> set[str]:
    """Return the functions that the loaded object offers to its caller."""
    return {
        name
        for node in graph.object_graph_def.nodes
        for name in (*node.function.concrete_functions, node.bare_concrete_function.concrete_function_name)
        if name
    }


def _reach(nodes: Iterable[Any], functions: Mapping[str, Any]) -> set[str]:
    found: set[str] = set()
    waiting = [name for node in nodes for name in _called(node, functions)]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting.extend(inner for node in functions[name] for inner in _called(node, functions))
    return found


def _called(node: Any, functions: Mapping[str, Any]) -> list[str]:
    names = [node.op]
    for value in node.attr.values():
        names.append(value.func.name)
        names.extend(one.name for one in value.list.func)
    return [name for name in names if name in functions]


def _node(tensor: str) -> str:
    return tensor.removeprefix("^").partition(":")[0]
