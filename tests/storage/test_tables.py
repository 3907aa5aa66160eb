"""Tables that people write: whatever is wrong with one is a line that names it."""

import os

import pytest

from happier.errors import DataError
from happier.storage.tables import read_csv


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            b"id,class,class\na,b,c\n",
            r"t\.csv: a column name must occur once, got \['class'\] more than once",
        ),
        (b"id,class\na,b,c\n", r"t\.csv as CSV in UTF-8: .*Expected 2 fields in line 2, saw 3"),
        (b"", r"t\.csv as CSV in UTF-8"),
        (b"id,class\n\xff\xfe,b\n", r"t\.csv as CSV in UTF-8"),
        (b'id,class\n"a,b\n', r"t\.csv as CSV in UTF-8"),
    ],
)
def test_a_faulty_csv_is_one_line(tmp_path, content, message):
    (tmp_path / "t.csv").write_bytes(content)
    with pytest.raises(DataError, match=message) as raised:
        read_csv(tmp_path / "t.csv", error=DataError)
    assert "\n" not in str(raised.value)


def test_a_csv_that_is_no_file(tmp_path):
    os.mkfifo(tmp_path / "pipe.csv")
    for path in (tmp_path, tmp_path / "pipe.csv"):
        with pytest.raises(DataError, match="cannot read"):
            read_csv(path, error=DataError)
    with pytest.raises(DataError, match="there is none"):
        read_csv(tmp_path / "none.csv", error=DataError, missing="there is none")


def test_cells_are_text_and_columns_without_a_name_are_numbered(tmp_path):
    (tmp_path / "t.csv").write_text("\ufeffid,,class\n007,NA,\n", encoding="utf-8")
    table = read_csv(tmp_path / "t.csv")
    assert list(table.columns) == ["id", "column 2", "class"]
    assert table.iloc[0].tolist() == ["007", "NA", ""]
