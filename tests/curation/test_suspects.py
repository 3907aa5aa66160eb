"""Labels that are probably wrong: against loops, on planted mistakes, and decided by a person."""

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from processes import exit_code, fork
from typer.testing import CliRunner

from happier.cli import app
from happier.curation.corrections import Correction, CorrectionsFile, apply_corrections
from happier.curation.labelled_vectors import LabelledVectors
from happier.curation.neighbour_votes import EPSILON, GAMMA, SOFTNESS, contradictions, find_neighbours
from happier.curation.suspects import find_suspects
from happier.data import Manifest
from happier.errors import DataError, HappierError, InputError, OptionError
from happier.taxonomy import path_codes


def unit(vectors):
    vectors = np.asarray(vectors, dtype=np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def labelled(paths, vectors, levels=("kind", "family", "item")):
    rows = [path.split("/") + [""] * (len(levels) - path.count("/") - 1) for path in paths]
    table = pd.DataFrame(rows, columns=list(levels)).assign(split="train")
    table["path"] = [f"{at}.png" for at in range(len(table))]
    return LabelledVectors(unit(vectors), Manifest(table, levels=levels, root=".", name="made"))


def world(seed=0, per_class=6, noise=0.15):
    """Two kinds of two families of two items each, their vectors nested like the tree."""
    rng = np.random.default_rng(seed)
    paths, vectors = [], []
    directions = {}
    for kind in "ab":
        for family in "xy":
            for item in "12":
                names = (kind, kind + family, kind + family + item)
                centre = np.zeros(24)
                for at, name in enumerate(names):
                    fresh = rng.normal(size=24) * (1.0, 0.7, 0.5)[at]
                    centre += directions.setdefault(name, fresh)
                for _ in range(per_class):
                    paths.append("/".join(names))
                    vectors.append(centre + noise * rng.normal(size=24))
    return paths, np.asarray(vectors)


def slow_means(row, labels, vectors, level):
    """The nearest mean of another class of a level, of the same parent; of the own class; the own finest."""
    classes = {}
    for other, path in enumerate(labels):
        if path[-1] != -1 and other != row:
            classes.setdefault(tuple(path), []).append(vectors[other].astype(float))
    best = {True: -math.inf, False: -math.inf}
    finest = -math.inf
    for path, members in classes.items():
        if path[:level] != tuple(labels[row][:level]):
            continue
        mean = sum(members) / math.sqrt(float(sum(members) @ sum(members)))
        inside = path[level] == labels[row][level]
        best[inside] = max(best[inside], float(mean @ vectors[row]))
        if path == tuple(labels[row]):
            finest = float(mean @ vectors[row])
    own = finest if math.isfinite(finest) else best[True]
    return best[False], best[True], own


def slow_contradiction(row, neighbours, labels, vectors):
    """The definition at the top of neighbour_votes, in loops: level, confidence, best classes; or None."""
    depth = len(labels[0])
    near = list(zip(neighbours.rows[row].tolist(), neighbours.weights[row].tolist(), strict=True))
    for level in range(depth):
        if labels[row][level] == -1:
            return None
        voters = [
            (other, weight) for other, weight in near
            if level == 0 or labels[other][level - 1] == labels[row][level - 1]
        ]  # fmt: skip
        logs, winner = [], None
        for finer in range(level, depth):
            if labels[row][finer] == -1:
                break
            votes = {}
            for other, weight in voters:
                if labels[other][finer] != -1:
                    votes[labels[other][finer]] = votes.get(labels[other][finer], 0.0) + weight
            own = votes.pop(labels[row][finer], 0.0)
            best = max(votes.values(), default=0.0)
            logs.append(math.log(best + EPSILON) - math.log(own + EPSILON))
            if finer == level:
                winner = [name for name, vote in votes.items() if vote == best] if best > own else []
        evidence = sum(logs) / len(logs)
        outside, inside, own = slow_means(row, labels, vectors, level)
        if math.isfinite(outside) and math.isfinite(own):
            evidence += GAMMA * (outside - own)
        nearer = not (math.isfinite(outside) and math.isfinite(inside)) or outside > inside
        if winner and evidence > 0 and nearer:
            return level, 1 / (1 + math.exp(-evidence / SOFTNESS)), winner
    return None


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**31), st.booleans())
def test_contradictions_are_those_of_loops(seed, partial):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 2, size=(14, 3))
    if partial:
        labels[np.arange(3)[None] >= rng.integers(1, 4, size=14)[:, None]] = -1
    labels = path_codes(labels)
    vectors = unit(rng.normal(size=(14, 4)))
    neighbours = find_neighbours(vectors, k=6)
    found = contradictions(neighbours, labels, vectors)
    by_row = {int(row): at for at, row in enumerate(found.rows)}
    for row in range(14):
        expected = slow_contradiction(row, neighbours, labels.tolist(), vectors)
        assert (expected is not None) == (row in by_row)
        if expected:
            level, confidence, winners = expected
            at = by_row[row]
            assert found.levels[at] == level
            assert found.confidence[at] == pytest.approx(confidence, rel=1e-4)
            assert labels[found.proposed[at], level] in winners


