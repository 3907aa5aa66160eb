"""Models on disk and on the hub: the old one or the new one, or one line that says what is wrong."""

import json
import os
import subprocess
import sys
import threading

import pytest
import torch
from crash_points import kill_everywhere, save
from hub import Hub

from happier import Encoder
from happier.errors import CheckpointError, HappierError


@pytest.mark.slow
def test_a_kill_at_any_point_leaves_a_model_that_loads(encoder, tmp_path):
    old = Encoder("test_resnet", dim=8, transform="small", image_size=32)
    old.save_pretrained(tmp_path / "old")
    encoder.save_pretrained(tmp_path / "model")
    points = kill_everywhere(save, tmp_path, tmp_path / "model")
    assert points > 6
    seen = set()
    for point in range(1, points + 1):
        loaded = Encoder.from_pretrained(tmp_path / str(point))
        assert loaded.fingerprint in (old.fingerprint, encoder.fingerprint)
        seen.add(loaded.dim)
        encoder.save_pretrained(tmp_path / str(point))
        names = {path.name for path in (tmp_path / str(point)).iterdir()}
        assert names == {".lock", "model.safetensors", "model.json", "README.md"}, point
    assert seen == {8, 16}


def change(settings, key, value):
    changed = {**settings, key: value}
    changed.pop("checksum")  # as whoever edits it by hand is told to
    return changed


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("backbone", 5),
        ("backbone", "no such network"),
        ("dim", "16"),
        ("dim", -1),
        ("dim", 1 << 40),
        ("dim", 8),
        ("transform", "nothing"),
        ("transform", None),
        ("image_size", 1.5),
        ("image_size", 1 << 30),
        ("freeze_batch_norm", "yes"),
        ("level_names", "kind"),
        ("level_names", [1]),
        ("fingerprint", None),
        ("fingerprint", "../../x"),
        ("metrics", [1]),
        ("metrics", {"H-AP": "good"}),
        ("format", 9),
        ("unknown", 1),
    ],
)
def test_a_wrong_value_in_the_settings_is_one_line(encoder, tmp_path, key, value):
    encoder.save_pretrained(tmp_path)
    file = tmp_path / "model.json"
    file.write_text(json.dumps(change(json.loads(file.read_text()), key, value)))
    with pytest.raises(CheckpointError) as error:
        Encoder.from_pretrained(tmp_path)
    assert "\n" not in str(error.value)
    assert str(tmp_path) in str(error.value)


def test_settings_of_older_versions_load(encoder, tmp_path):
    encoder.save_pretrained(tmp_path)
    file = tmp_path / "model.json"
    settings = json.loads(file.read_text())
    for key in ("checksum", "metrics", "head", "hidden", "dropout"):
        del settings[key]
    file.write_text(json.dumps(settings))
    assert Encoder.from_pretrained(tmp_path).fingerprint == encoder.fingerprint


def check_message(error, place):
    assert "\n" not in str(error)
    assert str(place) in str(error)


def damages(content):
    yield b""
    yield content[: len(content) // 2]
    yield b"this is not it\n"
    yield b"[1, 2]"
    yield b"\xff\xfe\x80" + content
    for place in range(0, len(content), max(1, len(content) // 20)):
        flipped = bytearray(content)
        flipped[place] ^= 1 << (place % 8)
        yield bytes(flipped)


@pytest.mark.parametrize("name", ["model.json", "model.safetensors"])
def test_damage_is_one_line_or_changes_nothing(encoder, tmp_path, name):
    encoder.metrics = {"H-AP": 0.5}
    encoder.save_pretrained(tmp_path)
    encoder.metrics = {}
    images = torch.randn(2, 3, 32, 32)
    expected = encoder(images)
    for content in damages((tmp_path / name).read_bytes()):
        (tmp_path / name).write_bytes(content)
        try:
            loaded = Encoder.from_pretrained(tmp_path)
        except CheckpointError as error:
            check_message(error, tmp_path)
        else:
            assert torch.equal(loaded(images), expected)
            assert loaded.metrics == {"H-AP": 0.5}
            assert loaded.level_names == ("kind", "item")


@pytest.mark.parametrize("suffix", [".pth", ".safetensors", ".bin"])
@pytest.mark.parametrize("content", [b"some text\n", b"", b"\x80\x02}q\x00.", bytes(range(256)) * 4])
def test_files_that_are_no_weights_are_one_line(tmp_path, suffix, content):
    path = tmp_path / f"weights{suffix}"
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match="weights") as error:
        Encoder("test_resnet", pretrained=str(path))
    assert "\n" not in str(error.value)


def test_a_directory_that_cannot_be_written_to_is_one_line(encoder, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(HappierError, match="cannot write") as error:
        encoder.save_pretrained(tmp_path / "file" / "model")
    assert "\n" not in str(error.value)


PUSH_AND_PULL = """
import torch
from happier import Encoder

torch.manual_seed(0)
encoder = Encoder("test_resnet", dim=16, transform="small", image_size=32, level_names=["kind", "item"])
print(encoder.push_to_hub("me/shapes", private=True))
print(Encoder.from_pretrained("me/shapes").fingerprint == encoder.fingerprint)
"""


def at_hub(hub, tmp_path):
    thread = threading.Thread(target=hub.serve_forever, daemon=True)
    thread.start()
    environment = {
        **os.environ,
        "HF_ENDPOINT": hub.address,
        "HF_TOKEN": "hf_secret",
        "HF_HOME": str(tmp_path / "home"),
        "HF_HUB_DISABLE_XET": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "NO_PROXY": "127.0.0.1",
    }
    try:
        return subprocess.run(
            [sys.executable, "-c", PUSH_AND_PULL], env=environment, capture_output=True, text=True
        )
    finally:
        hub.shutdown()
        hub.server_close()
        thread.join()


@pytest.mark.slow
def test_a_model_goes_to_the_hub_and_comes_back(tmp_path):
    hub = Hub()
    done = at_hub(hub, tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [f"{hub.address}/me/shapes", "True"]
    assert set(hub.files) == {"model.safetensors", "model.json", "README.md"}
    assert "# shapes" in hub.files["README.md"].decode()
    assert all(token == "Bearer hf_secret" for path, token in hub.requests if "/commit/" in path)


@pytest.mark.slow
def test_a_hub_that_refuses_is_one_error(tmp_path):
    done = at_hub(Hub(refuses=True), tmp_path)
    assert "CheckpointError: cannot upload to me/shapes" in done.stderr.splitlines()[-1]
