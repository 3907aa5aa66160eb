"""Class paths: what `join` writes, `split` reads."""

from hypothesis import given
from hypothesis import strategies as st

from happier.data.class_path import join, leaf, parents, split, trail

# A backslash at the end of a name would read as the escape of the slash behind it.
NAMES = st.text(min_size=1, max_size=6).filter(lambda name: not name.endswith("\\"))


def test_a_slash_within_a_name():
    assert split(r"a\/b 0/kind") == ("a/b 0", "kind")
    assert leaf(r"x/a\/b") == "a/b"
    assert parents("a/b/c") == "a \u203a b"
    assert trail("a/b") == "a \u203a b"
    assert split(join(["ends with /", "b"])) == ("ends with /", "b")


def test_an_unknown_class_has_no_names():
    assert join(["", ""]) == ""
    assert split("") == ()
    assert leaf("") == parents("") == trail("") == ""


def test_slashes_at_the_ends_do_not_count():
    assert split("/animals/birds/") == ("animals", "birds")


@given(st.lists(NAMES.filter(lambda name: "\\/" not in name), max_size=5))
def test_split_undoes_join(names):
    assert split(join(names)) == tuple(names)
