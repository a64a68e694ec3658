"""What a file or folder of training data holds: counts, lengths, sizes, and what is damaged."""

from __future__ import annotations

import gzip
import io
import json
import random
import struct
import sys
import wave
from types import ModuleType, SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlay.errors import ExtraMissing, InputError
from outlay.facts import assumed
from outlay.workload import survey
from outlay.workload.survey import TokenLengths, kept_tokenizer, survey_data, text_of, tokenizer_at

BYTES_PER_TOKEN = assumed("text_bytes_per_token")


def words():
    """A tokenizer of whole words."""
    return lambda texts: [len(text.split()) for text in texts]


def lines_of(path, records):
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


# Lines of JSON


def test_lines_are_counted_and_measured_by_bytes(tmp_path):
    path = lines_of(tmp_path / "train.jsonl", [{"text": "x" * 426}, {"text": "y" * 852}])
    found = survey_data(path)
    assert (found.kind, found.samples, found.is_estimated) == ("text", 2, False)
    assert found.size_bytes == path.stat().st_size
    assert found.lengths.counted_by == "bytes"
    # (426 + 852) / 2 bytes at 4.26 a token
    assert found.lengths.mean == pytest.approx(639 / BYTES_PER_TOKEN)
    assert found.lengths.longest == round(852 / BYTES_PER_TOKEN)
    assert found.tokens == pytest.approx(2 * 639 / BYTES_PER_TOKEN)


def test_a_tokenizer_counts_instead(tmp_path):
    path = lines_of(tmp_path / "train.jsonl", [{"text": "one two three"}, {"text": "one"}])
    lengths = survey_data(path, words()).lengths
    # 13 and 3 bytes in 4 words: 4 bytes a word, so that both together have 4 words
    assert lengths.counted_by == "tokenizer"
    assert lengths.mean * 2 == pytest.approx(4)


def test_damaged_lines_are_counted_and_named_and_empty_ones_are_neither(tmp_path):
    path = tmp_path / "train.jsonl"
    good = b'{"text": "fine"}'
    path.write_bytes(
        b"\xef\xbb\xbf" + b"\n".join([good, b"{broken", b"", b'{"id": 7}', b"[1]", b"\xff\xfe{}"])
    )
    found = survey_data(path)
    assert found.samples == 1
    assert found.damaged == 4
    assert found.damaged_lines == (
        "line 2: not JSON",
        "line 4: no text in it",
        "line 5: JSON, but no record",
        "line 6: not UTF-8",
    )


def test_only_the_first_damaged_lines_are_named(tmp_path):
    path = tmp_path / "train.jsonl"
    path.write_text('{"text": "fine"}\n' + "{\n" * 20)
    found = survey_data(path)
    assert (found.damaged, len(found.damaged_lines)) == (20, 5)


def test_packed_lines_are_read_too(tmp_path):
    path = tmp_path / "train.jsonl.gz"
    path.write_bytes(gzip.compress(b'{"text": "a text"}\n' * 30))
    assert survey_data(path).samples == 30


def test_a_damaged_archive_is_told(tmp_path):
    path = tmp_path / "train.jsonl.gz"
    path.write_bytes(gzip.compress(b'{"text": "a text"}\n' * 3000)[:60])
    with pytest.raises(InputError, match="gzip, but damaged"):
        survey_data(path)


@pytest.fixture
def small_blocks(monkeypatch):
    """Files above 20 kB are read in 64 places of 1 kB."""
    monkeypatch.setattr(survey, "WHOLE_BYTES", 20_000)
    monkeypatch.setattr(survey, "BLOCK_BYTES", 1_000)


@given(st.lists(st.integers(0, 400), min_size=1, max_size=60))
def test_a_large_file_is_estimated_without_leaning_to_long_or_short_lines(sizes):
    """Lines that start in a block are taken, whatever their length: count and mean stay true."""
    # Of the reader alone: blocks that tile a file yield every line of it, once.
    content = b"".join(b"x" * size + b"\n" for size in sizes)
    block, original = 64, survey.BLOCK_BYTES
    survey.BLOCK_BYTES = block
    try:
        found = [
            line
            for start in range(0, len(content), block)
            for _, line in survey._lines_that_start_in(io.BytesIO(content), start)
        ]
    finally:
        survey.BLOCK_BYTES = original
    assert found == content.splitlines(keepends=True)


def test_a_large_file_is_read_in_places_and_says_so(small_blocks, tmp_path):
    # 4,000 lines of 10 to 209 letters, twenty times over in the same order: about 480 kB
    records = [{"text": "x" * (10 + number % 200)} for number in range(4000)]
    found = survey_data(lines_of(tmp_path / "train.jsonl", records))
    assert found.is_estimated
    assert found.looked_at < 1000
    assert found.samples == pytest.approx(4000, rel=0.1)
    # 10 .. 209 letters: 109.5 on average
    assert found.lengths.mean == pytest.approx(109.5 / BYTES_PER_TOKEN, rel=0.1)