def test_only_the_clearest_labels_are_listed():
    paths, vectors = world(per_class=20, noise=3.0)
    found = labelled(paths, vectors)
    everything = [one for one in find_suspects(found, k=8, most=0) if one.kind == "label"]
    assert len(everything) > 30
    for most, number in ((5, 5), (None, 20)):
        some = [one for one in find_suspects(found, k=8, most=most) if one.kind == "label"]
        assert len(some) == number
        assert min(one.confidence for one in some) >= sorted(one.confidence for one in everything)[-number]
    with pytest.raises(OptionError, match="most must be 0 or more"):
        find_suspects(found, most=-1)


def test_neighbours_are_those_of_loops():
    vectors = unit(np.random.default_rng(2).normal(size=(20, 5)))
    found = find_neighbours(vectors, k=4)
    gaps = []
    for row in range(20):
        scores = sorted((float(vectors[row] @ vectors[other]), other) for other in range(20) if other != row)
        assert found.rows[row].tolist() == [other for _, other in scores[::-1][:4]]
        gaps.append(scores[-1][0] - scores[-4][0])
    temperature = sum(gaps) / len(gaps) / 4
    for row in range(20):
        weights = [
            math.exp((score - found.scores[row, 0]) / temperature) for score in found.scores[row].tolist()
        ]
        np.testing.assert_allclose(found.weights[row], np.array(weights) / sum(weights), rtol=1e-5)
    assert find_neighbours(vectors[:3], k=50).rows.shape == (3, 2)


@pytest.mark.parametrize(("wrong", "severity"), [("b/bx/bx1", 3), ("a/ay/ay1", 2), ("a/ax/ax2", 1)])
def test_a_planted_mistake_is_found_with_its_severity(wrong, severity):
    paths, vectors = world()
    paths[2] = wrong  # it is a/ax/ax1
    first = next(one for one in find_suspects(labelled(paths, vectors), k=8) if one.kind == "label")
    assert (first.id, first.severity) == ("2.png", severity)
    assert (first.label, first.proposed) == (wrong, "a/ax/ax1")
    assert set(first.evidence) == {"0.png", "1.png", "3.png", "4.png", "5.png"}
    assert 0.5 < first.confidence < 1


def test_the_order_of_images_does_not_matter():
    paths, vectors = world()
    paths[2], paths[20] = "b/by/by2", "b/bx/bx1"
    given_order = find_suspects(labelled(paths, vectors), k=8)
    order = np.random.default_rng(1).permutation(len(paths))
    shuffled = labelled([paths[at] for at in order], vectors[order])
    again = find_suspects(shuffled, k=8)
    assert [one.severity for one in given_order] == sorted(
        (one.severity for one in given_order), reverse=True
    )

    def known(suspects, names):
        return {(one.kind, names[one.id], one.label, one.proposed) for one in suspects if one.id}

    same = {f"{at}.png": f"{at}.png" for at in range(len(paths))}
    assert known(given_order, same) == known(
        again, {f"{at}.png": f"{row}.png" for at, row in enumerate(order)}
    )


def test_clean_labels_raise_no_suspicion():
    assert find_suspects(labelled(*world(noise=0.05)), k=8) == []


