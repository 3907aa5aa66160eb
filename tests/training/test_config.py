"""Configurations: typed, checked, every fault at once."""

from pathlib import Path

import pytest
from omegaconf import OmegaConf

import happier.conf
from happier.errors import ConfigError
from happier.losses import LOSSES
from happier.training.compose import compose, sweep
from happier.training.config import differences, flatten, to_yaml

CONF = Path(happier.conf.__file__).parent
RECIPES = sorted(path.stem for path in (CONF / "recipe").glob("*.yaml"))
PAPER = ["sop", "inat_base", "inat_full", "dyml_vehicle", "dyml_animal", "dyml_product"]
MANIFEST = "data.manifest=a.csv"


def test_every_recipe_of_the_contract_is_there():
    wanted = {
        *PAPER,
        *(f"{name}_authors" for name in PAPER),
        "emoji",
        "wesnoth",
        "small",
        "folder",
        "folder_cpu",
        "folder_head",
    }
    assert set(RECIPES) == wanted


# Composing takes a good part of a second: every recipe, every loss, but not every pair.
PAIRS = [(RECIPES[number % len(RECIPES)], loss) for number, loss in enumerate(LOSSES)]


@pytest.mark.parametrize(("recipe", "loss"), PAIRS)
def test_losses_compose_under_recipes(recipe, loss):
    config = compose([f"recipe={recipe}", f"loss={loss}", MANIFEST])
    assert config.recipe == recipe
    assert config.loss["name"] == loss
    assert config.loss.keys() - {"name"} <= LOSSES[loss].options.keys()
    assert config.run == f"runs/{recipe}-{loss}"


@pytest.mark.parametrize("recipe", RECIPES)
def test_what_a_recipe_gives_to_a_loss_is_an_option_of_it(recipe):
    """All that a recipe says about losses, so that every pair composes."""
    text = OmegaConf.to_container(OmegaConf.load(CONF / "recipe" / f"{recipe}.yaml"))
    assert "loss" not in text
    for loss, options in text.get("loss_defaults", {}).items():
        assert options.keys() <= LOSSES[loss].options.keys()
    assert text.get("optimizer_defaults", {}).keys() <= LOSSES.keys()


def test_a_recipe_gives_losses_their_own_rates():
    own = OmegaConf.load(CONF / "recipe" / "wesnoth.yaml").optimizer_defaults
    assert own
    for loss, options in own.items():
        config = compose(["recipe=wesnoth", f"loss={loss}"])
        given = OmegaConf.structured(config.optimizer)
        assert given == OmegaConf.merge(given, options)
        assert config.optimizer_defaults == {}
    assert compose(["recipe=wesnoth", "loss=cluster"]).optimizer.lr == 4e-3
    assert compose(["recipe=wesnoth", "loss=roadmap", "optimizer.lr=0.5"]).optimizer.lr == 0.5


@pytest.mark.parametrize("recipe", RECIPES)
def test_every_recipe_opens_with_its_command_and_cost(recipe):
    text = (CONF / "recipe" / f"{recipe}.yaml").read_text()
    head = text[: text.index("\ndefaults:")]
    assert f"happier train recipe={recipe}" in head
    assert "# Cost:" in head


def test_the_papers_values():
    sop = compose(["recipe=sop", MANIFEST])
    assert (sop.model.backbone, sop.model.dim, sop.model.freeze_batch_norm) == ("resnet50.tv_in1k", 512, True)
    assert (sop.optimizer.name, sop.optimizer.lr, sop.optimizer.weight_decay) == ("adam", 1e-5, 1e-4)
    assert (sop.optimizer.proxies.lr, sop.optimizer.proxies.eta_min) == (10.0, 0.1)
    assert (sop.training.epochs, sop.training.batch_size, sop.training.warmup_epochs) == (75, 256, 5)
    assert (sop.sampler.name, sop.sampler.batches_per_pair, sop.transform.preset) == (
        "hierarchical",
        5,
        "sop",
    )
    assert sop.evaluation.count_query
    assert compose(["recipe=sop", "loss=happier_f", MANIFEST]).loss["alpha"] == 5
    assert compose(["recipe=inat_full", "loss=happier_f", MANIFEST]).loss["alpha"] == 3
    authors = compose(["recipe=sop_authors", MANIFEST])
    assert (authors.optimizer.lr, authors.loss["preset"]) == (5e-5, "authors")
    animal = compose(["recipe=dyml_animal", MANIFEST])
    assert (animal.model.backbone, animal.model.pretrained) == ("resnet34.tv_in1k", None)
    assert (animal.optimizer.name, animal.optimizer.lr, animal.optimizer.head_factor) == ("sgd", 0.1, 1.0)
    assert not animal.model.freeze_batch_norm
    assert compose(["recipe=dyml_animal_authors", MANIFEST]).loss["weight"] == 0.5
    product = compose(["recipe=dyml_product", MANIFEST])
    assert (product.model.pretrained, product.training.epochs) == ("imagenet", 20)
    assert (product.optimizer.lr, product.optimizer.eta_min) == (0.01, 1e-5)
    for name in ("inat_base", "inat_full", "inat_base_authors", "inat_full_authors"):
        proxies = compose([f"recipe={name}", MANIFEST]).optimizer.proxies
        assert (proxies.name, proxies.lr, proxies.weight_decay, proxies.eta_min) == ("adam", 2e-5, 4e-4, 1e-6)


