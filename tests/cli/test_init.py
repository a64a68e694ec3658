"""`outlay init`: a workload file to start from, which never replaces one by itself."""

from __future__ import annotations

import json
import re
import tomllib

import pytest

from outlay.workload.file import parse_workload, read_workload
from outlay.workload.tables import WorkloadFile


def test_template_parses(outlay, tmp_path):
    path = tmp_path / "new.toml"
    ended = outlay("init", path)
    assert (ended.code, ended.err) == (0, "")
    assert f"outlay plan {path}" in ended.out
    assert read_workload(path).step.profile == "resnet50"


def test_template_plans(outlay, tmp_path):
    path = tmp_path / "new.toml"
    outlay("init", path)
    ended = outlay("plan", path, "--json")
    assert (ended.code, ended.err) == (0, "")
    assert ended.document["chosen"] is not None
    # 90 epochs of 1,281,167 images
    assert ended.document["chosen"]["samples"] == 90 * 1_281_167


def test_every_commented_key_is_one_outlay_knows(tmp_path, outlay):
    """Each example of the template is TOML by itself, and its key is one of its table."""
    path = tmp_path / "new.toml"
    outlay("init", path)
    schema = WorkloadFile.model_json_schema()
    table, keys = schema["properties"], 0
    for line in path.read_text().splitlines():
        shown = line.removeprefix("# ")
        if header := re.match(r"\[+(\w+)\]", shown):
            [name] = re.findall(r"\$defs/(\w+)", json.dumps(schema["properties"][header[1]]))
            table = schema["$defs"][name]["properties"]
        elif re.match(r"\w+ = ", shown):
            [key] = tomllib.loads(shown)
            assert key in table, shown
            keys += line != shown
    assert keys > 60


@pytest.mark.parametrize("header", ["[evaluation]", "[[pause]]", "[[stored]]", "[own_time]"])
def test_a_table_can_be_uncommented_as_a_whole(header, tmp_path, outlay):
    path = tmp_path / "new.toml"
    outlay("init", path)
    before, after = path.read_text().split(f"# {header}")
    block, rest = after.split("\n\n", 1)
    path.write_text(before + header + block.replace("\n# ", "\n") + "\n\n" + rest)
    assert read_workload(path) != parse_workload(before + f"# {header}" + after)


def test_refuses_to_replace_a_file(outlay, tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text("precious")
    ended = outlay("init", path)
    assert ended.code == 2
    assert ended.out == ""
    assert ended.err.startswith("outlay: ")
    assert "already there" in ended.err
    assert "--force" in ended.err
    assert path.read_text() == "precious"


def test_force_replaces_it(outlay, tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text("not TOML at all")
    assert outlay("init", path, "--force").code == 0
    assert read_workload(path).name == "my training run"


def test_json_names_what_was_written(outlay, tmp_path):
    path = tmp_path / "new.toml"
    ended = outlay("init", path, "--json")
    assert ended.document == {"schema": 1, "written": str(path)}


def test_real_program_writes_outlay_toml(program, tmp_path):
    ended = program("init")
    assert (ended.code, ended.err) == (0, "")
    assert ended.out == "Wrote outlay.toml. Edit it, then: outlay plan outlay.toml\n"
    assert read_workload(tmp_path / "outlay.toml").limits.budget_usd == 500
    assert program("init").code == 2
