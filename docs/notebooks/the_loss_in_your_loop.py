# %% [markdown]
# # The loss in your loop
#
# A training loop in plain PyTorch, on 1,797 handwritten digits with a tree of two levels: strokes, then the
# digit. It is run twice, from the same weights and with the same batches: once with a loss that knows digits
# only, once with HAPPIER, which knows the tree.

# %%
import matplotlib.pyplot as plt
import numpy as np
import torch
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset

import happier
from happier.data import MPerClassBatchSampler
from happier.losses import HAPPIERLoss, NormSoftmaxLoss

images, digit = load_digits(return_X_y=True)
group = np.array([0, 1, 2, 2, 1, 2, 0, 1, 0, 0])[digit]  # loops 0 6 8 9, straight 1 4 7, hooks 2 3 5
pixels = torch.tensor(images / 16, dtype=torch.float32)
labels = torch.tensor(np.stack([group, digit], axis=1))  # [images, levels], coarse first
order = np.random.default_rng(0).permutation(len(pixels))
train, test = torch.tensor(order[:900]), torch.tensor(order[900:])

# %% [markdown]
# Three things are particular to ranking losses. A batch holds **several images of a class**, which the
# sampler provides. The vectors are **normalised**. And the loss has **weights of its own** (a proxy for each
# class), which need a larger learning rate than the network.


# %%
def fit(criterion):
    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 32))
    optimizer = torch.optim.Adam(
        [
            {"params": network.parameters(), "lr": 1e-3},
            {"params": criterion.proxy_parameters(), "lr": 1e-1},
        ]
    )
    sampler = MPerClassBatchSampler(labels[train].numpy(), batch_size=80, per_class=8, seed=0)
    loader = DataLoader(TensorDataset(pixels[train], labels[train]), batch_sampler=sampler)
    curve = []
    for epoch in range(6):
        sampler.set_epoch(epoch)
        for batch, batch_labels in loader:
            embeddings = torch.nn.functional.normalize(network(batch), dim=1)
            loss = criterion(embeddings, batch_labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            curve.append(loss.item())
    with torch.no_grad():
        return torch.nn.functional.normalize(network(pixels[test]), dim=1), curve


torch.manual_seed(0)
vectors, curves = {}, {}
vectors["NSM"], curves["NSM"] = fit(NormSoftmaxLoss(num_classes=10, dim=32))
vectors["HAPPIER"], curves["HAPPIER"] = fit(HAPPIERLoss(num_classes=10, dim=32))

figure, axes = plt.subplots(figsize=(7, 2.4), dpi=80)
for name, curve in curves.items():
    axes.plot(curve, label=name)
axes.set(xlabel="step", ylabel="loss", ylim=(0, None))
axes.legend(frameon=False)
plt.show()

# %% [markdown]
# The two losses are not on one scale; what counts is the retrieval on images that neither has seen.

# %%
results = {
    name: happier.evaluate(found, labels[test], level_names=["strokes", "digit"], ks=(1, 10))
    for name, found in vectors.items()
}
for name, result in results.items():
    row = {key: round(100 * result.summary[key], 1) for key in ("H-AP", "AP/strokes", "AP/digit")}
    print(name, row, "severity@10", round(result.summary["severity@10"], 3))

# %% [markdown]
# The table says which way the difference goes: second minus first, here HAPPIER minus NSM.

# %%
print(happier.compare(results["NSM"], results["HAPPIER"]))

# %% [markdown]
# In pytorch-metric-learning and Lightning: [Losses in your loop](../guides/losses-in-your-loop.md). Which
# loss: [Choose a loss](../guides/choose-a-loss.md).