@pytest.mark.parametrize("name", [*PAPER, *(f"{name}_authors" for name in PAPER)])
def test_the_papers_recipes_sum_over_levels_and_keep_the_last_weights(name):
    config = compose([f"recipe={name}", "loss=sum_nsm", MANIFEST])
    assert config.loss["reduction"] == "sum"
    assert config.evaluation.keep == "last"
    assert compose(["recipe=emoji", "loss=sum_nsm"]).loss["reduction"] == "mean"


@pytest.mark.parametrize("name", PAPER)
def test_the_authors_keep_the_query_in_the_loss(name):
    paper = compose([f"recipe={name}", "loss=happier", MANIFEST]).loss
    assert (paper["preset"], paper["include_query"]) == ("paper", False)
    authors = compose([f"recipe={name}_authors", "loss=happier", MANIFEST]).loss
    assert (authors["preset"], authors["include_query"]) == ("authors", True)


def test_the_overrides_of_the_contract():
    config = compose(
        [
            "recipe=emoji",
            "run=out",
            MANIFEST,
            "loss=happier",
            "loss.alpha=3",
            "loss.weight=0.2",
            "model.backbone=resnet18",
            "training.epochs=3",
            "training.batch_size=64",
            "training.micro_batch=32",
            "seed=7",
        ]
    )
    assert (config.run, config.data.manifest, config.seed) == ("out", "a.csv", 7)
    assert (config.loss["alpha"], config.loss["weight"]) == (3, 0.2)
    assert (config.model.backbone, config.training.micro_batch) == ("resnet18", 32)


def test_all_faults_are_listed_with_the_nearest_names():
    with pytest.raises(ConfigError) as error:
        compose(
            [
                "recipe=emoji",
                "loss=hapier",
                "training.epoch=3",
                "training.batch_size=many",
                "optimizer.lrr=1",
                "epochs=3",
                "+extra=1",
                "word",
            ]
        )
    text = str(error.value)
    assert "has 7 errors: " in text
    hints = ("mean 'happier'?", "'training.epochs'?", "training.batch_size=many", "'optimizer.lr'?", "word")
    for hint in hints:
        assert hint in text
    assert "\n" not in text


def test_options_of_losses_are_checked():
    with pytest.raises(ConfigError, match=r"loss\.alhpa of loss=happier \(did you mean 'loss\.alpha'\?\)"):
        compose(["recipe=emoji", "loss.alhpa=3"])
    with pytest.raises(ConfigError, match="must be a number"):
        compose(["recipe=emoji", "loss.alpha=much"])
    with pytest.raises(ConfigError, match=r"loss\.alpha of loss=nsm"):
        compose(["recipe=emoji", "loss=nsm", "loss.alpha=3"])


def test_types_of_loss_options_are_listed_with_the_other_faults():
    with pytest.raises(ConfigError) as caught:
        compose(["recipe=emoji", "loss.hrank=none", "loss.tau=x", "optimizer.lr=-1"])
    text = str(caught.value)
    assert "has 3 errors: " in text
    assert "loss.hrank must be true or false, got 'none'" in text
    assert "loss.tau must be a finite number, got 'x'" in text


def test_values_out_of_range_are_listed():
    with pytest.raises(ConfigError) as error:
        compose(["recipe=folder", "optimizer.lr=0", "training.epochs=0", "optimizer.name=adamm"])
    for hint in (
        "data.manifest",
        "optimizer.lr must be",
        "training.epochs must be",
        "one of adam, adamw, sgd",
    ):
        assert hint in str(error.value)


def test_the_recipe_for_folders_trains_a_head_without_a_gpu(monkeypatch, caplog):
    def composed(*overrides, gpu):
        monkeypatch.setattr("torch.cuda.is_available", lambda: gpu)
        return compose([MANIFEST, *overrides])

    head, tuned = composed(gpu=False), composed(gpu=True)
    assert (head.recipe, tuned.recipe) == ("folder", "folder")
    assert (head.model.train, head.model.head, head.training.steps) == ("head", "mlp", 300)
    assert (head.optimizer.lr, head.loss["tau"], head.optimizer.proxies.lr) == (5e-4, 0.05, 0.01)
    assert (tuned.model.train, tuned.model.head, tuned.training.steps) == ("all", "linear", None)
    assert [record.message.split(",")[0] for record in caplog.records] == [
        "recipe=folder: there is no GPU",
        "recipe=folder: there is a GPU",
    ]
    # What is said decides, and is not commented.
    caplog.clear()
    assert composed("recipe=folder", "model.train=all", gpu=False).training.epochs == 20
    assert composed("recipe=folder", "model.train=head", gpu=True).training.steps == 300
    assert composed("model.train=head", "training.epochs=5", gpu=False).training.steps is None
    assert composed("recipe=small", gpu=False).model.train == "all"
    assert composed("model.train=head", "loss=nsm", "loss.sigma=0.3", gpu=False).loss["sigma"] == 0.3
    assert not caplog.records