def test_copies_under_two_labels_are_one_finding():
    paths, vectors = world(noise=0.1)
    vectors[30] = vectors[0]
    found = [one for one in find_suspects(labelled(paths, vectors), k=8) if one.kind == "duplicate"]
    assert [(one.id, one.evidence, one.severity) for one in found] == [("0.png", ("30.png",), 3)]
    vectors[1] = vectors[0]  # a copy under the same label is no matter here
    assert len([one for one in find_suspects(labelled(paths, vectors), k=8) if one.kind == "duplicate"]) == 2


def test_classes_that_cannot_be_told_apart_and_a_class_that_is_two():
    paths, vectors = world(per_class=8, noise=0.1)
    alternate = ["a/ax/ax1" if at % 2 else "b/by/by2" for at in range(8)]
    paths[:8] = alternate  # the first class gets two names in turn; its real b/by/by2 are elsewhere
    paths[-8:] = ["b/by/by3"] * 8
    found = {one.kind: one for one in find_suspects(labelled(paths, vectors), k=6)}
    assert {found["alike"].label, found["alike"].proposed} == {"a/ax/ax1", "b/by/by2"}
    assert found["alike"].severity == 3
    paths, vectors = world(per_class=8, noise=0.1)
    paths[:8] = [paths[-1]] * 8
    found = [one for one in find_suspects(labelled(paths, vectors), k=6) if one.kind == "divided"]
    assert [(one.label, one.proposed) for one in found] == [(paths[-1], "")]
    assert found[0].confidence > 0.5


def test_partly_labelled_images_are_judged_by_what_is_known():
    paths, vectors = world()
    paths[2], paths[10], paths[47] = "b", "", "b/by"
    found = find_suspects(labelled(paths, vectors), k=8)
    assert [(one.id, one.severity, one.label) for one in found if one.id == "2.png"] == [("2.png", 1, "b")]
    assert "10.png" not in {one.id for one in found}
    assert "47.png" not in {one.id for one in found}


def test_what_cannot_be_searched():
    paths, vectors = world()
    with pytest.raises(InputError, match="no image has a label"):
        find_suspects(labelled([""] * 48, vectors))
    with pytest.raises(InputError, match="all images are of one class"):
        find_suspects(labelled(["a/ax/ax1"] * 48, vectors))
    with pytest.raises(OptionError, match="k must be 1 or more"):
        find_suspects(labelled(paths, vectors), k=0)


# Corrections


def test_decisions_are_kept_and_replaced(tmp_path):
    kept = CorrectionsFile(tmp_path / "corrections.csv")
    assert kept.record(Correction("1.png", "a/x", "wrong", "b/y")) == 1
    assert kept.record(Correction("2.png", "a/x", "skip")) == 2
    assert kept.record(Correction("", "a/x", "right")) == 3
    assert kept.record(Correction("1.png", "a/x", "right")) == 3, "the last decision about an image counts"
    assert kept.read() == [
        Correction("2.png", "a/x", "skip"),
        Correction("", "a/x", "right"),
        Correction("1.png", "a/x", "right"),
    ]
    assert sorted(path.name for path in tmp_path.iterdir()) == [".corrections.csv.lock", "corrections.csv"]
    with pytest.raises(OptionError, match="a class is given where the label is wrong, and only there"):
        kept.record(Correction("1.png", "a/x", "wrong"))
    assert len(kept.read()) == 3


def test_no_process_loses_the_decisions_of_another(tmp_path):
    """Several processes of one server keep decisions in one file."""
    path = tmp_path / "corrections.csv"

    def decide(name):
        for number in range(15):
            CorrectionsFile(path).record(Correction(f"{name}{number}", "a", "right"))

    children = [fork(decide, name) for name in "xyz"]
    assert [exit_code(child) for child in children] == [0, 0, 0]
    assert len(CorrectionsFile(path).read()) == 45


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("id,label,decision\n", "lacks the column 'class'"),
        (
            "id,label,decision,class\n1.png,a,wrng,b\n",
            r"row 2: a decision .* got 'wrng' \(did you mean 'wrong'",
        ),
        ("id,label,decision,class\n1.png,a,right,b\n", "row 2: a class is given where"),
        ("id,label,decision,class\n,,skip,\n", "row 2: neither an image nor a class"),
        ("id,label,decision,class\n1,a,skip,\n1,a,right,\n", "row 3: 1 is decided in row 2, too"),
    ],
)
def test_files_that_are_no_corrections(tmp_path, text, message):
    path = tmp_path / "corrections.csv"
    path.write_text(text)
    with pytest.raises(DataError, match=message):
        CorrectionsFile(path).read()


