# %% [markdown]
# # Emoji by their keywords
#
# Images that share attributes rather than a place in a tree: each emoji has keywords (*face; grin; smile*),
# and two images are the more relevant to each other the more keywords they share. The first call fetches the
# images (`happier data fetch emoji --size 32`). In the repository: `python examples/emoji_by_keywords.py`.

# %%
import numpy as np
import torch
from torch.nn import functional as F

import happier
from happier.data import AttributeBatchSampler, Manifest, fetch, read_image
from happier.losses import GradedHAPLoss

torch.manual_seed(0)
manifest = Manifest.read(fetch("emoji", size=32))
has, keywords = manifest.attributes()  # [images, keywords]
print(f"{len(has):,} images, {len(keywords):,} keywords, {has.sum(1).mean():.1f} to an image")

# %% [markdown]
# Features that are computed once and kept: here the colours of 16 x 16 squares; in earnest, vectors of a
# pretrained network (`happier embed`). Half of the emoji are for training; the others were never seen.

# %%
squares = [np.asarray(read_image(file).resize((16, 16))).reshape(-1) for file in manifest.files()]
features = torch.tensor(np.stack(squares), dtype=torch.float32) / 255
features -= features.mean(0)
split = manifest.table["split"].to_numpy()
train, test = np.flatnonzero(split == "train"), np.flatnonzero(split == "test")
queries = np.random.default_rng(0).permutation(test)[:500]


def h_ap(vectors):
    """H-AP of 500 queries among all test images, by the share of keywords in common."""
    vectors = F.normalize(vectors, dim=1)
    found = happier.evaluate(
        vectors[queries],
        None,
        vectors[test],
        None,
        ids=queries,
        gallery_ids=test,
        relevance=lambda some: happier.jaccard(has[queries[some]], has[test]),
    )
    return found.summary["H-AP"]


# %% [markdown]
# A batch holds groups of four images with a keyword in common; the loss takes the relevance of each to each.

# %%
network = torch.nn.Sequential(
    torch.nn.Linear(768, 512), torch.nn.ReLU(), torch.nn.Dropout(0.3), torch.nn.Linear(512, 64)
)
criterion = GradedHAPLoss()
optimizer = torch.optim.Adam(network.parameters(), lr=1e-3, weight_decay=1e-4)
sampler = AttributeBatchSampler(has[train], batch_size=256, per_attribute=4, seed=0)
for epoch in range(10):
    sampler.set_epoch(epoch)
    losses = []
    for batch in sampler:
        rows = train[batch]
        vectors = F.normalize(network(features[rows]), dim=1)
        loss = criterion(vectors, happier.jaccard(torch.from_numpy(has[rows])))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    print(f"  epoch {epoch + 1}: loss {np.mean(losses):.3f}")

# %%
network.eval()
with torch.no_grad():
    trained = network(features)
print(f"H-AP by keywords, unseen emoji: colours {h_ap(features):.3f}, trained {h_ap(trained):.3f}")