def test_a_large_archive_is_counted_by_what_was_read_of_it(monkeypatch, tmp_path):
    monkeypatch.setattr(survey, "WHOLE_BYTES", 400_000)
    luck = random.Random(7)
    path = tmp_path / "train.jsonl.gz"
    rows = (json.dumps({"text": luck.randbytes(60).hex()}) for _ in range(20_000))
    path.write_bytes(gzip.compress("\n".join(rows).encode()))
    found = survey_data(path)
    assert found.is_estimated
    # 400 kB of it are read: a seventh; what is unpacked ahead of that makes it a little less
    assert found.samples == pytest.approx(20_000, rel=0.1)


# What a record says


@pytest.mark.parametrize(
    ("record", "text", "read_from"),
    [
        ({"text": "a", "id": "b"}, "a", "text"),
        ({"prompt": "a", "completion": "b"}, "a\nb", "prompt and completion"),
        (
            {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]},
            "a\nb",
            "messages",
        ),
        ({"conversations": [{"from": "human", "value": "a"}]}, "a", "conversations"),
        (
            {"messages": [{"content": [{"type": "image"}, {"type": "text", "text": "a"}]}]},
            "\na".strip(),
            "messages",
        ),
        (
            {"prompt": [{"content": "a"}], "completion": [{"content": "b"}]},
            "a\nb",
            "prompt and completion",
        ),
        ({"prompt": "a", "chosen": "bbb", "rejected": "c"}, "abbb", "chosen and rejected"),
        ({"instruction": "a", "input": "", "output": "b"}, "a\nb", "instruction and output"),
        ({"question": "a", "answer": "b"}, "a\nb", "question and answer"),
        ({"title": "a", "body": "b"}, "a\nb", "all texts of a record"),
        ({"messages": None, "text": "a"}, "a", "text"),
        ({"number": 3}, "", "all texts of a record"),
    ],
)
def test_texts_are_read_where_the_libraries_have_them(record, text, read_from):
    assert text_of(record) == (text, read_from)


odd_values = st.sampled_from([None, True, 3.5, "", "a text", [], {}, [None], [[]]])
odd_messages = st.lists(
    odd_values | st.dictionaries(st.sampled_from(["content", "value", "text"]), odd_values),
    max_size=3,
)
FIELDS = ("messages", "conversations", "prompt", "completion", "chosen", "rejected", "text")


@given(st.dictionaries(st.sampled_from(FIELDS), odd_values | odd_messages))
def test_any_record_has_a_text_or_none(record):
    text, read_from = text_of(record)
    assert isinstance(text, str)
    assert read_from


# Other files


def test_a_list_of_records_in_one_json_text(tmp_path):
    path = tmp_path / "train.json"
    path.write_text(json.dumps([{"text": "a"}, {"text": "b"}, 5]))
    found = survey_data(path)
    assert (found.samples, found.damaged_lines) == (2, ("record 3: JSON, but no record",))
    path.write_text(json.dumps({"version": 1, "data": [{"text": "a"}] * 7}))
    assert survey_data(path).samples == 7


def test_rows_of_cells(tmp_path):
    path = tmp_path / "train.csv"
    path.write_text('prompt,completion\nhello,"two\nlines"\nshort\na,b\n')
    found = survey_data(path)
    assert (found.samples, found.read_from) == (2, "prompt and completion")
    assert found.damaged_lines == ("row 3: not as many cells as the head",)


