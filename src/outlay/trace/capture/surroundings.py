"""What a script finds around it while it is traced: its data, its files, its options.

Batches are made by the script's own datasets, transforms and collate functions, of a few samples
that are repeated; a loader does not end before the steps are recorded, and an evaluation gets two
batches. Files are read as they are. What the script would write goes into a folder that is deleted
afterwards, and what it would remove or rename stays. Nothing is logged to a tracker, and no process
is started to train in.
"""

from __future__ import annotations

import argparse
import builtins
import contextlib
import io
import itertools
import multiprocessing.process
import os
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
)
from torch.utils import data
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_flatten, tree_iter, tree_map

from outlay.trace.capture.missing_data import patch_weights
from outlay.trace.capture.wrappers import AttributePatches
from outlay.trace.target import names_batch_size

DISTINCT_SAMPLES = 8
"""Samples of a batch that are really made; the others repeat them."""
MOST_SAMPLES = 512
"""Those that are made where they differ in shape."""
EVALUATION_BATCHES = 2
_MOST_COLLATED_BYTES = 2**28
"""Batches above are put together from fake samples."""
_REPEATED_CALLS = 4
"""Calls of a model in evaluation mode that are really made between two steps, of one shape."""

_QUIET = {
    "WANDB_MODE": "disabled",
    "WANDB_SILENT": "true",
    "COMET_MODE": "DISABLED",
    "NEPTUNE_MODE": "debug",
    "CLEARML_OFFLINE_MODE": "1",
    "MLFLOW_TRACKING_URI": "file:/dev/null",
    "TQDM_DISABLE": "1",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
}
_RANKS = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1"}
_MASTER = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}


