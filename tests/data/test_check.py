"""Checking a data set: everything that is wrong, in one go, and a cleaned manifest."""

import json
import os
import shutil
from dataclasses import replace

import pandas as pd
import pytest
from typer.testing import CliRunner

from happier.cli import app
from happier.data import Manifest
from happier.data import check_manifest as full_check
from happier.errors import ManifestError, OptionError


def check_manifest(manifest, **options):
    """The report without the note on the small manifest itself: it has one item of each kind in a split."""
    report = full_check(manifest, **options)
    return replace(report, findings=tuple(one for one in report.findings if one.kind != "repeated-level"))


def with_rows(manifest, *rows, **columns):
    more = pd.DataFrame(rows, columns=["path", "split", "kind", "item"])
    table = pd.concat([manifest.table, more], ignore_index=True).assign(**columns)
    return Manifest(table, levels=manifest.levels, root=manifest.root, name=manifest.name)


def kinds(report):
    return {finding.kind: list(finding.rows) for finding in report.findings}


def test_nothing_wrong(small_manifest):
    seen = []
    report = check_manifest(small_manifest, progress=lambda done, total: seen.append((done, total)))
    assert report.findings == ()
    assert report.left_out == ()
    assert seen[-1] == (12, 12)
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)


def test_missing_unreadable_and_truncated(small_manifest):
    files = small_manifest.files()
    files[0].unlink()
    files[1].write_text("no image")
    files[2].write_bytes(files[2].read_bytes()[:-200])
    report = check_manifest(small_manifest)
    assert kinds(report) == {"missing": [0], "unreadable": [1, 2]}
    missing, unreadable = report.findings
    assert missing.fault
    assert missing.examples == (small_manifest.table["path"][0],)
    assert str(files[1]) in unreadable.examples[0]
    assert "not an image (" in unreadable.examples[0]
    assert report.cleaned().table["path"].tolist() == small_manifest.table["path"].tolist()[3:]


def test_copies_across_splits(small_manifest):
    files = small_manifest.files()
    shutil.copy(files[0], files[3])  # train, kind0/item0 -> test, kind0/item1
    report = check_manifest(small_manifest)
    assert kinds(report) == {"duplicates-across-splits": [0, 3], "conflicting-duplicates": [0, 3]}
    assert "ä0.jpg (train, kind0/item0) = " in report.findings[0].examples[0]
    assert report.left_out == (0, 3), "an image with two labels is no use on either side"


def test_the_test_copy_stays(small_manifest, make_image):
    path = small_manifest.table["path"][0]
    manifest = with_rows(small_manifest, (path, "val", "kind0", "item0"), (path, "test", "kind0", "item0"))
    report = check_manifest(manifest)
    assert kinds(report)["duplicates-across-splits"] == [0, 12, 13]
    assert report.left_out == (0, 12)


def test_copies_in_one_split_and_class_are_fine(small_manifest):
    files = small_manifest.files()
    shutil.copy(files[0], files[1])
    assert check_manifest(small_manifest).findings == ()


def test_an_image_may_be_query_and_gallery_if_its_id_says_so(small_manifest):
    test = small_manifest.select("test").table
    both = pd.concat([test.assign(split="query"), test.assign(split="gallery")], ignore_index=True)
    manifest = Manifest(both, levels=small_manifest.levels, root=small_manifest.root)
    assert check_manifest(manifest).findings == ()
    different = both.assign(id=range(len(both)))
    report = check_manifest(Manifest(different, levels=small_manifest.levels, root=small_manifest.root))
    assert kinds(report) == {"duplicates-across-splits": [0, 6, 1, 7, 2, 8, 3, 9, 4, 10, 5, 11]}
    assert report.left_out == ()


def test_test_sets_may_share_images(small_manifest):
    test = small_manifest.select("test").table.assign(item="")
    parts = [
        test.assign(split=split, set=name, id=[f"{name} {n}" for n in range(len(test))])
        for name in ("fine", "coarse")
        for split in ("query", "gallery")
    ]
    both = Manifest(pd.concat(parts), levels=small_manifest.levels, root=small_manifest.root)
    assert check_manifest(both).findings == ()


def test_open_set_leak(small_manifest, make_image):
    make_image(small_manifest.root / "leak.png", seed=99)
    report = check_manifest(with_rows(small_manifest, ("leak.png", "test", "kind0", "item0")))
    assert kinds(report) == {"open-set-leak": [0]}
    assert report.findings[0].fault
    assert report.findings[0].examples == ("kind0/item0",)
    assert report.left_out == ()


def test_labels(small_manifest, make_image):
    for seed, name in enumerate(("none.png", "partly.png", "distractor.png"), start=50):
        make_image(small_manifest.root / name, seed=seed)
    manifest = with_rows(
        small_manifest,
        ("none.png", "train", "", ""),
        ("partly.png", "train", "kind0", ""),
        ("distractor.png", "distractor", "", ""),
    )
    report = check_manifest(manifest)
    assert kinds(report) == {"unlabelled": [12], "partly-labelled": [13]}
    assert [finding.fault for finding in report.findings] == [True, False]
    assert report.left_out == (12,)


