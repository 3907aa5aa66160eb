# %% [markdown]
# # Every hierarchical metric of your embeddings, in 20 lines
#
# 1,797 handwritten digits of 8 x 8 pixels, and a tree of two levels over them: which strokes a digit is made
# of, then the digit. The pixels themselves are the embeddings: put the vectors of your model in their place.
#
#     python examples/metric_on_your_embeddings.py

# %%
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
# How sure is that, and is another model better? Half of the pixels, as a second model, on the same queries.

# %%
interval = result.bootstrap()["H-AP"]
print(f"H-AP {interval.mean:.3f}, 95% interval {interval.low:.3f} to {interval.high:.3f}")

half = images[:, ::2] / np.linalg.norm(images[:, ::2], axis=1, keepdims=True)
other = happier.evaluate(half, labels, level_names=["group", "digit"], ks=(1, 10))
change = happier.compare(result, other)["H-AP"]
print(f"half of the pixels: {change.mean:+.3f}, 95% interval {change.low:+.3f} to {change.high:+.3f}")

# %% [markdown]
# The queries that go wrong the furthest: the first answer shares not even the group.

# %%
distance = result.per_query["severity@1"]
for steps, words in enumerate(("the same digit", "the same group", "neither")):
    print(f"first answer, {words}: {np.mean(distance == steps):.1%}")
print("worst queries:", np.argsort(result.per_query["H-AP"])[:5].tolist())
