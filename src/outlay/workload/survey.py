"""What is in a file or folder of training data: how many samples, how long, how large.

    survey_data(Path("train.jsonl"))          lines, their text in bytes, the damaged ones
    survey_data(Path("photos"))               images, and what they take on disk
    survey_data(path, tokenizer_at(folder))   lengths in tokens as a tokenizer counts them

Chats and texts are read as the Hugging Face libraries have them: `messages`, `prompt` and
`completion`, `chosen` and `rejected`, `text`. What is large is looked at in places spread evenly
over it, and counted from them: `is_estimated` says so. Ten gigabytes take a few seconds.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import struct
import wave
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice, pairwise
from pathlib import Path
from typing import Any, Literal

from outlay.errors import ExtraMissing, InputError
from outlay.facts import assumed
from outlay.units import GB, MB

DataKind = Literal["text", "images", "audio"]
TokenCounter = Callable[[Sequence[str]], list[int]]
"""The tokens of each of several texts."""

WHOLE_BYTES = 64 * MB
"""Up to this a file is read from its first line to its last."""
BLOCKS, BLOCK_BYTES = 64, MB
"""Of a larger one so many places are read, so much of each."""
FILES_LOOKED_AT = 2_000
"""Of a folder of images or sounds, spread evenly; of the others only the name is read."""
TEXTS_COUNTED = 400
"""Texts whose tokens are counted; those of the others follow from their bytes."""
DAMAGED_NAMED = 5
TEXT_BYTES_OF_A_SAMPLE = 1_000
# Assumes: in a table a sample takes a kilobyte, where its file is weighed against single files.
_LARGEST_JSON_BYTES = 256 * MB
_MOST_FILES = 20_000_000

_TEXT = (".txt", ".md")
_LINES = (".jsonl", ".ndjson")
_CELLS = (".csv", ".tsv")
_TABLES = (*_LINES, ".json", *_CELLS, ".parquet")
_IMAGES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff")
_AUDIO = (".wav", ".flac", ".mp3", ".ogg", ".opus", ".m4a")
_WITHOUT_TEXT = "no text in it"


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenLengths:
    """How many tokens a sample has."""

    mean: float
    percentiles: tuple[int, ...]
    """Every fifth, from the shortest of those looked at to the longest."""
    counted_by: Literal["tokenizer", "bytes"]

    @property
    def median(self) -> int:
        """As many samples are longer as are shorter."""
        return self.percentiles[len(self.percentiles) // 2]

    @property
    def longest(self) -> int:
        """Of those looked at."""
        return self.percentiles[-1]

    def share_above(self, tokens: int) -> float:
        """The share of samples that are longer, between percentiles on a straight line."""
        last = len(self.percentiles) - 1
        for place, (low, high) in enumerate(pairwise(self.percentiles)):
            if tokens < high:
                inside = max(tokens - low, 0) / max(high - low, 1)
                return 1 - (place + inside) / last
        return 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSurvey:
    """What is in a file or folder of training data."""

    path: str
    kind: DataKind
    samples: int
    size_bytes: int
    """On disk."""
    is_estimated: bool = False
    """Whether parts of it were read, and the rest counted from them."""
    looked_at: int = 0
    """Samples whose length was read."""
    lengths: TokenLengths | None = None
    """Of texts."""
    audio_s: float | None = None
    """Of sounds, all of them together."""
    read_from: str = ""
    """The fields that texts were read from: `messages`, `text`, `prompt and completion`."""
    damaged: int = 0
    """Lines that are no sample; of a file that was read in parts, those seen there."""
    damaged_lines: tuple[str, ...] = ()
    """The first of them, with what is wrong."""

    @property
    def tokens(self) -> float | None:
        """All tokens of its texts."""
        return None if self.lengths is None else self.lengths.mean * self.samples


def survey_data(path: Path, count_tokens: TokenCounter | None = None) -> DataSurvey:
    """What is in a file or a folder: texts, images or sounds.

    count_tokens: a tokenizer; without one a token is as many bytes as it is on average in English.
    """
    texts = _Texts()
    try:
        if path.is_dir():
            return _survey_folder(path, texts, count_tokens)
        size = path.stat().st_size
        _read_table(path, texts)
    except FileNotFoundError:
        raise InputError(
            f"There is no data at {path}.", fix="Check the path, or give --samples and --tokens."
        ) from None
    except OSError as error:
        raise InputError(f"The data at {path} cannot be read: {error.strerror}.") from error
    return texts.survey(path, size, count_tokens)


# Texts: what is gathered of a file, and the lengths of it


class _Texts:
    """What was read of one file or several of them."""

    def __init__(self) -> None:
        self.samples = 0.0
        self.lengths: list[int] = []
        self.kept: list[str] = []
        self.fields: dict[str, None] = {}
        self.damaged = 0
        self.named: list[str] = []
        self.is_estimated = False
        self._next_kept = 1

    def add(self, text: str, read_from: str) -> None:
        """A sample: every so often its text is kept, more rarely the more there are."""
        self.lengths.append(len(text.encode("utf-8", "replace")))
        self.fields[read_from] = None
        if len(self.lengths) >= self._next_kept:
            self.kept.append(text)
            self._next_kept += 1 + len(self.lengths) // TEXTS_COUNTED

    def add_damaged(self, where: str, why: str) -> None:
        """A line that is no sample."""
        self.damaged += 1
        if len(self.named) < DAMAGED_NAMED:
            self.named.append(f"{where}: {why}")

    def survey(self, path: Path, size_bytes: int, count_tokens: TokenCounter | None) -> DataSurvey:
        """What was read, with lengths in tokens."""
        if not self.lengths:
            why = f"{self.named[0]}." if self.named else "It is empty."
            raise InputError(
                f"No sample was found in {path}.",
                why=why,
                fix="Of each line or row a field is read: text, messages, prompt and completion.",
            )
        return DataSurvey(
            path=str(path),
            kind="text",
            samples=max(round(self.samples), 1),
            size_bytes=size_bytes,
            is_estimated=self.is_estimated,
            looked_at=len(self.lengths),
            lengths=self._token_lengths(count_tokens),
            read_from=", ".join(self.fields),
            damaged=self.damaged,
            damaged_lines=tuple(self.named),
        )

    def _token_lengths(self, count_tokens: TokenCounter | None) -> TokenLengths:
        """The distribution of bytes, at so many bytes a token as the texts that were kept have."""
        bytes_per_token = assumed("text_bytes_per_token")
        counted = sum(count_tokens(self.kept)) if count_tokens else 0
        if counted:
            kept_bytes = sum(len(text.encode("utf-8", "replace")) for text in self.kept)
            bytes_per_token = max(kept_bytes, 1) / counted
        ordered = sorted(self.lengths)
        places = (round((len(ordered) - 1) * share / 20) for share in range(21))
        return TokenLengths(
            mean=sum(ordered) / len(ordered) / bytes_per_token,
            percentiles=tuple(round(ordered[place] / bytes_per_token) for place in places),
            counted_by="tokenizer" if counted else "bytes",
        )


def text_of(record: Mapping[str, Any]) -> tuple[str, str]:
    """The text that a record trains on, and the fields it was read from; empty where it has none.

    Of `chosen` and `rejected` the longer answer counts: both are as long when they are padded.
    """
    for name in ("messages", "conversations", "conversation"):
        if isinstance(record.get(name), list):
            return _chat(record[name]), name
    prompt = _message_text(record.get("prompt"))
    if record.get("chosen") is not None and record.get("rejected") is not None:
        answer = max(_message_text(record["chosen"]), _message_text(record["rejected"]), key=len)
        return prompt + answer, "chosen and rejected"
    for names in _PAIRS:
        if names[0] in record and names[-1] in record:
            parts = (_message_text(record.get(name)) for name in names)
            return "\n".join(part for part in parts if part), f"{names[0]} and {names[-1]}"
    for name in ("text", "content", "document", "sentence"):
        if isinstance(record.get(name), str):
            return record[name], name
    found = [value for value in record.values() if isinstance(value, str)]
    return "\n".join(found), "all texts of a record"


_PAIRS = (
    ("prompt", "completion"),
    ("prompt", "response"),
    ("instruction", "input", "output"),
    ("instruction", "output"),
    ("instruction", "response"),
    ("question", "answer"),
    ("query", "response"),
)


def _message_text(value: object) -> str:
    """A text, or the texts of messages."""
    if isinstance(value, str):
        return value
    return _chat(value) if isinstance(value, list) else ""


def _chat(messages: Iterable[object]) -> str:
    """What is said in a conversation, one line a message."""
    return "\n".join(
        _content(message.get("content", message.get("value")))
        for message in messages
        if isinstance(message, Mapping)
    )


def _content(content: object) -> str:
    """The text of a message: itself, or of its parts those that are text."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    parts = (part.get("text") for part in content if isinstance(part, Mapping))
    return "\n".join(part for part in parts if isinstance(part, str))