class ScriptSurroundings:
    """Everything that is replaced around one script; `notes` gets what was."""

    def __init__(self, notes: set[str], folder: str, batch_size: int | None = None) -> None:
        self.notes = notes
        self._folder = os.path.realpath(folder)
        """Where what the script writes goes."""
        self.batch_size = batch_size
        """The one to trace at; None is the script's own."""
        self.resizes_loaders = False
        """Whether loaders are given the batch size, as no option of the script says it."""
        self.option: str | None = None
        """The option of the script's own parser that is the batch size."""
        self.own_batch_size: int | None = None
        """What that option was without us."""
        self.in_evaluation = False
        self.has_evaluated = False
        """Whether a model was put into evaluation mode since the last step."""
        self.steps = 0
        """Optimizer steps so far."""
        self.samples: Counter[int] = Counter()
        """Samples that each loader gave since they were last set to 0, by its number."""
        self.loader_sizes: dict[int, int] = {}
        """The batch size of each loader."""
        self.started: list[str] = []
        """Programs that the script has started."""
        self._calls: Counter[object] = Counter()
        self._results: dict[object, tuple[list[object], Any]] = {}
        self._written: dict[str, str] = {}
        """Where each file that the script has written really is."""
        self._train_depth = 0
        """How many modules deep a change of mode is."""

    def install(self, patches: AttributePatches) -> None:
        """Replace it all until `patches` are restored."""
        os.environ.update(_QUIET)
        self._patch_loaders(patches)
        self._patch_modes(patches)
        self._patch_repeated_calls(patches)
        self._patch_parser(patches)
        self._patch_processes(patches)
        _patch_tensorboard(patches)
        patch_weights(patches, self.notes)
        patches.set(tempfile, "tempdir", self._folder)
        self._patch_files(patches)

    def after_step(self) -> None:
        """Say that an optimizer has stepped."""
        self.steps += 1
        self.in_evaluation = self.has_evaluated = False
        self._calls.clear()
        self._results.clear()

    # Data

    def _patch_loaders(self, patches: AttributePatches) -> None:
        numbers = itertools.count(1)

        def iterate(loader: Any) -> Iterator[Any]:
            number = vars(loader).setdefault("_outlay_number", next(numbers))
            return _batches(self, loader, number)

        patches.set(data.DataLoader, "__iter__", iterate)

    def size_of(self, loader: Any) -> int | None:
        """The batch size that a loader is to have."""
        own: int | None = loader.batch_size
        if own is None or self.batch_size is None or self.option is not None:
            return own
        # Without an option that says it, the loader that is trained on is what has it.
        is_training = not self.in_evaluation and torch.is_grad_enabled()
        return self.batch_size if is_training and self.resizes_loaders else own

    # Modes, and evaluations that take long

    def _patch_modes(self, patches: AttributePatches) -> None:
        original = nn.Module.train

        def train(module: nn.Module, mode: bool = True) -> nn.Module:
            if not self._train_depth:
                self._note_mode(evaluates=not mode)
            self._train_depth += 1
            try:
                result: nn.Module = original(module, mode)
            finally:
                self._train_depth -= 1
            return result

        patches.set(nn.Module, "train", train)

    def _note_mode(self, *, evaluates: bool) -> None:
        self.in_evaluation = evaluates
        self.has_evaluated |= evaluates

    def _patch_repeated_calls(self, patches: AttributePatches) -> None:
        """Answer a model that is evaluated again and again from what it returned before."""
        original = nn.Module.__call__
        depth = 0

        def call(module: nn.Module, *args: object, **kwargs: object) -> object:
            nonlocal depth
            if depth or module.training or torch.is_grad_enabled():
                return original(module, *args, **kwargs)
            key = id(module), _shapes((args, kwargs))
            self._calls[key] += 1
            if self._calls[key] > _REPEATED_CALLS and key in self._results:
                leaves, spec = self._results[key]
                return spec.unflatten([_like(leaf) for leaf in leaves])
            depth += 1
            try:
                result = original(module, *args, **kwargs)
            finally:
                depth -= 1
            with contextlib.suppress(Exception):
                self._results[key] = _kept(result)
            return result

        patches.set(nn.Module, "__call__", call)

    # Options

    def _patch_parser(self, patches: AttributePatches) -> None:
        original = argparse.ArgumentParser.parse_known_args

        def parse(
            parser: argparse.ArgumentParser, args: Any = None, namespace: Any = None
        ) -> tuple[Any, list[str]]:
            found, rest = original(parser, args, namespace)
            self._set_batch_size(found)
            return found, rest

        patches.set(argparse.ArgumentParser, "parse_known_args", parse)

    def _set_batch_size(self, found: Any) -> None:
        names = [
            name
            for name, value in vars(found).items()
            if names_batch_size(name) and isinstance(value, int) and not isinstance(value, bool)
        ]
        if not names or self.option not in (None, names[0]):
            return
        self.option, self.own_batch_size = names[0], getattr(found, names[0])
        if self.batch_size is not None:
            setattr(found, self.option, self.batch_size)

    # Processes

    def _patch_processes(self, patches: AttributePatches) -> None:
        def spawn(
            function: Callable[..., object], args: Sequence[object] = (), *_: object, **__: object
        ) -> None:
            self.notes.add("Processes were left out: the first one's work is traced in this one.")
            as_first_rank()
            function(0, *args)

        patches.set(torch.multiprocessing, "spawn", spawn)
        spawner = sys.modules.get("torch.multiprocessing.spawn")
        if isinstance(spawner, ModuleType):
            patches.set(spawner, "spawn", spawn)
        process = multiprocessing.process.BaseProcess

        def start(started: Any) -> None:
            self.started.append(f"a process for {getattr(started, '_target', None)!r}")

        patches.set(process, "start", start)
        patches.set(process, "join", lambda *_, **__: None)

        def on_event(event: str, args: tuple[Any, ...]) -> None:
            if event in ("subprocess.Popen", "os.exec", "os.posix_spawn"):
                words = args[1] if len(args) > 1 else args[0]
                text = words if isinstance(words, str) else " ".join(map(str, words))
                self.started.append(text)

        sys.addaudithook(on_event)

    # Files

    def _patch_files(self, patches: AttributePatches) -> None:
        real_open = builtins.open

        def open_(file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
            if isinstance(file, int) or not isinstance(mode, str):
                return real_open(file, mode, *args, **kwargs)
            return real_open(self._redirected(file, mode), mode, *args, **kwargs)

        patches.set(builtins, "open", open_)
        patches.set(io, "open", open_)
        for owner, names in (
            (os, ("remove", "unlink", "rmdir", "removedirs", "rename", "replace", "truncate")),
            (os, ("link", "symlink", "chmod", "utime")),
            (shutil, ("rmtree", "move", "copy", "copy2", "copyfile", "copytree", "make_archive")),
        ):
            for name in names:
                patches.set(owner, name, self._on_own_files(getattr(owner, name)))
        for name in ("mkdir", "makedirs"):
            patches.set(os, name, self._making(getattr(os, name)))

    def _redirected(self, file: Any, mode: str) -> Any:
        """Where a file is really opened: in the folder where it is written, or was."""
        path = _absolute(file)
        if self._is_own(path) or path.startswith(("/dev/", "/proc/")):
            return file
        if not set(mode) & set("wax+"):
            return self._written.get(path, file)
        if path not in self._written:
            shadow = f"{self._folder}{os.sep}{len(self._written)}-{Path(path).name}"
            if not set(mode) & set("wx") and Path(path).is_file():
                with contextlib.suppress(OSError):
                    _copy(path, shadow)
            self._written[path] = shadow
        return self._written[path]

    def _is_own(self, path: str) -> bool:
        """Whether it is in the folder that is deleted: temporary files of the script are, too."""
        return os.path.realpath(path).startswith(self._folder)

    def _on_own_files(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def call(path: Any, *args: Any, **kwargs: Any) -> Any:
            places = [path, *(arg for arg in args[:1] if isinstance(arg, str | os.PathLike))]
            if isinstance(path, int) or all(self._is_own(_absolute(place)) for place in places):
                return original(path, *args, **kwargs)
            return None

        return call

    def _making(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Folders are not made: what would be written into them is written elsewhere."""

        def make(path: Any, *args: Any, **kwargs: Any) -> Any:
            if self._is_own(_absolute(path)):
                return original(path, *args, **kwargs)
            return None

        return make


def as_first_rank() -> None:
    """Give a script that asks for them the variables that a launcher sets for one process."""
    for name, value in {**_RANKS, **_MASTER}.items():
        os.environ.setdefault(name, value)


RANK_VARIABLES = frozenset(_RANKS) | frozenset(_MASTER)


def _absolute(path: Any) -> str:
    return str(Path(os.fsdecode(path)).absolute())


def _copy(source: str, destination: str) -> None:
    destination_path = Path(destination)
    destination_path.write_bytes(Path(source).read_bytes())


# Batches


def _batches(around: ScriptSurroundings, loader: Any, number: int) -> Iterator[Any]:
    """What a loader gives to a script that is traced."""
    steps_at_start, given = around.steps, 0
    while True:
        before = given
        for batch, samples in _epoch(around, loader):
            if given >= EVALUATION_BATCHES and (
                around.in_evaluation or not torch.is_grad_enabled()
            ):
                return
            given += 1
            if not around.in_evaluation:
                around.samples[number] += samples
                around.loader_sizes[number] = samples
            yield batch
        if given == before or around.steps == steps_at_start:
            return


def _epoch(around: ScriptSurroundings, loader: Any) -> Iterator[tuple[Any, int]]:
    """Its batches with their samples, made from a few where that can be."""
    size = around.size_of(loader)
    if size is None or loader._dataset_kind != data._DatasetKind.Map or not loader._auto_collation:
        yield from _real_epoch(loader)
        return
    length = len(loader)

    def made() -> list[Any]:
        indices = iter(loader.sampler)
        samples = [
            loader.dataset[index]
            for index in itertools.islice(indices, min(DISTINCT_SAMPLES, size))
        ]
        if len({_shapes(sample) for sample in samples}) > 1:
            # Of different lengths: how long the longest is depends on how many there are.
            rest = itertools.islice(indices, min(MOST_SAMPLES, size) - len(samples))
            samples += [loader.dataset[index] for index in rest]
        return samples

    samples = _really(made)
    if not samples:
        return
    for _ in range(max(length, 1)):
        yield _collated(loader, samples, size), size


def _collated(loader: Any, samples: list[Any], size: int) -> Any:
    """A batch of so many samples."""
    many = list(itertools.islice(itertools.cycle(samples), size))
    tensors = [leaf for leaf in tree_iter(samples[0]) if isinstance(leaf, Tensor)]
    size_bytes = size * sum(t.numel() * t.element_size() for t in tensors)
    if size_bytes > _MOST_COLLATED_BYTES:
        return loader.collate_fn(tree_map(_fake, many))
    return _really(lambda: loader.collate_fn(many))


def _fake(value: object) -> object:
    return torch.empty_like(value) if isinstance(value, Tensor) else value


def _real_epoch(loader: Any) -> Iterator[tuple[Any, int]]:
    """Batches as the loader makes them: an iterable dataset, a batch sampler of the script's."""
    iterator = _really(loader._get_iterator)
    while True:
        try:
            batch = _really(lambda: next(iterator))
        except StopIteration:
            return
        yield batch, loader.batch_size or _rows(batch)


def _rows(batch: object) -> int:
    tensors = (leaf for leaf in tree_iter(batch) if isinstance(leaf, Tensor) and leaf.dim())
    first = next(tensors, None)
    return 1 if first is None else int(first.shape[0])


def _really(make: Callable[[], Any]) -> Any:
    """What `make` returns when it computes on real tensors, although fake ones are in force.

    Where it has some of those too, made by the script before, it is called on fake ones.
    """
    try:
        with _disable_current_modes():
            return make()
    except (DataDependentOutputException, DynamicOutputShapeException, RuntimeError):
        return make()


# Results that are given again


def _shapes(values: object) -> tuple[object, ...]:
    return tuple(
        (tuple(leaf.shape), leaf.dtype, leaf.device) if isinstance(leaf, Tensor) else type(leaf)
        for leaf in tree_iter(values)
    )


def _kept(result: object) -> tuple[list[object], Any]:
    leaves, spec = tree_flatten(result)
    return [_meta(leaf) for leaf in leaves], spec


class _Shape:
    """What a tensor looks like."""

    def __init__(self, tensor: Tensor) -> None:
        self.shape, self.stride = tuple(tensor.shape), tensor.stride()
        self.dtype, self.device = tensor.dtype, tensor.device


def _meta(leaf: object) -> object:
    return _Shape(leaf) if isinstance(leaf, Tensor) else leaf


def _like(leaf: object) -> object:
    if not isinstance(leaf, _Shape):
        return leaf
    return torch.empty_strided(leaf.shape, leaf.stride, dtype=leaf.dtype, device=leaf.device)


# Trackers


class _NoWriter:
    """A writer for TensorBoard that writes nothing."""

    def __init__(self, *_: object, **__: object) -> None:
        self.log_dir = ""

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_, **__: None

    def __enter__(self) -> _NoWriter:
        return self

    def __exit__(self, *_: object) -> None:
        pass


def _patch_tensorboard(patches: AttributePatches) -> None:
    """A module of its own where TensorBoard is, or is not, installed: nothing is written."""
    name = "torch.utils.tensorboard"
    before = sys.modules.get(name)
    stand_in = ModuleType(name)
    vars(stand_in).update(SummaryWriter=_NoWriter, FileWriter=_NoWriter)
    sys.modules[name] = stand_in
    patches.on_restore(lambda: _put_back(name, before))


def _put_back(name: str, module: ModuleType | None) -> None:
    if module is None:
        sys.modules.pop(name, None)
    else:
        sys.modules[name] = module