def manifest():
    return labelled(["a/x/1", "a/x/1", "a/x/2", "b/y/3", "b/y"], np.eye(5)).manifest


def test_corrections_make_a_new_manifest():
    old = manifest()
    decisions = [
        Correction("0.png", "a/x/1", "wrong", "b/y/3"),
        Correction("1.png", "a/x/1", "wrong", "b"),
        Correction("2.png", "a/x/2", "right"),
        Correction("4.png", "b/y", "wrong", "a/x/2"),
        Correction("", "b/y/3", "wrong", "a/x/2"),
    ]
    done = apply_corrections(old, decisions)
    assert done.manifest.class_paths() == ["b/y/3", "b", "a/x/2", "a/x/2", "a/x/2"]
    assert (done.changed, done.wrong, done.kept) == (4, 4, 1)
    assert old.class_paths() == manifest().class_paths()
    named = apply_corrections(old, [Correction("0.png", "a/x/1", "wrong", "b/z")], new_classes=True)
    assert named.manifest.class_paths()[0] == "b/z"


@pytest.mark.parametrize(
    ("one", "message"),
    [
        (Correction("9.png", "a/x/1", "wrong", "b"), "the image '9.png', which the manifest does not have"),
        (
            Correction("0.png", "a/x/2", "wrong", "b"),
            "was 'a/x/2' when it was corrected, and is 'a/x/1' here",
        ),
        (Correction("0.png", "a/x/1", "wrong", "b/z"), "no class 'b/z'; 'b' has y; correct it, or allow new"),
        (Correction("", "a/z", "wrong", "b"), "about a class that is not there: .* 'a' has x"),
        (Correction("0.png", "a/x/1", "wrong", "a/x/1/q"), "has 4 levels, the manifest 3"),
    ],
)
def test_corrections_that_do_not_fit(one, message):
    with pytest.raises(DataError, match=message):
        apply_corrections(manifest(), [one])


def test_commands(tmp_path):
    paths, vectors = world()
    paths[2] = "b/bx/bx1"
    made = labelled(paths, vectors)
    made.manifest.write(tmp_path / "m.parquet")
    np.save(tmp_path / "v.npy", made.vectors)

    def run(*words):
        return CliRunner().invoke(app, ["data", *map(str, words)])

    done = run(
        "suspects",
        tmp_path / "v.npy",
        "--manifest",
        tmp_path / "m.parquet",
        "-o",
        tmp_path / "s.csv",
        "-k",
        8,
    )
    assert done.exit_code == 0, done.output
    assert "2.png" in done.output
    table = pd.read_csv(tmp_path / "s.csv", keep_default_na=False)
    assert table.columns.tolist() == ["kind", "severity", "confidence", "id", "label", "proposed", "evidence"]
    assert table.iloc[0][["id", "proposed"]].tolist() == ["2.png", "a/ax/ax1"]
    corrections = tmp_path / "c.csv"
    row = table.iloc[0]
    CorrectionsFile(corrections).record(Correction(row["id"], row["label"], "wrong", row["proposed"]))
    before = (tmp_path / "m.parquet").read_bytes()
    done = run("apply", tmp_path / "m.parquet", corrections, "-o", tmp_path / "new.parquet")
    assert "1 images have another label; 0 decisions change nothing" in done.output
    assert Manifest.read(tmp_path / "new.parquet").class_paths() == world()[0]
    assert (tmp_path / "m.parquet").read_bytes() == before
    for same in (tmp_path / "m.parquet", corrections):
        refused = run("apply", tmp_path / "m.parquet", corrections, "-o", same)
        assert isinstance(refused.exception, HappierError)
        assert "is the input" in str(refused.exception)
    missing = run("suspects", tmp_path / "nowhere")
    assert "nothing at " in str(missing.exception)
    assert "give an index, a run" in str(missing.exception)