def test_a_run_of_an_earlier_version_goes_on():
    config = flatten(compose(["recipe=small", MANIFEST]))
    stored = {key: value for key, value in config.items() if key not in ("model.train", "training.steps")}
    assert differences(stored, config) == []
    assert differences(stored, config | {"model.train": "head"}) == ["model.train was 'all', is 'head'"]


OUT_OF_RANGE = {
    "seed": ["-5", str(2**63), str(10**40)],
    "data.workers": ["-1", "100000"],
    "model.dim": ["0", str(10**12)],
    "optimizer.lr": ["0", "-1", "inf", "nan"],
    "optimizer.weight_decay": ["-1", "inf", "nan"],
    "optimizer.momentum": ["inf"],
    "optimizer.eta_min": ["nan"],
    "optimizer.head_factor": ["inf"],
    "optimizer.proxies.lr": ["inf"],
    "transform.size": ["7", "100000"],
    "transform.rotate": ["nan", "-1", "inf"],
    "transform.crop_scale": ["0", "1.1", "nan"],
    "transform.crop_ratio": ["0.9", "inf", "nan"],
    "transform.colour": ["1", "nan"],
    "transform.preset": ["smal"],
    "training.batch_size": ["1", str(10**12)],
    "training.clip_norm": ["0", "inf", "nan"],
    "training.checkpoint_minutes": ["0", "nan"],
    "training.memory": ["-1", str(10**15)],
    "training.warmup_epochs": ["-1", "14"],
    "evaluation.patience": ["0"],
    "loss.alpha": ["nan", "inf"],
}


@pytest.mark.parametrize("which", [0, -1])
def test_every_value_out_of_range_is_listed_when_composed(which):
    wrong = {key: values[which] for key, values in OUT_OF_RANGE.items()}
    with pytest.raises(ConfigError) as error:
        compose(["recipe=emoji", *(f"{key}={value}" for key, value in wrong.items())])
    text = str(error.value)
    assert f"has {len(wrong)} errors: " in text
    assert "\n" not in text
    for key in wrong:
        assert f"{key} must be" in text


def test_the_ends_of_ranges_are_in():
    pairs = [f"seed={2**63 - 1}", "transform.size=8", "transform.rotate=360", "training.warmup_epochs=13"]
    assert compose(["recipe=emoji", *pairs]).seed == 2**63 - 1


def test_several_values_need_a_sweep():
    with pytest.raises(ConfigError, match="add -m"):
        compose(["recipe=emoji", "loss=nsm,happier"])


def test_the_default_run_tells_what_was_set():
    assert compose(["seed=1", "recipe=emoji", "loss=nsm"]).run == "runs/emoji-nsm-seed=1"


def test_a_sweep_runs_every_combination(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    seen = []
    sweep(["recipe=small", MANIFEST, "loss=nsm,happier", "seed=0,1"], seen.append)
    assert [(config.loss["name"], config.seed) for config in seen] == [
        ("nsm", 0),
        ("nsm", 1),
        ("happier", 0),
        ("happier", 1),
    ]
    assert len({config.run for config in seen}) == 4


def test_a_sweep_with_a_fault_runs_nothing():
    seen = []
    with pytest.raises(ConfigError, match="hapier"):
        sweep(["recipe=small", MANIFEST, "loss=nsm,hapier"], seen.append)
    assert seen == []


def test_differences_leave_out_what_changes_no_result():
    first = compose(["recipe=small", MANIFEST, "run=a"])
    assert differences(first, compose(["recipe=small", MANIFEST, "run=b", "data.workers=7"])) == []
    assert (
        differences(first, compose(["recipe=small", MANIFEST, "seed=1", "loss=nsm"]))[-1]
        == "seed was 0, is 1"
    )


def test_a_run_of_an_earlier_version_is_the_same_configuration():
    config = compose(["recipe=small", MANIFEST])
    stored = OmegaConf.to_container(OmegaConf.create(to_yaml(config)))
    stored["loss"]["form"] = stored["loss"].pop("engine")
    del stored["training"]["clip_norm"], stored["loss"]["alpha"], stored["seed"]
    assert differences(stored, config) == []
    other = compose(["recipe=small", MANIFEST, "loss.alpha=3", "training.clip_norm=1", "seed=2"])
    assert len(differences(stored, other)) == 3


def test_yaml_holds_every_key():
    config = compose(["recipe=small", MANIFEST])
    stored = OmegaConf.to_container(OmegaConf.create(to_yaml(config)))
    assert flatten(stored) == flatten(config)