def test_names_under_several_parents_and_names_alike(small_manifest, make_image):
    for seed, name in enumerate(("a.png", "b.png"), start=50):
        make_image(small_manifest.root / name, seed=seed)
    manifest = with_rows(
        small_manifest, ("a.png", "train", "kind1", "item0"), ("b.png", "train", "kind0", "ITEM0 ")
    )
    report = check_manifest(manifest)
    assert kinds(report) == {
        "several-parents": [0, 12],
        "alike-names": [0, 13],
        "single-image-classes": [12, 13],
    }
    assert not report.faults
    several = report.findings[0]
    assert several.examples == ("'item0': kind0 (images/item 0/ä0.jpg); kind1 (a.png)",)


def test_test_sets_of_one_label_are_no_partly_labelled_rows(small_manifest):
    rows = small_manifest.table.assign(split="query", item="", set=["fine", "coarse"] * 6)
    report = check_manifest(Manifest(rows, levels=small_manifest.levels, root=small_manifest.root))
    assert report.findings == ()


def test_nothing_left(small_manifest):
    shutil.rmtree(small_manifest.root / "images")
    with pytest.raises(ManifestError, match="nothing would be left"):
        check_manifest(small_manifest).cleaned()


def run(*arguments):
    return CliRunner().invoke(app, ["data", "check", *map(str, arguments)])


def test_command(small_manifest, tmp_path):
    path = small_manifest.write(tmp_path / "m.parquet")
    result = run(path)
    assert result.exit_code == 0
    assert "12 images of 2 kind > 4 item" in result.output
    assert "    train: 6 images of 2 kind > 2 item\n" in result.output
    assert result.output.endswith("no problems found\n")
    small_manifest.files()[0].unlink()
    before = path.read_bytes()
    result = run(path, "--fix")
    assert result.exit_code == 1
    assert "error: 1 image files are missing" in result.output
    fixed = tmp_path / "m.fixed.parquet"
    assert f"wrote {fixed} without 1 of 12 rows:" in result.output.replace("\n", " ").replace("  ", " ")
    assert "images/item 0/ä0.jpg" in result.output
    assert path.read_bytes() == before, "the manifest itself is never written over"
    assert len(Manifest.read(fixed)) == 11
    assert Manifest.read(fixed).name == "small"
    assert "nothing to leave out" in run(fixed, "--fix").output


def test_command_for_programs(small_manifest, tmp_path):
    path = small_manifest.write(tmp_path / "m.csv")
    small_manifest.files()[3].write_bytes(b"")
    result = run(path, "--json", "--fix")
    told = json.loads(result.output)
    assert result.exit_code == 1
    assert not told["ok"]
    assert told["left_out"] == [3]
    assert told["fixed"] == str(tmp_path / "m.fixed.csv")
    finding, *notes = told["findings"]
    assert (finding["kind"], finding["rows"], finding["count"]) == ("unreadable", [3], 1)
    assert [(note["kind"], note["fault"], note["count"]) for note in notes] == [
        ("repeated-level", False, 2)
    ] * 2
    assert len(Manifest.read(told["fixed"])) == 11


def test_strict_lets_notes_count(small_manifest, tmp_path):
    table = small_manifest.table.copy()
    table.loc[0, "item"] = ""
    path = Manifest(table, levels=small_manifest.levels, root=small_manifest.root).write(
        tmp_path / "m.parquet"
    )
    assert run(path).exit_code == 0
    assert run(path, "--strict").exit_code == 1


def test_levels_that_say_nothing(small_manifest, tmp_path):
    notes = full_check(small_manifest).findings
    assert [(note.kind, note.fault, note.rows) for note in notes] == [
        ("repeated-level", False, (0, 6)),
        ("repeated-level", False, (3, 9)),
    ]
    assert notes[1].message == (
        "classes of level kind have one item each in test: both levels give the same figures there"
    )
    result = run(small_manifest.write(tmp_path / "m.parquet"))
    assert "note: 2 classes of level kind have one item each in test" in result.output
    assert result.output.endswith("no problems found\n")


def test_workers_out_of_range(small_manifest):
    for workers in (0, -1, 10**9):
        with pytest.raises(OptionError, match=f"workers must be 1 to 256, got {workers}"):
            full_check(small_manifest, workers=workers)


def test_special_files_and_long_names(small_manifest):
    files = small_manifest.files()
    files[0].unlink()
    os.mkfifo(files[0])
    files[1].unlink()
    files[1].symlink_to("/dev/zero")
    table = small_manifest.table.copy()
    table.loc[2, "path"] = "x" * 300
    table.loc[3, "path"] = f"{table['path'][4]}/inside a file.jpg"
    report = check_manifest(Manifest(table, levels=small_manifest.levels, root=small_manifest.root))
    missing, unreadable = report.findings
    assert missing.rows == (3,)
    assert unreadable.rows == (0, 1, 2)
    assert [text.rsplit(": ", 1)[1] for text in unreadable.examples] == [
        "not a regular file",
        "not a regular file",
        "File name too long",
    ]
