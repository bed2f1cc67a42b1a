"""Tables beside a store, and what a set makes of them."""

from __future__ import annotations

import pytest

from voicehub.errors import DataError
from voicehub_flow.store import read_table
from voicehub_flow.store.config import StoreSetConfig
from voicehub_flow.store.sets import open_set
from voicehub_flow.store.writer import index_published


def written(path, text):
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("column", ["label", "caption", "text"])
def test_any_of_the_published_columns_is_the_text(tmp_path, column):
    table = read_table(written(tmp_path / "t.tsv", f'id\t{column}\na\ta "quoted" word\nb\t\n'))
    assert table.ids == ("a", "b")
    assert table.texts == ('a "quoted" word', "")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name\tlabel\na\tb\n", "line 1: expected a header with the column 'id'"),
        ("id\tlabel\na\n", "line 2: 1 columns; its header has 2"),
        ("id\tlabel\n\tx\n", "line 2: no id"),
        ("id\tlabel\na\tx\na\ty\n", "come more than once .'a'."),
    ],
)
def test_what_is_wrong_with_a_table_is_said_with_its_line(tmp_path, text, message):
    with pytest.raises(DataError, match=message):
        read_table(written(tmp_path / "t.tsv", text))


def test_clips_that_are_not_in_the_store_are_named_or_counted(published, tmp_path):
    index_published(published.directory, read_table(published.table))
    names = [*published.ids[:3], "lost-1"]
    table = written(tmp_path / "some.tsv", "id\n" + "\n".join(names) + "\n")
    config = StoreSetConfig(path=str(published.directory), tsv=str(table))
    with pytest.raises(DataError, match=r"1 of 4 clips .* not in .*'lost-1'"):
        open_set("set", config, setting="data.train.0")
    found = open_set("set", config, setting="data.train.0", max_drop_fraction=0.25)
    assert found.ids == tuple(published.ids[:3])
    report = found.report
    assert (report.total, report.kept, report.dropped) == (4, 3, {"not-in-store": 1})
    # A table without texts leaves the store's own.
    assert found.texts[0] == f"label of {published.ids[0]}"


def test_a_store_with_ids_is_never_joined_by_row(published):
    index_published(published.directory, read_table(published.table))
    config = StoreSetConfig(path=str(published.directory), tsv=str(published.table), join="row")
    with pytest.raises(DataError, match="has ids, so that its clips are joined by them"):
        open_set("set", config, setting="data.train.0")