# Files of records


def _read_table(path: Path, texts: _Texts) -> None:
    """Read a file of samples: its count, their texts, and what is damaged."""
    kind = _ending(path)
    if kind in _LINES:
        _read_lines(path, texts)
    elif kind in _CELLS:
        _read_cells(path, texts, "\t" if kind == ".tsv" else ",")
    elif kind == ".parquet":
        _read_parquet(path, texts)
    elif kind == ".json":
        _read_json(path, texts)
    elif kind in _TEXT:
        _read_text(path, texts)
    else:
        raise InputError(
            f"{path} is no file of samples that outlay reads.",
            why=f"It reads {', '.join((*_TABLES, *_TEXT))}, those of lines and cells also as .gz.",
            fix="Give a folder of images or sounds as a whole, or --samples and --tokens.",
        )


def _ending(path: Path) -> str:
    """`.jsonl` of `train.jsonl` and of `train.jsonl.gz`."""
    name = path.name.lower()
    plain = name.removesuffix(".gz")
    ending = Path(plain).suffix
    return ending if plain == name or ending in (*_LINES, *_CELLS) else ".gz"


def _read_lines(path: Path, texts: _Texts) -> None:
    """JSON, one record a line."""
    size = path.stat().st_size
    if path.name.lower().endswith(".gz") or size <= WHOLE_BYTES:
        before = texts.samples
        part = _FirstLines(path)
        for where, line in part.lines():
            texts.samples += _add_record(texts, f"line {where}", line)
        _scale_up(texts, before, part.read_fraction)
        return
    found, seen_bytes = 0, 0
    with path.open("rb") as file:
        for place in range(BLOCKS):
            start = place * (size - BLOCK_BYTES) // (BLOCKS - 1)
            seen_bytes += BLOCK_BYTES
            for where, line in _lines_that_start_in(file, start):
                found += _add_record(texts, f"at byte {where:,}", line)
    texts.samples += found / seen_bytes * size
    texts.is_estimated = True


