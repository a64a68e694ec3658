"""GPUs under any usual spelling: `RTX 3090`, `rtx3090`, `NVIDIA A100-SXM4-80GB`.

A spelling is taken apart into what it names (`rtx 3090`), a memory size and a form (PCIe, SXM).
One that leaves memory or form open matches several GPUs: the slowest stands for all, and the
others are kept as candidates so that a range can span them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from outlay.errors import InputError, NotKnown
from outlay.facts import rows_of
from outlay.hardware.gpus import Gpu, gpus
from outlay.units import GIB

_FORMS = {
    "pcie": "pcie",
    "pci": "pcie",
    "sxm": "sxm",
    "sxm2": "sxm",
    "sxm3": "sxm",
    "sxm4": "sxm",
    "sxm5": "sxm",
    "sxm6": "sxm",
    "nvl": "nvl",
    "oam": "oam",
}
_NOISE = {
    "nvidia", "amd", "geforce", "tesla", "instinct", "radeon", "gpu", "graphics", "card",
    "generation", "edition", "blackwell", "hgx", "dgx", "gen",
}  # fmt: skip
_MEMORY_TYPE = re.compile(r"\b(hbm[0-9]?e?|gddr[0-9]x?)\b")
_MEMORY = re.compile(r"(?<![a-z0-9])([0-9]{1,3}) ?(?:gb|gib|g)(?![a-z0-9])")
_TOKEN = re.compile(r"[a-z]+|[0-9]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuMatch:
    """What a spelling means: the GPU that stands for it, and every GPU it may mean."""

    spelling: str
    meaning: str
    """A name that means the same to everybody, not only to the provider who spells it so."""
    candidates: tuple[Gpu, ...]
    """Slowest first; more than one where the spelling leaves memory or form open."""

    @property
    def gpu(self) -> Gpu:
        """The slowest of them, which stands for all."""
        return self.candidates[0]

    @property
    def note(self) -> str:
        """What was taken where the spelling left it open, or an empty text."""
        if len(self.candidates) == 1:
            return ""
        names = ", ".join(gpu.name for gpu in self.candidates[1:])
        return (
            f'"{self.spelling}" leaves the form open: {self.gpu.name} was taken, the slowest; '
            f"the range also covers {names}."
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Spelling:
    """A spelling taken apart."""

    words: tuple[str, ...]
    memory_gib: int | None
    form: str | None


def find_gpu(spelling: str, provider: str | None = None) -> GpuMatch:
    """The GPU a spelling means, as `provider` would mean it where one is given.

    Raises `NotKnown`, with the nearest names, where nobody knows it.
    """
    found = gpu_match(spelling, provider)
    if found is not None:
        return found
    raise NotKnown(
        "GPU",
        spelling,
        _all_names(),
        fix="`outlay gpus` lists every GPU in the table.",
    )


def gpu_match(spelling: str, provider: str | None = None) -> GpuMatch | None:
    """As `find_gpu`; None where nobody knows it. Price lists have thousands of names: looking for
    the nearest ones takes a thousand times as long."""
    for meanings in _readings(spelling, provider):
        candidates = _all_of(meanings)
        if candidates:
            name = candidates[0].name if len(candidates) == 1 else meanings[0]
            return GpuMatch(spelling=spelling, meaning=name, candidates=candidates)
    return None


def _readings(spelling: str, provider: str | None) -> Iterator[tuple[str, ...]]:
    """Names a spelling may be read as, the most certain reading first.

    A provider's own spelling is what the provider means by it: where it means several GPUs that
    only the instance type tells apart, the one of that very name, or else all of them.
    """
    meant = _spellings().get((provider, spelling), ()) if provider else ()
    exact = _index().get(_parse(spelling))
    if len(meant) > 1 and exact is not None and exact.name in meant:
        yield (exact.name,)
    yield meant
    yield (_aliases().get(_letters(spelling), ""),)
    yield (spelling,)
    if spelling.strip()[:1].isdigit():
        yield (f"RTX {spelling}",)
        yield (f"GTX {spelling}",)
    yield _spellings().get(("", spelling), ())


def _all_of(meanings: tuple[str, ...]) -> tuple[Gpu, ...]:
    """Every GPU that any of the names means, slowest first."""
    by_name = {gpu.name: gpu for name in meanings if name for gpu in _candidates(name)}
    return tuple(sorted(by_name.values(), key=_speed))


def _candidates(meaning: str) -> tuple[Gpu, ...]:
    """Every GPU that a name means, slowest first."""
    spelling = _parse(meaning)
    exact = _index().get(spelling)
    if exact is not None:
        return (exact,)
    matches = [gpu for full, gpu in _index().items() if _may_mean(spelling, gpu, full)]
    return tuple(sorted(matches, key=_speed))


def _may_mean(spelling: _Spelling, gpu: Gpu, full: _Spelling) -> bool:
    """Whether a GPU, by its `full` name, is one a spelling may mean: same words, nothing
    contradicted.
    """
    if full.words != spelling.words:
        return False
    if spelling.form is not None and spelling.form not in (full.form, _form_of(gpu)):
        return False
    if spelling.memory_gib is None:
        return True
    return abs(gpu.memory_bytes / GIB - spelling.memory_gib) <= 0.03 * spelling.memory_gib


def _form_of(gpu: Gpu) -> str | None:
    return _FORMS.get(gpu.form.lower())


def _speed(gpu: Gpu) -> tuple[float, float, float]:
    """The order from slow to fast: by bandwidth, then 16-bit arithmetic, then memory."""
    return (gpu.memory_bytes_per_s, gpu.peak_flops_per_s["fp16"], gpu.memory_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineGpus:
    """The GPUs of one machine as they were named."""

    matches: tuple[GpuMatch, ...]
    """More than one where they differ."""
    gpus: int
    """In all."""

    @property
    def spelling(self) -> str:
        """As it was written."""
        return " + ".join(match.spelling for match in self.matches)


def machine_gpus(name: str, gpus: int = 1) -> MachineGpus:
    """The machine that a name means: `A100`, `A100:8`, or `RTX 3090 + RTX 2080 Ti` in one box.

    `gpus` is how many there are where the name does not say.
    """
    parts = [counted(part, name) for part in name.split("+")]
    matches = tuple(find_gpu(spelling) for spelling, _ in parts)
    total = sum(count or 1 for _, count in parts) if len(parts) > 1 else parts[0][1] or gpus
    return MachineGpus(matches=matches, gpus=total)


def single_gpu(name: str) -> GpuMatch:
    """The one GPU that a name means, under any usual spelling; `A100:8` is an error."""
    spelling, colon, _ = name.strip().partition(":")
    if colon:
        raise InputError(
            f"{name.strip()!r} asks for several GPUs; this is about one.",
            fix=f'Write --gpu "{spelling}"; `outlay predict` and `outlay plan` count several.',
        )
    return find_gpu(spelling)


def counted(part: str, name: str) -> tuple[str, int | None]:
    """`A100:8` as its name and count; None where it gives none."""
    spelling, colon, count = part.strip().partition(":")
    if colon and (not count.strip().isdecimal() or int(count) < 1):
        raise InputError(
            f"{name!r} has no usable number of GPUs after the colon.",
            fix=f'Write for example --gpu "{spelling}:8".',
        )
    return spelling.strip(), int(count) if colon else None


def _parse(spelling: str) -> _Spelling:
    text = re.sub(r"[_\-/()]+", " ", spelling.lower())
    text = re.sub(r"(rtx|gtx|quadro|radeon|titan|super)", r" \1 ", text)
    text = re.sub(r"(sxm[2-6]?|pcie|nvl(?!ink))", r" \1 ", text)
    text = re.sub(r"\b(pro)(?=\d)|(?<=\d)(ti)\b", r" \1\2 ", _MEMORY_TYPE.sub(" ", text))
    memory = _MEMORY.search(text)
    if memory is not None:
        text = text[: memory.start()] + " " + text[memory.end() :]
    forms = [word for word in text.split() if word in _FORMS]
    words = [
        part
        for word in text.split()
        if word not in _FORMS and word not in _NOISE
        for part in _TOKEN.findall(word)
    ]
    return _Spelling(
        words=tuple(sorted(_super(words))),
        memory_gib=int(memory[1]) if memory else None,
        form=_FORMS[forms[0]] if forms else None,
    )


def _super(words: list[str]) -> list[str]:
    """GeForce names shorten SUPER to S: `4070S Ti` is the 4070 Ti SUPER."""
    geforce = ("rtx" in words or "gtx" in words) and "pro" not in words
    return ["super" if geforce and word == "s" else word for word in words]


def _letters(spelling: str) -> str:
    """A spelling's letters and figures without the words that say nothing."""
    words = re.findall(r"[a-z0-9]+", spelling.lower())
    return "".join(word for word in words if word not in _NOISE)


@cache
def _index() -> dict[_Spelling, Gpu]:
    return {_parse(gpu.name): gpu for gpu in gpus().values()}


@cache
def _aliases() -> dict[str, str]:
    return {_letters(row["alias"]): row["gpu"] for row in rows_of("gpu_aliases.csv")}


@cache
def _spellings() -> dict[tuple[str, str], tuple[str, ...]]:
    """What each provider means by each of its spellings; "" is what anybody means by it."""
    meanings: dict[tuple[str, str], tuple[str, ...]] = {}
    for row in rows_of("gpu_spellings.csv"):
        for who in (row["provider"], "") if row["gpu"] else ():
            key = (who, row["spelling"])
            meanings[key] = tuple(dict.fromkeys((*meanings.get(key, ()), row["gpu"])))
    return meanings


@cache
def _all_names() -> tuple[str, ...]:
    aliases = [row["alias"] for row in rows_of("gpu_aliases.csv")]
    return (*gpus(), *aliases)
