"""Figures in other programs, and our metrics in a Lightning trainer."""

import csv
import json
import signal
import sys

import lightning
import pytest
import torch
from training_runs import kill_at, lines

import happier
from happier.errors import CheckpointError, ConfigError, InputError, MissingExtraError, TrainingError
from happier.lightning import HierarchicalRetrievalCallback
from happier.runs.run_directory import RunDirectory
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
        monkeypatch.setitem(sys.modules, name, None)
        with pytest.raises(MissingExtraError, match=rf"'{name}': pip install 'happier-retrieval\[loggers\]'"):
            loggers.FigureLogger(name, RunDirectory(tmp_path), {})


class Server:
    """A logger whose server can be refused or lost."""

    version = "id-of-the-server"

    def __init__(self, *, lost=False):
        self.lost, self.settings, self.calls = lost, None, 0

    def log_hyperparams(self, settings):
        self.settings = settings

    def log_metrics(self, values, step):
        self.calls += 1
        if self.lost:
            raise LookupError("the server is gone\nand more")

    def save(self):
        pass

    def finalize(self, status):
        self.status = status


def test_a_resumed_run_continues_under_the_same_id(tmp_path, monkeypatch):
    run, known, servers = RunDirectory(tmp_path), [], []

    def begin(_run, known_as):
        known.append(known_as)
        servers.append(Server())
        return servers[-1]

    monkeypatch.setattr(loggers, "LOGGERS", {"mlflow": begin})
    loggers.FigureLogger("mlflow", run, {"seed": 0, "model.start": None}).close(failed=True)
    loggers.FigureLogger("mlflow", run, {"seed": 0}).close()
    assert known == [None, "id-of-the-server"]
    # Settings are those of the first start: MLflow refuses to change them.
    assert [server.settings for server in servers] == [{"seed": 0}, None]
    assert [server.status for server in servers] == ["failed", "success"]
    whole = run.logger_file.read_text()
    for damaged in ("{", "[1, 2]", whole.replace("id-of", "id-0f")):
        run.logger_file.write_text(damaged)
        with pytest.raises(CheckpointError, match=r"logger\.json is damaged.*; remove it"):
            loggers.FigureLogger("mlflow", run, {})


def test_a_lost_server_is_one_warning_and_a_refused_one_an_error(tmp_path, monkeypatch, caplog):
    server = Server(lost=True)
    monkeypatch.setattr(loggers, "LOGGERS", {"mlflow": lambda run, known_as: server})
    logger = loggers.FigureLogger("mlflow", RunDirectory(tmp_path), {})
    for step in range(3):
        logger.write("train", {"loss": 0.5}, step)
    logger.close()
    assert server.calls == 1
    assert [record.getMessage() for record in caplog.records] == [
        "training.logger=mlflow is lost (the server is gone); training goes on"
    ]

    def refuse(_run, known_as):
        raise LookupError("no account")

    monkeypatch.setattr(loggers, "LOGGERS", {"mlflow": refuse})
    with pytest.raises(
        TrainingError, match=r"training\.logger=mlflow cannot be started \(no account\); run without it"
    ):
        loggers.FigureLogger("mlflow", RunDirectory(tmp_path / "other"), {})


def logged_values(run):
    """What metrics.jsonl has: {name: {step: value}}, under the names that the loggers get."""
    found = {}
    for line in lines(run):
        group, values = ("train", line) if line["kind"] == "train" else (line["split"], line["metrics"])
        for name in ("loss", "lr", "H-AP", "severity@1"):
            if values.get(name) is not None:
                found.setdefault(f"{group}/{name.replace('@', '_at_')}", {})[line["step"]] = values[name]
    return found


# Of MLflow, its database and what they import.
@pytest.mark.filterwarnings("default")
def test_mlflow_has_the_figures_of_a_run_and_continues_it(logged, tmp_path, monkeypatch, caplog):
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    options = [*logged, "training.logger=mlflow", "training.checkpoint_steps=1"]
    assert kill_at(["4:step"], options) == [-signal.SIGKILL]
    train(compose(options))
    assert "is lost" not in caplog.text
    client = mlflow.MlflowClient(f"sqlite:///{tmp_path / 'run' / 'mlflow.db'}")
    (experiment,) = client.search_experiments(filter_string="name = 'happier'")
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.info.status == "FINISHED"
    assert run.data.params["training.logger"] == "mlflow"
    for name, values in logged_values(tmp_path / "run").items():
        assert {one.step: one.value for one in client.get_metric_history(run.info.run_id, name)} == values


@pytest.mark.filterwarnings("default")
def test_weights_and_biases_has_the_figures_of_a_run(logged, tmp_path, monkeypatch, caplog):
    wandb = pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    train(compose([*logged, "training.logger=wandb"]))
    assert "is lost" not in caplog.text
    wandb.teardown()  # waits for the process that writes the file
    (kept,) = (tmp_path / "run" / "wandb").glob("offline-run-*/*.wandb")
    found = {}
    for history in wandb_history(kept):
        for name in history.keys() - {"trainer/global_step"}:
            found.setdefault(name, {})[history["trainer/global_step"]] = history[name]
    for name, values in logged_values(tmp_path / "run").items():
        assert found[name] == pytest.approx(values)


def wandb_history(path):
    """The lines that an offline run of Weights & Biases holds."""
    from wandb.proto import wandb_internal_pb2
    from wandb.sdk.internal.datastore import DataStore

    store = DataStore()
    store.open_for_scan(str(path))
    while (data := store.scan_data()) is not None:
        record = wandb_internal_pb2.Record()
        record.ParseFromString(data)
        if record.WhichOneof("record_type") == "history":
            items = {item.key or "/".join(item.nested_key): item.value_json for item in record.history.item}
            yield {name: json.loads(value) for name, value in items.items()}


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


def test_the_callback_needs_a_level_and_no_cut_off():
    with pytest.raises(InputError, match="at least one level"):
        HierarchicalRetrievalCallback(level_names=[])
    assert HierarchicalRetrievalCallback(level_names=["kind", "item"], ks=()).metrics == ("H-AP", "AP/item")
