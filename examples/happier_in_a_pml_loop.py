# %% [markdown]
# # The HAPPIER loss in a pytorch-metric-learning loop
#
# A loop as that library's users write it: its sampler and its `AccuracyCalculator` stay, the loss changes.
# The images are scikit-learn's handwritten digits, the tree is strokes > digit. A loss that knows digits only
# (normalised softmax) is trained beside it, from the same weights, on the same batches.
#
#     python examples/happier_in_a_pml_loop.py

# %%
import numpy as np
import torch
from pytorch_metric_learning.losses import NormalizedSoftmaxLoss
from pytorch_metric_learning.samplers import MPerClassSampler
from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset

import happier
from happier.losses import HAPPIERLoss

DIM, EPOCHS = 32, 4

images, digit = load_digits(return_X_y=True)
group = np.array([0, 1, 2, 2, 1, 2, 0, 1, 0, 0])[digit]  # loops 0 6 8 9, straight 1 4 7, hooks 2 3 5
pixels = torch.tensor(images / 16, dtype=torch.float32)
labels = torch.tensor(np.stack([group, digit], axis=1))  # [images, levels], coarse first
order = np.random.default_rng(0).permutation(len(pixels))
train, test = torch.tensor(order[:900]), torch.tensor(order[900:])

# %% [markdown]
# The loop. Only two things are hierarchical: `batch_labels` are whole rows, and the loss understands them.
# A loss with proxies has weights of its own, which want a larger learning rate.


# %%
def fit(criterion, *, hierarchical):
    torch.manual_seed(0)
    np.random.seed(0)  # noqa: NPY002 (what MPerClassSampler draws from)
    network = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, DIM))
    optimizer = torch.optim.Adam(
        [{"params": network.parameters(), "lr": 1e-3}, {"params": criterion.parameters(), "lr": 1e-1}]
    )
    sampler = MPerClassSampler(labels[train, -1], m=8, batch_size=80, length_before_new_iter=900)
    loader = DataLoader(TensorDataset(pixels[train], labels[train]), batch_size=80, sampler=sampler)
    for epoch in range(EPOCHS):
        losses = []
        for batch, batch_labels in loader:
            embeddings = torch.nn.functional.normalize(network(batch), dim=1)
            loss = criterion(embeddings, batch_labels if hierarchical else batch_labels[:, -1])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        print(f"  epoch {epoch + 1}: loss {np.mean(losses):.3f}")
    with torch.no_grad():
        return torch.nn.functional.normalize(network(pixels[test]), dim=1)


torch.manual_seed(0)
print("normalised softmax, digits only")
flat = fit(NormalizedSoftmaxLoss(num_classes=10, embedding_size=DIM), hierarchical=False)
print("HAPPIER, strokes and digits")
tree = fit(HAPPIERLoss(num_classes=10, dim=DIM), hierarchical=True)

# %% [markdown]
# That library's accuracy sees the digit alone; `happier.evaluate` also sees what the mistakes are.

# %%
accuracy = AccuracyCalculator(include=("precision_at_1",), k=1)
results = {}
for name, vectors in (("softmax", flat), ("HAPPIER", tree)):
    p_at_1 = accuracy.get_accuracy(vectors, labels[test, -1])["precision_at_1"]
    results[name] = happier.evaluate(vectors, labels[test], level_names=["strokes", "digit"])
    summary = results[name].summary
    print(
        f"{name}: P@1 {p_at_1:.3f} (ours {summary['R@1/digit']:.3f})  H-AP {summary['H-AP']:.3f}  "
        f"AP strokes {summary['AP/strokes']:.3f}  AP digit {summary['AP/digit']:.3f}"
    )
change = happier.compare(results["softmax"], results["HAPPIER"])["H-AP"]
print(f"H-AP {change.mean:+.3f} (95% {change.low:+.3f} to {change.high:+.3f})")