def _scale_up(texts: _Texts, before: float, read_fraction: float) -> None:
    """Count what was not read of a file by what was."""
    if read_fraction < 1:
        texts.samples = before + (texts.samples - before) / max(read_fraction, 1e-9)
        texts.is_estimated = True


def _lines_that_start_in(file: io.BufferedIOBase, start: int) -> Iterator[tuple[int, bytes]]:
    """Lines whose first byte lies in a block: each line of a file in just one place of it."""
    file.seek(max(start - 1, 0))
    if start:
        file.readline()
    while (where := file.tell()) < start + BLOCK_BYTES:
        line = file.readline()
        if not line:
            return
        yield where, line


class _FirstLines:
    """The lines of a file from its first on, gzipped or not, until so much was read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.read_fraction = 1.0

    def lines(self) -> Iterator[tuple[int, bytes]]:
        """Each with its number; `read_fraction` then says how much of the file they were."""
        size, seen_bytes = max(self.path.stat().st_size, 1), 0
        with self.path.open("rb") as raw:
            is_packed = self.path.name.lower().endswith(".gz")
            file = gzip.GzipFile(fileobj=raw) if is_packed else raw
            try:
                for number, line in enumerate(file, 1):
                    yield number, line
                    seen_bytes += len(line)
                    if seen_bytes > WHOLE_BYTES and (at := raw.tell()) < size:
                        self.read_fraction = at / size
                        return
            except (EOFError, gzip.BadGzipFile) as error:
                raise InputError(f"{self.path} is gzip, but damaged: {error}.") from error


def _add_record(texts: _Texts, where: str, line: bytes) -> int:
    """Add the record of a line; 1 where it is one. An empty line is none, and no damage."""
    if not line.strip():
        return 0
    try:
        record = json.loads(line.decode("utf-8-sig"))
    except UnicodeDecodeError:
        texts.add_damaged(where, "not UTF-8")
        return 0
    except (ValueError, RecursionError):
        texts.add_damaged(where, "not JSON")
        return 0
    return _add(texts, where, record)


def _add(texts: _Texts, where: str, record: object) -> int:
    if isinstance(record, str):
        record = {"text": record}
    if not isinstance(record, Mapping):
        texts.add_damaged(where, "JSON, but no record")
        return 0
    text, read_from = text_of(record)
    if not text.strip():
        texts.add_damaged(where, _WITHOUT_TEXT)
        return 0
    texts.add(text, read_from)
    return 1


def _read_json(path: Path, texts: _Texts) -> None:
    """One JSON text: a list of records."""
    if path.stat().st_size > _LARGEST_JSON_BYTES:
        raise InputError(
            f"{path} is one JSON text of {path.stat().st_size / GB:.3g} GB.",
            why="Such a text must be read as a whole.",
            fix="Write it as JSONL, one record a line; that is also how it is best trained on.",
        )
    try:
        content = json.loads(path.read_bytes().decode("utf-8-sig"))
    except (ValueError, RecursionError):  # perhaps lines of JSON under another name
        _read_lines(path, texts)
        return
    records = content
    if isinstance(content, Mapping):
        lists = [value for value in content.values() if isinstance(value, list)]
        records = lists[0] if len(lists) == 1 else [content]
    for number, record in enumerate(records if isinstance(records, list) else [records], 1):
        texts.samples += _add(texts, f"record {number}", record)


def _read_cells(path: Path, texts: _Texts, delimiter: str) -> None:
    """Comma-separated rows under a head; of a large file those at its beginning."""
    before, part = texts.samples, _FirstLines(path)
    lines = (line.decode("utf-8-sig", "replace") for _, line in part.lines())
    csv.field_size_limit(WHOLE_BYTES)
    try:
        for number, row in enumerate(csv.DictReader(lines, delimiter=delimiter), 2):
            if None in row or None in row.values():
                texts.add_damaged(f"row {number}", "not as many cells as the head")
            else:
                texts.samples += _add(texts, f"row {number}", row)
    except csv.Error as error:
        raise InputError(f"{path} cannot be read as rows of cells: {error}.") from error
    _scale_up(texts, before, part.read_fraction)


def _read_parquet(path: Path, texts: _Texts) -> None:
    """Parquet: its own count of rows, and the texts of some of them."""
    try:
        import pyarrow
        import pyarrow.parquet as parquet
    except ImportError:
        raise ExtraMissing(
            f"{path} is Parquet, which needs pyarrow.",
            fix="pip install pyarrow, or give --samples and --tokens.",
        ) from None
    try:
        file = parquet.ParquetFile(path)
        rows = file.metadata.num_rows
        first = next(file.iter_batches(batch_size=5_000), None)
    except (pyarrow.ArrowException, OSError) as error:
        raise InputError(f"{path} cannot be read as Parquet: {error}.") from error
    records = [] if first is None else first.to_pylist()
    found = sum(_add(texts, f"row {number}", row) for number, row in enumerate(records, 1))
    texts.samples += rows * found / max(len(records), 1)
    texts.is_estimated = texts.is_estimated or (found < len(records) < rows)


def _read_text(path: Path, texts: _Texts) -> None:
    """A file that is one text."""
    with path.open("rb") as file:
        start = file.read(BLOCK_BYTES).decode("utf-8", "replace")
    size = path.stat().st_size
    if not start.strip():
        texts.add_damaged(str(path), _WITHOUT_TEXT)
        return
    texts.samples += 1
    texts.add(start, "whole files")
    texts.lengths[-1] = size


# Folders


def _survey_folder(path: Path, texts: _Texts, count_tokens: TokenCounter | None) -> DataSurvey:
    """A folder by what most of its files are: tables of samples, images, sounds or texts."""
    by_kind = _files_by_kind(path)
    if not any(by_kind.values()):
        raise InputError(
            f"No training data was found in {path}.",
            why=f"outlay knows {', '.join((*_TABLES, *_TEXT, *_IMAGES, *_AUDIO))}.",
            fix="Check the path, or give --samples and --tokens.",
        )
    kind, files = max(by_kind.items(), key=lambda entry: _weight(*entry))
    if kind in ("images", "audio"):
        return _survey_media(path, files, "audio" if kind == "audio" else "images")
    looked_at = files if kind == "table" else _spread(files, FILES_LOOKED_AT)
    for file in looked_at:
        _read_table(file, texts)
    share = len(files) / len(looked_at)
    texts.samples *= share
    texts.is_estimated = texts.is_estimated or share > 1
    size_bytes = round(sum(file.stat().st_size for file in looked_at) * share)
    return texts.survey(path, size_bytes, count_tokens)


def _weight(kind: str, files: Sequence[Path]) -> float:
    """How much of a folder's data is of a kind: by bytes, for a table has many samples in a file;
    many small images with a table of their labels are images."""
    if kind == "table":
        return sum(file.stat().st_size for file in files) / TEXT_BYTES_OF_A_SAMPLE
    return float(len(files))


def _files_by_kind(folder: Path) -> dict[str, list[Path]]:
    """The files of a folder and those in it, by what they are; hidden ones are none of the data."""
    kinds: dict[str, list[Path]] = {"table": [], "images": [], "audio": [], "text": []}
    by_ending = {
        **dict.fromkeys(_TABLES, "table"),
        **dict.fromkeys(_IMAGES, "images"),
        **dict.fromkeys(_AUDIO, "audio"),
        **dict.fromkeys(_TEXT, "text"),
    }
    for file in islice(_files_in(str(folder)), _MOST_FILES):
        name = file.rpartition(os.sep)[2].lower()
        ending = by_ending.get("." + name.removesuffix(".gz").rpartition(".")[2])
        is_about = name.startswith(("readme", "license", "requirements"))
        if ending is not None and not (is_about and ending == "text"):
            kinds[ending].append(Path(file))
    return {kind: sorted(files) for kind, files in kinds.items()}


def _files_in(folder: str) -> Iterator[str]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith("."):
                continue
            if entry.is_dir(follow_symlinks=False):
                yield from _files_in(entry.path)
            elif entry.is_file():
                yield entry.path


def _spread(files: Sequence[Path], most: int) -> Sequence[Path]:
    """So many of the files, evenly over all of them."""
    if len(files) <= most:
        return files
    return [files[place * len(files) // most] for place in range(most)]


def _survey_media(
    path: Path, files: Sequence[Path], kind: Literal["images", "audio"]
) -> DataSurvey:
    """Images or sounds: how many, how large, and how long sounds are."""
    looked_at = _spread(files, FILES_LOOKED_AT)
    sizes = [file.stat().st_size for file in looked_at]
    share = len(files) / len(looked_at)
    survey = DataSurvey(
        path=str(path),
        kind=kind,
        samples=len(files),
        size_bytes=round(sum(sizes) * share),
        is_estimated=share > 1,
        looked_at=len(looked_at),
        damaged=sum(size == 0 for size in sizes),
        damaged_lines=tuple(
            f"{file.name}: empty" for file, size in zip(looked_at, sizes, strict=True) if not size
        )[:DAMAGED_NAMED],
    )
    if kind == "images":
        return survey
    lengths_s = [_audio_s(file, size) for file, size in zip(looked_at, sizes, strict=True)]
    return replace(survey, audio_s=sum(lengths_s) * share)


def _audio_s(file: Path, size: int) -> float:
    """How long a sound is: of WAV and FLAC as they say themselves, else by a usual bit rate."""
    try:
        if file.suffix.lower() == ".wav":
            with wave.open(str(file), "rb") as sound:
                return sound.getnframes() / sound.getframerate()
        if file.suffix.lower() == ".flac":
            with file.open("rb") as raw:
                return _flac_s(raw.read(42))
    except (wave.Error, EOFError, ValueError, struct.error, ZeroDivisionError):
        pass
    return size / assumed("audio_bytes_per_s")


def _flac_s(head: bytes) -> float:
    """Samples by samples a second, of the first block of a FLAC file (RFC 9639, section 8.2)."""
    if head[:4] != b"fLaC":
        raise ValueError("no FLAC file")
    (packed,) = struct.unpack(">Q", head[18:26])
    rate_hz, samples = packed >> 44, packed & (1 << 36) - 1
    return float(samples / rate_hz)


# Tokenizers


def tokenizer_at(folder: Path | str) -> TokenCounter | None:
    """What counts tokens as a `tokenizer.json` does, in a folder or given itself; None where there
    is none, or the package that reads it is not installed."""
    path = Path(folder)
    file = path if path.is_file() else path / "tokenizer.json"
    if not file.is_file():
        return None
    try:
        from tokenizers import Tokenizer
    except ImportError:
        return None
    try:
        tokenizer = Tokenizer.from_file(str(file))
    except Exception as error:  # the package raises nothing narrower
        raise InputError(f"{file} cannot be read as a tokenizer: {error}.") from error
    tokenizer.no_truncation()
    tokenizer.no_padding()

    def counted(texts: Sequence[str]) -> list[int]:
        return [len(encoded.ids) for encoded in tokenizer.encode_batch(list(texts))]

    return counted


def kept_tokenizer(repository: str) -> TokenCounter | None:
    """The tokenizer of a model on the hub, where one of its libraries has fetched it already."""
    home = os.environ.get("HF_HOME") or str(Path("~/.cache/huggingface").expanduser())
    hub = Path(os.environ.get("HF_HUB_CACHE") or Path(home) / "hub")
    snapshots = hub / f"models--{repository.replace('/', '--')}" / "snapshots"
    if not repository or not snapshots.is_dir():
        return None
    found = (tokenizer_at(folder) for folder in sorted(snapshots.iterdir()))
    return next((counter for counter in found if counter is not None), None)
