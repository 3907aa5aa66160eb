# %% [markdown]
# # Building a taxonomy
#
# Many collections have a flat list of classes and no tree above it. This notebook makes a tree from what the
# classes look like, compares it with one that a person wrote, and uses a tree to find wrong labels. The
# classes are handwritten digits, their vectors the pixels; with images of your own take the vectors of any
# model.

# %%
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.datasets import load_digits

from happier.data import Manifest

folder = Path(tempfile.mkdtemp())
images, digit = load_digits(return_X_y=True)
names = np.array("zero one two three four five six seven eight nine".split())
rows = pd.DataFrame(
    {"path": [f"{n}.png" for n in range(len(images))], "split": "train", "digit": names[digit]}
)
flat = Manifest(rows, levels=["digit"], root=folder)
vectors = (images / np.linalg.norm(images, axis=1, keepdims=True)).astype(np.float32)
np.save(folder / "vectors.npy", vectors)
print(len(flat.table), "images,", flat.taxonomy().num_classes[-1], "classes, one level")

# %% [markdown]
# ## From clusters
#
#     happier data taxonomy flat.parquet vectors.npy --from clusters -o looks.parquet --levels kind --sizes 3
#
# Classes whose means are close come together. A branch is named after its most central class.

# %%
from happier.curation.taxonomy import TaxonomyOptions, compare_taxonomies, make_taxonomy
from happier.data.taxonomies.class_paths import with_taxonomy


def draw(manifest):
    for kind, below in manifest.table.groupby(manifest.levels[0])["digit"]:
        print(f"{kind:<12}", ", ".join(sorted(set(below))))


options = TaxonomyOptions(levels=("kind",), sizes=(3,))
clusters = make_taxonomy(
    flat, "clusters", folder / "vectors.npy", choices=folder / "choices.csv", options=options
)
looks = with_taxonomy(flat, clusters)
draw(looks)

# %% [markdown]
# Such a tree repeats what the vectors say already: a draft to look at and to correct, not knowledge.
#
# ## From a table
#
#     happier data taxonomy flat.parquet tree.csv --from table -o strokes.parquet
#
# One row for each class, one column for each level, coarse first.

# %%
kinds = dict(
    zip(names, "loops straight hooks hooks straight hooks loops straight loops loops".split(), strict=True)
)
table = pd.DataFrame({"strokes": kinds.values(), "digit": kinds.keys()})
table.to_csv(folder / "tree.csv", index=False)
written = make_taxonomy(flat, "table", folder / "tree.csv", choices=folder / "choices.csv")
strokes = with_taxonomy(flat, written)
draw(strokes)

# %% [markdown]
# ## Which tree is better?
#
#     happier data taxonomy looks.parquet --compare strokes.parquet --run vectors.npy
#
# Three classes at a time: which two are closest? Chance is one in three. The tree that the vectors agree with
# more is the easier one to learn, not necessarily the one that you mean: here strokes are an idea, and pixels
# do not see it.

# %%
found = compare_taxonomies(looks, strokes, folder / "vectors.npy")
print(f"the two trees agree on {found.trees.share:.0%} of the triples that both decide")
for name, agreement in zip(("clusters", "strokes"), found.vectors, strict=True):
    print(f"the vectors agree with the {name} on {agreement.share:.0%}")

# %% [markdown]
# ## Are the labels right?
#
#     happier data suspects photos.index -o suspects.csv
#
# Ten labels are made wrong here. An image whose neighbours agree on another branch comes before one that is
# between two siblings.

# %%
from happier.curation.labelled_vectors import LabelledVectors
from happier.curation.suspects import find_suspects

rng = np.random.default_rng(0)
wrong = rng.choice(len(images), 10, replace=False)
spoilt = strokes.table.copy()
for row in wrong:
    other = names[(digit[row] + rng.integers(1, 10)) % 10]
    spoilt.loc[row, ["strokes", "digit"]] = [kinds[other], other]
spoilt_manifest = Manifest(spoilt, levels=["strokes", "digit"], root=folder)
suspects = [one for one in find_suspects(LabelledVectors(vectors, spoilt_manifest)) if one.kind == "label"]
planted = {f"{row}.png" for row in wrong}
print("of the first 10 suspects", sum(one.id in planted for one in suspects[:10]), "were planted,")
print(
    "and in the whole list of",
    len(suspects),
    "there are",
    len(planted & {one.id for one in suspects}),
    "of 10",
)
print("the first:", suspects[0].label, "->", suspects[0].proposed)

# %% [markdown]
# WordNet and the ranks of iNaturalist make trees, too: [Making a taxonomy](../guides/taxonomy.md).
