"""What a run's directory holds, and what is said of a damaged file."""

import json
import logging
import subprocess
import sys

import pytest

from happier.errors import BusyError, CheckpointError, ConfigError, OptionError
from happier.runs import RunDirectory

CONFIG = "recipe: small\nseed: 3\nloss: {name: nsm}\ndata: {manifest: m.parquet}\noptimizer: {lr: 1e-5}\n"


@pytest.fixture
def run(tmp_path):
    run = RunDirectory(tmp_path / "run")
    run.write_config(CONFIG)
    return run


def test_a_configuration_comes_back(run):
    assert run.has_config
    assert run.read_config_text() == CONFIG
    assert run.read_config()["optimizer"] == {"lr": 1e-5}
    assert run.read_config()["seed"] == 3


BOMB = "a: &a [1,1]\n" + "".join(f"b{i}: &b{i} [*{'a' if not i else f'b{i - 1}'}, *a]\n" for i in range(40))


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff\xfe bad",
        b"just text",
        b"0",
        b"null",
        b"2026-01-01",
        b"- a\n- b\n",
        b"a: [1, 2",
        b"loss: nsm\n",
        b"data: 3\n",
        b"data: {manifest: [1]}\n",
        b"training: [1]\n",
        b"a: 1\na: 2\n",
        b"\x00\x01",
        b"[" * 20_000,
        b"a: " + b"x" * (2 << 20),
        BOMB.encode(),
    ],
)
def test_a_damaged_configuration_is_one_line(run, content):
    run.config_file.write_bytes(content)
    with pytest.raises(ConfigError, match=r"config\.yaml") as caught:
        run.read_config()
    assert "\n" not in str(caught.value)


def test_a_configuration_that_is_nested_too_deep_is_not_parsed_to_its_end(run):
    run.config_file.write_text("seed: 3\na: " + "[" * 40 + "]" * 40)
    with pytest.raises(ConfigError, match=r"config\.yaml is damaged: it is nested more than 32 deep"):
        run.read_config()


def test_no_configuration(tmp_path):
    with pytest.raises(ConfigError, match=r"config\.yaml"):
        RunDirectory(tmp_path).read_config()


def test_history_of_no_run_is_empty(tmp_path):
    assert RunDirectory(tmp_path).read_history() == ()


def test_a_history_that_was_cut_off(run, caplog):
    run.metrics_file.write_text('{"kind": "train", "step": 1, "epoch": 1, "loss": 2.0}\n{"kind": "tr')
    assert [line["step"] for line in run.read_history()] == [1]
    assert not caplog.records


@pytest.mark.parametrize(
    "bad",
    [
        b"text",
        b"3",
        b'{"kind": "train", "step": "x"}',
        b"\xff\xff",
        b"\x00",
        b"{}",
        b'{"kind": "train", "step": 1, "lr": 1e999}',
        b'{"kind": "train", "step": 1, "lr": NaN}',
        b'{"kind": "train", "step": 1, "metrics": {"H-AP": Infinity}}',
    ],
)
def test_a_damaged_line_is_left_out_with_a_warning(run, bad, caplog):
    good = json.dumps({"kind": "evaluation", "step": 2, "metrics": {"H-AP": None, "AP/1": 0.5}}).encode()
    run.metrics_file.write_bytes(good + b"\n" + bad + b"\n" + good + b"\n")
    with caplog.at_level(logging.WARNING):
        found = run.read_history()
    assert len(found) == 2
    assert found[0]["metrics"]["AP/1"] == 0.5
    assert "line 2" in caplog.text


def test_a_place_for_a_new_run(tmp_path, run):
    assert not run.is_free
    assert RunDirectory(tmp_path / "new").is_free
    with RunDirectory(tmp_path / "new").locked():
        assert RunDirectory(tmp_path / "new").is_free
    (tmp_path / "new" / ".config.yaml.0123abcd.part").mkdir()  # killed while it wrote its first file
    assert RunDirectory(tmp_path / "new").is_free
    (tmp_path / "new" / "file").touch()
    assert not RunDirectory(tmp_path / "new").is_free
    assert not RunDirectory(tmp_path / "new" / "file").is_free


def test_a_run_may_be_evaluated_while_it_is_trained(run):
    script = (
        "import sys; from happier.runs import RunDirectory\n"
        "run = RunDirectory(sys.argv[1])\n"
        "with run.locked(): print('training', flush=True); sys.stdin.read()\n"
    )
    command = [sys.executable, "-c", script, str(run.path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as trainer:
        assert trainer.stdout.readline().strip() == b"training"
        with pytest.raises(BusyError, match=str(trainer.pid)), run.locked(wait=False):
            pass
        with run.evaluation_locked(wait=False):
            pass
        trainer.stdin.close()


def test_a_damaged_summary_is_an_error_that_names_it(run):
    assert run.read_summary() is None
    run.evaluation_folder.mkdir(exist_ok=True)
    for bad in ("", "[]", "text", '{"H-AP": 3', "\x00"):
        run.summary_file.write_text(bad)
        with pytest.raises(CheckpointError, match=run.summary_file.name):
            run.read_summary()


def test_results_are_not_written_over_files_of_the_run(run, tmp_path):
    for name in ("config.yaml", "model.safetensors", "metrics.jsonl", "checkpoint/last.ckpt",
                 "evaluation/summary.json"):  # fmt: skip
        with pytest.raises(OptionError, match="is a file of the run"):
            run.check_output(run.path / name)
    (tmp_path / "link").symlink_to(run.config_file)
    with pytest.raises(OptionError, match="is a file of the run"):
        run.check_output(tmp_path / "link")
    run.check_output(run.path / "figures.json")
    manifest = tmp_path / "manifest.parquet"
    run.write_config(CONFIG.replace("m.parquet", str(manifest)))
    with pytest.raises(OptionError, match="is the manifest of the run"):
        run.check_output(manifest)
