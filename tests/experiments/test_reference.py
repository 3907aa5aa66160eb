"""The comparison with the authors' code, which is not in this repository: what it says without it."""

import numpy as np
import pytest

from experiments import reference
from happier.errors import InputError


def test_a_folder_that_is_no_clone_is_named(tmp_path):
    with pytest.raises(InputError, match=r"not a clone of the authors' code.*no happier/losses/hap_loss\.py"):
        reference.compare_with_reference(tmp_path)


def test_code_that_does_not_run_is_one_line(tmp_path):
    for name in reference.NEEDED:
        (tmp_path / "happier" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "happier" / name).write_text("")
    with pytest.raises(InputError, match=r"does not run here: [A-Za-z]+Error: ") as caught:
        reference.compare_with_reference(tmp_path, batches=1)
    assert "\n" not in str(caught.value)


def test_a_difference_is_found_and_named(tmp_path, monkeypatch):
    for name in reference.NEEDED:
        (tmp_path / "happier" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "happier" / name).write_text("")

    def theirs(clone, batches):
        found = [dict(reference._ours(batch)) for batch in batches]
        found[-1]["CSL gradient"] = 1.001 * found[-1]["CSL gradient"]
        found[0]["NDCG"] = found[0]["NDCG"] + np.eye(1, len(found[0]["NDCG"]))[0]
        return found

    monkeypatch.setattr(reference, "_theirs", theirs)
    found = {one.name: one for one in reference.compare_with_reference(tmp_path, batches=1)}
    assert [name for name, one in found.items() if not one.agrees] == ["CSL", "NDCG"]
    assert found["CSL"].value == 0
    assert found["CSL"].gradient == pytest.approx(0.001, rel=0.01)
    assert found["H-AP"].gradient is None
