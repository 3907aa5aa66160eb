# %% [markdown]
# # Train with Lightning instead of our loop
#
# The HAPPIER loss, our sampler and our metrics in a Lightning `Trainer`. In the repository:
# `python examples/happier_with_lightning.py`.
# The digits of scikit-learn are grouped into two kinds: those with a closed loop, and the others.

# %%
import logging
import tempfile
import warnings

import lightning
import torch
from lightning.fabric.utilities.warnings import PossibleUserWarning
from lightning.pytorch.callbacks import ModelCheckpoint
from sklearn.datasets import load_digits
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from happier import Taxonomy
from happier.data import MPerClassBatchSampler
from happier.lightning import HierarchicalRetrievalCallback
from happier.losses import HAPPIERLoss, gather_across_ranks

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
warnings.filterwarnings("ignore", category=PossibleUserWarning)
warnings.filterwarnings("ignore", message=".*LeafSpec", category=FutureWarning)  # of Lightning itself
torch.manual_seed(0)

# %% [markdown]
# Labels are rows, coarse to fine; the taxonomy numbers the classes of each level from 0.

# %%
digits = load_digits()
images = torch.tensor(digits.data, dtype=torch.float32) / 16
fine = torch.tensor(digits.target)
has_loop = torch.isin(fine, torch.tensor([0, 4, 6, 8, 9])).long()
taxonomy = Taxonomy.from_labels(torch.stack([has_loop, fine], dim=1).numpy(), level_names=["loop", "digit"])
labels = torch.from_numpy(taxonomy.codes)
known, held_out = slice(0, 1200), slice(1200, None)

# %% [markdown]
# The module has no metric inside: its validation step returns embeddings and labels for the callback.


# %%
class Retrieval(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.network = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.GELU(), torch.nn.Linear(64, 16))
        self.criterion = HAPPIERLoss(num_classes=taxonomy.num_classes[-1], dim=16)

    def forward(self, pixels):
        return F.normalize(self.network(pixels), dim=1)

    def training_step(self, batch):
        pixels, rows = batch
        return self.criterion(gather_across_ranks(self(pixels)), gather_across_ranks(rows))

    def validation_step(self, batch):
        pixels, rows = batch
        return {"embeddings": self(pixels), "labels": rows}

    def configure_optimizers(self):
        network = {"params": self.network.parameters(), "lr": 3e-3}
        return torch.optim.Adam([network, {"params": self.criterion.proxy_parameters(), "lr": 5e-2}])


# %% [markdown]
# Lightning's own callbacks can monitor what ours logs.

# %%
sampler = MPerClassBatchSampler(taxonomy.codes[known], batch_size=40, per_class=4, seed=0)
training = DataLoader(TensorDataset(images[known], labels[known]), batch_sampler=sampler)
validation = DataLoader(TensorDataset(images[held_out], labels[held_out]), batch_size=200)
metrics = HierarchicalRetrievalCallback(level_names=taxonomy.level_names)
with tempfile.TemporaryDirectory() as folder:
    best = ModelCheckpoint(folder, monitor="H-AP", mode="max")
    trainer = lightning.Trainer(
        max_epochs=10,
        accelerator="cpu",
        logger=False,
        callbacks=[metrics, best],
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    module = Retrieval()
    (before,) = trainer.validate(module, validation, verbose=False)
    trainer.fit(module, training, validation)
    after = trainer.callback_metrics

# %%
for name in metrics.metrics:
    print(f"{name}: {before[name]:.3f} untrained, {float(after[name]):.3f} after {trainer.max_epochs} epochs")
print(f"best H-AP of an epoch: {float(best.best_model_score):.3f}")
