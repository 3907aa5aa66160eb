"""The commands train, embed and export, as a user gives them."""

import json

import numpy as np
import pytest
from processes import run_fresh_command
from typer.testing import CliRunner

import happier
from happier.cli import app
from happier.encoder.embeddings import Embeddings
from happier.errors import ConfigError, OptionError


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)


def test_train_embed_export(small, shapes, tmp_path):
    options = [*small, f"run={tmp_path}/run", "training.epochs=1", "evaluation.every=1"]
    done = run("train", *options, "--json")
    assert done.exit_code == 0
    result = json.loads(done.stdout)
    assert (result["run"], result["steps"], result["best_epoch"]) == (f"{tmp_path}/run", 3, 1)

    done = run("embed", tmp_path / "run", shapes, "--split", "test", "-o", tmp_path / "vectors")
    assert done.exit_code == 0
    assert "40 vectors of 64 numbers" in done.stdout
    found = Embeddings.read(tmp_path / "vectors")
    rows = found.manifest
    summary = happier.evaluate(np.array(found.vectors), rows.labels(), ids=rows.ids()).summary
    assert summary["H-AP"] == pytest.approx(result["metrics"]["H-AP"], abs=1e-4)

    done = run("export", tmp_path / "run", tmp_path / "model.onnx")
    assert done.exit_code == 0
    assert "[batch, 3, 32, 32] -> embeddings [batch, 64]" in done.stdout
    import onnxruntime

    session = onnxruntime.InferenceSession(tmp_path / "model.onnx", providers=["CPUExecutionProvider"])
    encoder = happier.Encoder.from_pretrained(tmp_path / "run")
    images = np.stack([encoder.read_image(path).numpy() for path in rows.files()[:3]])
    np.testing.assert_allclose(session.run(None, {"images": images})[0], found.vectors[:3], atol=1e-5)


def test_show_prints_the_configuration_and_runs_nothing(tmp_path):
    done = run("train", "recipe=emoji", f"run={tmp_path}/run", "--show")
    assert done.exit_code == 0
    assert "backbone: tf_efficientnet_lite0" in done.stdout
    assert not (tmp_path / "run").exists()


def test_a_sweep_makes_a_run_of_each(small, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = run("train", "-m", *small, "training.epochs=1", "loss=nsm,hap", f"run={tmp_path}/${{loss.name}}")
    assert done.exit_code == 0, done.output
    assert {path.name for path in tmp_path.iterdir()} == {"nsm", "hap", "runs"}
    assert {path.name for path in (tmp_path / "runs").iterdir()} == {".sweep"}
    assert all((tmp_path / name / "model.safetensors").is_file() for name in ("nsm", "hap"))


def test_faults_are_one_line(small):
    with pytest.raises(ConfigError, match=r"did you mean 'training\.epochs'\?") as error:
        run("train", *small, "training.epoch=3")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("device", ["quantum", "cuda:99", "meta"])
def test_a_device_that_cannot_be_used(shapes, tmp_path, device):
    happier.Encoder("test_resnet", dim=16, image_size=32).save_pretrained(tmp_path / "model")
    words = ("embed", tmp_path / "model", shapes, "-o", tmp_path / "out", "--device", device)
    with pytest.raises(OptionError, match=f"--device {device} cannot be used here: ") as error:
        run(*words)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "out").exists()


def test_errors_end_the_command_with_code_2(small):
    done = run_fresh_command("train", *small, "training.epoch=3")
    assert done.code == 2
    assert done.err.startswith("happier: the configuration has an error: ")
    assert len(done.err.splitlines()) == 1
