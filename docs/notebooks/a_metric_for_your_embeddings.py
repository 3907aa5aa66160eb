# %% [markdown]
# # A metric for your embeddings
#
# 1,797 handwritten digits of 8 x 8 pixels, and a tree of two levels over them: which strokes a digit is made
# of, then the digit. The pixels themselves are the embeddings: put the vectors of your model in their place.

# %%
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

import happier

images, digit = load_digits(return_X_y=True)
group = np.array([0, 1, 2, 2, 1, 2, 0, 1, 0, 0])[digit]  # loops 0 6 8 9, straight 1 4 7, hooks 2 3 5

labels = np.stack([group, digit], axis=1)  # [images, levels], coarse first
vectors = images / np.linalg.norm(images, axis=1, keepdims=True)  # unit vectors: scores are cosines

result = happier.evaluate(vectors, labels, level_names=["group", "digit"], ks=(1, 10))
print(result)

# %% [markdown]
# Every image was a query, searched for among all others. H-AP is one number for the whole hierarchy; AP has
# one for each level; severity is how far off the answers are, in steps up the tree.
#
# ## How sure is that, and is another model better?
#
# Half of the pixels, as a second model, on the same queries. The intervals resample the finest classes with
# all their queries; ten classes are few, so they are wide.

# %%
interval = result.bootstrap()["H-AP"]
print(f"H-AP {interval.mean:.3f}, 95% interval {interval.low:.3f} to {interval.high:.3f}")

half = images[:, ::2] / np.linalg.norm(images[:, ::2], axis=1, keepdims=True)
other = happier.evaluate(half, labels, level_names=["group", "digit"], ks=(1, 10))
change = happier.compare(result, other)["H-AP"]
print(f"half of the pixels: {change.mean:+.3f}, 95% interval {change.low:+.3f} to {change.high:+.3f}")

# %% [markdown]
# ## How wrong are the wrong answers?
#
# The bar shows what the first ten answers share with their query. Red is what a user would complain about.

# %%
kinds = {
    "digit": ("the same digit", "#2e9e5b"),
    "group": ("the same group", "#3b7dd8"),
    "none": ("neither", "#d6453d"),
}
figure, axes = plt.subplots(figsize=(7, 1.6), dpi=80)
for row, (name, found) in enumerate({"all pixels": result, "half of them": other}.items()):
    left = 0.0
    for level, (words, colour) in kinds.items():
        share = found.summary[f"share@10/{level}"]
        axes.barh(row, share, left=left, color=colour, label=words if row == 0 else None)
        if share > 0.05:
            axes.text(left + share / 2, row, f"{share:.1%}", color="white", ha="center", va="center")
        left += share
        print(f"{name}, of the first ten answers, {words}: {share:.1%}")
axes.set(yticks=[0, 1], yticklabels=["all pixels", "half of them"], xticks=[], xlim=(0, 1))
axes.invert_yaxis()
axes.spines[:].set_visible(False)
figure.legend(loc="lower center", ncols=3, frameon=False, bbox_to_anchor=(0.5, -0.12))
plt.show()

# %% [markdown]
# `result.per_query` has every value for every query, `result.to_parquet` writes them to a file: sort by H-AP
# and look at the worst. More in [Metrics in your loop](../guides/metrics-in-your-loop.md).
