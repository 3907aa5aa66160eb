"""The public names of happier.data: all there, and light until used."""

import subprocess
import sys

import pytest

import happier.data


def test_every_name_is_there():
    assert sorted(happier.data._PLACES) == sorted(happier.data.__all__)
    for name in happier.data.__all__:
        assert getattr(happier.data, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        happier.data.nothing  # noqa: B018


def test_a_manifest_needs_no_torchvision():
    code = "import sys; from happier.data import Manifest, fetch; sys.exit('torchvision' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
