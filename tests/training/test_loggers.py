"""Figures in other programs, and our metrics in a Lightning trainer."""

import csv
import math

import lightning
import pytest
import torch
from training_runs import lines

import happier
from happier.errors import ConfigError, InputError, MissingExtraError
from happier.lightning import HierarchicalRetrievalCallback
from happier.training import loggers
from happier.training.compose import compose
from happier.training.loop import train


@pytest.fixture
def logged(small, tmp_path):
    return [*small, f"run={tmp_path / 'run'}", "training.log_every=3", "evaluation.every=2"]


def test_csv_has_the_figures_of_the_run(logged, tmp_path):
    train(compose([*logged, "training.logger=csv"]))
    with (tmp_path / "run" / "csv" / "version_0" / "metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    found = {}
    for row in rows:
        found.setdefault(int(row["step"]), {}).update({key: value for key, value in row.items() if value})
    for line in lines(tmp_path / "run"):
        own = found[line["step"]]
        if line["kind"] == "train":
            assert float(own["train/loss"]) == pytest.approx(line["loss"])
        else:
            metrics = line["metrics"]
            assert float(own[f"{line['split']}/H-AP"]) == pytest.approx(metrics["H-AP"])
            assert float(own[f"{line['split']}/severity_at_1"]) == pytest.approx(metrics["severity@1"])
    assert (tmp_path / "run" / "csv" / "version_0" / "hparams.yaml").is_file()


def test_an_unknown_or_missing_logger_is_named(logged, monkeypatch, tmp_path):
    with pytest.raises(ConfigError, match="logger must be one of csv, wandb, mlflow, got 'neptune'"):
        compose([*logged, "training.logger=neptune"])
    for name in ("wandb", "mlflow"):
        monkeypatch.setitem(__import__("sys").modules, name, None)
        with pytest.raises(MissingExtraError, match=rf"'{name}': pip install 'happier-retrieval\[loggers\]'"):
            loggers.FigureLogger(name, tmp_path, {})


def test_weights_and_biases_offline(tmp_path, monkeypatch):
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    (tmp_path / "run").mkdir()
    logger = loggers.FigureLogger("wandb", tmp_path / "run", {"seed": 0, "run": None})
    logger.write("train", {"loss": 0.5, "P@1": math.nan}, 1)
    logger.close()
    assert list((tmp_path / "run" / "wandb").glob("offline-run-*"))


class Module(lightning.LightningModule):
    def __init__(self, returned):
        super().__init__()
        self.network, self.returned = torch.nn.Linear(4, 3), returned

    def training_step(self, batch):
        return self.network(batch[0]).square().mean()

    def validation_step(self, batch):
        embeddings = torch.nn.functional.normalize(self.network(batch[0]), dim=1)
        return {"embeddings": embeddings, "labels": batch[1]} if self.returned else None

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)


# Of Lightning itself.
@pytest.mark.filterwarnings(
    "ignore:.*LeafSpec:FutureWarning",
    "ignore:The .* does not have many workers",
    "ignore:The number of training batches",
)
def test_the_callback_logs_what_evaluate_says():
    torch.manual_seed(0)
    labels = torch.tensor([[n // 8, n // 4] for n in range(16)])
    data = torch.utils.data.TensorDataset(torch.randn(16, 4), labels)
    loader = torch.utils.data.DataLoader(data, batch_size=5)
    callback = HierarchicalRetrievalCallback(
        level_names=["kind", "item"], metrics=("H-AP", "AP/kind"), prefix="val/"
    )
    options = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    trainer = lightning.Trainer(
        accelerator="cpu", callbacks=[callback], enable_checkpointing=False, max_epochs=1, **options
    )
    module = Module(returned=True)
    trainer.fit(module, loader, loader)
    with torch.no_grad():
        vectors = torch.nn.functional.normalize(module.network(data.tensors[0]), dim=1)
    # The module has not moved since the evaluation at the end of the epoch.
    expected = happier.evaluate(vectors.numpy(), labels.numpy(), level_names=["kind", "item"]).summary
    for name in ("H-AP", "AP/kind"):
        assert float(trainer.callback_metrics[f"val/{name}"]) == pytest.approx(expected[name], abs=1e-6)
    with pytest.raises(InputError, match="validation_step must return"):
        trainer.validate(Module(returned=False), loader, verbose=False)
