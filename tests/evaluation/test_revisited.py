"""Revisited Oxford and Paris: the protocol against a slow loop, and from vectors to the table."""

import json
import math

import numpy as np
import pandas as pd
import pytest
from noise import write_noise
from typer.testing import CliRunner

from happier import Encoder
from happier.cli import app
from happier.data import Manifest
from happier.errors import InputError
from happier.evaluation import revisited_protocol
from happier.evaluation.revisited import evaluate_revisited


def slow(scores, positives, ignored, ks):
    """One query, as the benchmark describes it: a list is walked from the top, junk is skipped."""
    order = sorted(range(len(scores)), key=lambda item: (-scores[item], item in positives))
    if not positives:
        return [math.nan] * (1 + len(ks))
    rank = found = 0
    area, places = 0.0, []
    for item in order:
        if item in ignored:
            continue
        before = found / rank if rank else 1.0
        rank += 1
        if item in positives:
            found += 1
            area += (before + found / rank) / 2 / len(positives)
            places.append(rank)
    precisions = []
    for k in ks:
        depth = min(k, places[-1])
        precisions.append(sum(place <= depth for place in places) / depth)
    return [area, *precisions]


@pytest.mark.parametrize("seed", range(20))
def test_the_protocol_is_that_of_a_loop(seed):
    rng = np.random.default_rng(seed)
    # Few different scores, so that some are equal.
    queries, gallery = rng.integers(-2, 3, (5, 2)).astype(float), rng.integers(-2, 3, (30, 2)).astype(float)
    truth = []
    for _ in queries:
        items = rng.permutation(30)
        cuts = np.sort(rng.integers(0, 20, 3))
        truth.append(
            {"easy": items[: cuts[0]], "hard": items[cuts[0] : cuts[1]], "junk": items[cuts[1] : cuts[2]]}
        )
    ks = (1, 5, 10)
    found = revisited_protocol(queries, gallery, truth, ks=ks)
    for protocol, positive, ignored in (
        ("easy", ["easy"], ["hard", "junk"]),
        ("medium", ["easy", "hard"], ["junk"]),
        ("hard", ["hard"], ["easy", "junk"]),
    ):
        rows = []
        for vector, one in zip(queries, truth, strict=True):
            wanted = {int(item) for group in positive for item in one[group]}
            left_out = {int(item) for group in ignored for item in one[group]}
            rows.append(slow((gallery @ vector).tolist(), wanted, left_out, ks))
        for column, name in enumerate(["AP", "P@1", "P@5", "P@10"]):
            expected = [row[column] for row in rows]
            np.testing.assert_allclose(found.per_query[f"{name}/{protocol}"], expected, atol=1e-12)
            defined = [value for value in expected if not math.isnan(value)]
            if defined:
                mean = sum(defined) / len(defined)
                assert found.summary[f"m{name}/{protocol}"] == pytest.approx(mean, abs=1e-12)
            else:
                assert math.isnan(found.summary[f"m{name}/{protocol}"])
        empty = sum(math.isnan(row[0]) for row in rows)
        assert found.summary[f"queries_without_positives/{protocol}"] == empty


def test_ties_and_shapes():
    truth = [{"easy": [1], "hard": [], "junk": []}]
    same = [[1.0], [1.0], [1.0]]
    assert revisited_protocol([[1.0]], same, truth).summary["mP@1/easy"] == 0
    assert revisited_protocol([[1.0]], same, truth, ties="best").summary["mAP/easy"] == 1
    with pytest.raises(InputError, match="ground truth of each query"):
        revisited_protocol([[1.0], [1.0]], same, truth)


@pytest.fixture
def landmarks(tmp_path):
    """Two queries, six gallery images, a distractor."""
    names = ["a", "b", "c", "d", "e", "f"]
    rows = [("q0.png", "query", "q0", "x", "a b", "c", "d"), ("q1.png", "query", "q1", "y", "e", "", "a")]
    rows += [(f"{name}.png", "gallery", name, "x" if name < "d" else "y", "", "", "") for name in names]
    rows += [("z.png", "distractor", "z", "", "", "", "")]
    for number, row in enumerate(rows):
        write_noise(tmp_path / row[0], number)
    table = pd.DataFrame(rows, columns=["path", "split", "id", "landmark", "easy", "hard", "junk"])
    return Manifest(table, levels=["landmark"], root=tmp_path, name="roxford")


def test_a_manifest_with_its_ground_truth(landmarks):
    vectors = np.random.default_rng(0).normal(size=(9, 4)).astype(np.float32)
    truth = [{"easy": [0, 1], "hard": [2], "junk": [3]}, {"easy": [4], "hard": [], "junk": [0]}]
    expected = revisited_protocol(vectors[:2], vectors[2:], truth)
    assert evaluate_revisited(vectors, landmarks).summary == pytest.approx(expected.summary, nan_ok=True)
    with pytest.raises(InputError, match="the query q0 names b: not in the gallery"):
        evaluate_revisited(np.delete(vectors, 3, axis=0), landmarks.take([0, 1, 2, 4, 5, 6, 7, 8]))
    plain = Manifest(landmarks.table.drop(columns=["junk"]), levels=["landmark"], root=landmarks.root)
    assert evaluate_revisited(vectors, plain) is None


def test_evaluate_prints_the_protocol(landmarks, tmp_path, monkeypatch):
    monkeypatch.setenv("HAPPIER_CACHE", str(tmp_path / "cache"))
    encoder = Encoder("test_resnet", dim=8, transform="small", image_size=32, level_names=["landmark"]).eval()
    encoder.save_pretrained(tmp_path / "model")
    path = landmarks.write(tmp_path / "roxford.parquet")
    command = ["evaluate", str(tmp_path / "model"), "--manifest", str(path), "--resamples", "0"]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    assert "Revisited protocol" in done.output
    assert "mAP, medium" in done.output
    done = CliRunner().invoke(app, [*command, "--json", "-"])
    vectors = encoder.embed(landmarks.files())
    expected = evaluate_revisited(vectors, landmarks).summary
    (found,) = json.loads(done.output)["revisited"]
    assert found["mAP/medium"] == pytest.approx(expected["mAP/medium"], abs=1e-6)