def test_parquet_needs_its_package(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    path = tmp_path / "train.parquet"
    path.write_bytes(b"PAR1")
    with pytest.raises(ExtraMissing, match="pip install pyarrow"):
        survey_data(path)


def test_parquet_says_its_own_count(tmp_path, monkeypatch):
    """With a stand-in for the package: 9,000 rows, of which the first batch is looked at."""

    class ParquetFile:
        metadata = SimpleNamespace(num_rows=9_000)

        def __init__(self, path):
            self.path = path

        def iter_batches(self, batch_size):
            yield SimpleNamespace(to_pylist=lambda: [{"text": "abc"}] * 99 + [{"id": 1}])

    parquet = ModuleType("pyarrow.parquet")
    parquet.ParquetFile = ParquetFile
    package = ModuleType("pyarrow")
    package.ArrowException, package.parquet = ValueError, parquet
    monkeypatch.setitem(sys.modules, "pyarrow", package)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", parquet)
    path = tmp_path / "train.parquet"
    path.write_bytes(b"PAR1")
    found = survey_data(path)
    # 99 of the 100 looked at are samples: 9,000 x 0.99
    assert (found.samples, found.is_estimated, found.damaged) == (8_910, True, 1)


def test_a_file_without_a_sample_says_why(tmp_path):
    path = tmp_path / "train.jsonl"
    path.write_text("")
    with pytest.raises(InputError, match="It is empty"):
        survey_data(path)
    path.write_text("{\n")
    with pytest.raises(InputError, match="line 1: not JSON"):
        survey_data(path)


def test_files_of_another_kind_are_refused_by_name(tmp_path):
    path = tmp_path / "weights.bin"
    path.write_bytes(b"1")
    with pytest.raises(InputError, match=r"weights.bin is no file of samples"):
        survey_data(path)
    with pytest.raises(InputError, match="no data at"):
        survey_data(tmp_path / "absent.jsonl")


# Folders


def test_a_folder_of_images_with_a_table_of_labels_is_images(tmp_path):
    (tmp_path / "cats").mkdir()
    for number in range(30):
        (tmp_path / "cats" / f"{number}.jpg").write_bytes(b"x" * 1000)
    (tmp_path / "labels.csv").write_text("file,label\n" + "1.jpg,cat\n" * 30)
    (tmp_path / ".cache").mkdir()
    (tmp_path / ".cache" / "9.jpg").write_bytes(b"x")
    found = survey_data(tmp_path)
    assert (found.kind, found.samples, found.size_bytes) == ("images", 30, 30 * 1000)
    assert found.lengths is None


def test_a_folder_of_tables_is_their_lines(tmp_path):
    for part in ("train-0.jsonl", "train-1.jsonl"):
        (tmp_path / part).write_text('{"text": "abc"}\n' * 100)
    (tmp_path / "README.md").write_text("about it")
    found = survey_data(tmp_path)
    assert (found.kind, found.samples, found.read_from) == ("text", 200, "text")


def test_a_folder_of_texts_has_a_sample_in_each(tmp_path):
    for number in range(5):
        (tmp_path / f"{number}.txt").write_text("x" * 426)
    (tmp_path / "empty.txt").write_text("")
    found = survey_data(tmp_path)
    assert (found.samples, found.damaged) == (5, 1)
    assert found.lengths.median == 100  # 426 bytes at 4.26


def test_many_images_are_looked_at_here_and_there(tmp_path, monkeypatch):
    monkeypatch.setattr(survey, "FILES_LOOKED_AT", 10)
    for number in range(100):
        (tmp_path / f"{number:03}.png").write_bytes(b"x" * 50)
    found = survey_data(tmp_path)
    assert (found.samples, found.looked_at, found.is_estimated) == (100, 10, True)
    assert found.size_bytes == 100 * 50


def test_sounds_say_how_long_they_are(tmp_path):
    with wave.open(str(tmp_path / "a.wav"), "wb") as sound:
        sound.setnchannels(1)
        sound.setsampwidth(2)
        sound.setframerate(16_000)
        sound.writeframes(b"\0\0" * 16_000 * 3)
    # FLAC: 44,100 samples a second in 20 bits, then channels and width, then 441,000 samples
    packed = struct.pack(">Q", 44_100 << 44 | 441_000)
    (tmp_path / "b.flac").write_bytes(b"fLaC" + b"\0" * 14 + packed + b"\0" * 16)
    (tmp_path / "c.mp3").write_bytes(b"\0" * 32_000)
    found = survey_data(tmp_path)
    assert (found.kind, found.samples) == ("audio", 3)
    # 3 s of WAV, 441,000 / 44,100 = 10 s of FLAC, 32,000 / 16,000 = 2 s of MP3 at 128 kbit/s
    assert found.audio_s == pytest.approx(3 + 10 + 2)


def test_a_folder_of_nothing_says_what_is_known(tmp_path):
    with pytest.raises(InputError, match=r"knows \.jsonl"):
        survey_data(tmp_path)


# Lengths and tokenizers


def test_the_share_above_a_length_lies_between_percentiles():
    lengths = TokenLengths(mean=50, percentiles=tuple(range(0, 101, 5)), counted_by="bytes")
    assert lengths.share_above(100) == 0
    assert lengths.share_above(90) == pytest.approx(0.1)
    assert lengths.share_above(92) == pytest.approx(0.08)
    assert lengths.share_above(0) == 1
    same = TokenLengths(mean=7, percentiles=(7,) * 21, counted_by="bytes")
    assert (same.share_above(6), same.share_above(7)) == (1, 0)


def a_tokenizer(folder):
    tokenizers = pytest.importorskip("tokenizers")
    model = tokenizers.models.WordLevel({"a": 0, "[UNK]": 1}, unk_token="[UNK]")
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer.enable_truncation(2)
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))


def test_a_tokenizer_in_a_folder_counts_whole_texts(tmp_path):
    a_tokenizer(tmp_path)
    assert tokenizer_at(tmp_path)(["a a a", "b"]) == [3, 1]
    assert tokenizer_at(tmp_path / "tokenizer.json")(["a"]) == [1]
    assert tokenizer_at(tmp_path / "absent") is None


def test_a_broken_tokenizer_is_told(tmp_path):
    pytest.importorskip("tokenizers")
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(InputError, match="cannot be read as a tokenizer"):
        tokenizer_at(tmp_path)


def test_what_a_library_has_fetched_is_found_again(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    assert kept_tokenizer("owner/name") is None
    a_tokenizer(tmp_path / "models--owner--name" / "snapshots" / "abc")
    assert kept_tokenizer("owner/name")(["a a"]) == [2]
