"""A study is a YAML file: methods, each a list of overrides of ``happier train``, and their seeds.

    about: what the study asks
    data: emoji                     # a data set that `happier data fetch` knows
    val: 0.2                        # optional: fraction of the training classes to hold out and evaluate on
    base: [training.epochs=4]       # for all methods
    seeds: [0, 1, 2]
    reference: HAPPIER              # optional: what the others are compared with; else the first method
    methods:
      HAPPIER: [loss=happier]
      NSM: {overrides: [loss=nsm], seeds: [0]}
      rate: [loss=nsm, "optimizer.lr=5e-4,1e-3"]     # a sweep: one method for each value

A method without a learning rate takes those that were tuned for its family of losses. The same run in two
studies is run once: a run is identified by its data and its overrides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import yaml

from experiments.results import find_result
from happier.errors import ConfigError
from happier.storage.atomic import atomic_file
from happier.training.compose import combinations

Key = TypeVar("Key")
HERE = Path(__file__).parent
STUDIES, RATES = HERE / "studies", HERE / "rates.yaml"
# Defaults of a run where its study sets nothing. Recipes have the rates that were finally chosen, which must
# not change the runs that chose them.
UNSAID = ("optimizer.proxies.lr=0.05",)
# H-AP by which two rates must differ to count as different: about the spread over a method's seeds.
LEVEL = 0.005
# Losses that are variants of another and train at its learning rate.
FAMILIES = {
    "happier_f": "happier",
    "happier_s": "happier",
    "hap": "happier",
    "hap_sigmoid": "happier",
    "sigma_wap": "happier",
}


@dataclass(frozen=True)
class Job:
    """One run of a study.

    Attributes:
        data: name of the data set.
        val: fraction of the training classes that it is evaluated on; 0 for the test split.
        overrides: of ``happier train``, without the seed.
        seed: of the run.
    """

    data: str
    val: float
    overrides: tuple[str, ...]
    seed: int

    @property
    def name(self) -> str:
        """Name of the run: its overrides in short, ``happier,alpha=5,seed=0``."""
        parts = [text.removeprefix("loss=").removeprefix("loss.") for text in self.overrides]
        return ",".join([*parts, f"seed={self.seed}"])

    @property
    def split(self) -> str:
        """The split that it is evaluated on."""
        return "val" if self.val else "test"

    @property
    def folder(self) -> str:
        """Runs of the same data and split are stored together."""
        return f"{self.data}-val" if self.val else self.data

    @property
    def loss(self) -> str:
        """Name of the loss."""
        return next(text.removeprefix("loss=") for text in self.overrides if text.startswith("loss="))

    def train_overrides(self) -> list[str]:
        """All overrides of ``happier train``, without the seed.

        Raises:
            ConfigError: no learning rate was named, and none was tuned.
        """
        if not any(map(_is_rate, self.overrides)):
            raise ConfigError(f"no learning rate for {self.loss} on {self.data}: tune it, or name one")
        return [f"recipe={self.data}", *UNSAID, *self.overrides]


@dataclass(frozen=True)
class Study:
    """What a study asks, and the jobs of each of its methods.

    Attributes:
        name: of the file.
        about: what it asks.
        data: name of the data set.
        methods: the jobs of each method, one per seed.
        reference: the method that the others are compared with.
    """

    name: str
    about: str
    data: str
    methods: dict[str, tuple[Job, ...]]
    reference: str

    @property
    def jobs(self) -> list[Job]:
        """All jobs, the first seed of every method first: an interruption leaves some of each."""
        jobs = {job: None for jobs in self.methods.values() for job in jobs}
        return sorted(jobs, key=lambda job: job.seed)

    def only(self, *, methods: Sequence[str] | None = None, seeds: Sequence[int] | None = None) -> Study:
        """The same study with some of its methods and seeds; None for all.

        Raises:
            ConfigError: it has no such method.
        """
        if unknown := [name for name in methods or () if name not in self.methods]:
            raise ConfigError(f"{self.name} has no method {unknown[0]!r}; it has {', '.join(self.methods)}")
        kept = {
            name: tuple(job for job in jobs if not seeds or job.seed in seeds)
            for name, jobs in self.methods.items()
            if not methods or name in methods
        }
        return replace(self, methods=kept)


def first_jobs(name: str, methods: Sequence[str]) -> dict[str, Job]:
    """The first seed of some methods of a study."""
    study = read_study(name).only(methods=methods)
    return {method: study.methods[method][0] for method in methods}


def read_study(name: str) -> Study:
    """The study in ``studies/NAME.yaml``.

    Raises:
        ConfigError: there is none of that name, or it lacks something.
    """
    path = STUDIES / f"{name}.yaml"
    if not path.is_file():
        raise ConfigError(f"no study {name!r}; there are {', '.join(study_names())}")
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    if missing := [key for key in ("about", "data", "seeds", "methods") if key not in content]:
        raise ConfigError(f"{path} lacks {', '.join(missing)}")
    base, val = content.get("base", []), float(content.get("val", 0.0))
    tuned = read_rates().get(content["data"], {})
    methods: dict[str, tuple[Job, ...]] = {}
    for method, entry in content["methods"].items():
        overrides, seeds = (
            (entry, None) if isinstance(entry, list) else (entry["overrides"], entry.get("seeds"))
        )
        expanded = combinations([*overrides, *base])
        for one in expanded:
            title = method if len(expanded) == 1 else f"{method} {_swept(one, [*overrides, *base])}"
            methods[title] = tuple(
                Job(content["data"], val, _ordered([*one, *_rates(one, tuned)]), seed)
                for seed in seeds or content["seeds"]
            )
    reference = content.get("reference", next(iter(methods)))
    if reference not in methods:
        raise ConfigError(f"{path} compares with {reference!r}, which is none of its methods")
    return Study(name, content["about"], content["data"], methods, reference)


def study_names() -> list[str]:
    """Names of all studies."""
    return sorted(path.stem for path in STUDIES.glob("*.yaml"))


def read_rates() -> dict[str, dict[str, list[str]]]:
    """Overrides that set the rates of each family of losses on each data set, as the studies chose them."""
    return yaml.safe_load(RATES.read_text(encoding="utf-8")) or {} if RATES.is_file() else {}


def first_of_the_best(values: Mapping[Key, float]) -> Key:
    """The first, in the order of the study, that is within `LEVEL` of the best."""
    return next(key for key, value in values.items() if value >= max(values.values()) - LEVEL)


def choose_rates(studies: Sequence[str]) -> dict[str, dict[str, list[str]]]:
    """The learning rates of each loss with the best H-AP, by data set, written into ``rates.yaml``.

    Args:
        studies: which swept rates; where two have swept those of a loss, the later one counts.

    Raises:
        ConfigError: some of their runs have no result yet.
    """
    chosen = read_rates()
    for study in map(read_study, studies):
        found: dict[str, dict[Job, float]] = {}
        missing = []
        for job in study.jobs:
            if result := find_result(job):
                found.setdefault(job.loss, {})[job] = result.summary["H-AP"]
            else:
                missing.append(job.name)
        if missing:
            raise ConfigError(f"{study.name} has not run {', '.join(missing)}")
        for loss, values in found.items():
            best = first_of_the_best(values)
            chosen.setdefault(study.data, {})[loss] = [text for text in best.overrides if _is_rate(text)]
    with atomic_file(RATES) as part:
        part.write_text(yaml.safe_dump(chosen), encoding="utf-8")
    return chosen


def _ordered(overrides: Sequence[str]) -> tuple[str, ...]:
    """The loss, its options, the rest, each number in one spelling: a run has one name in all studies."""
    spelt = (
        "=".join((name, _spelt(value))) for name, _, value in (text.partition("=") for text in overrides)
    )
    return tuple(
        sorted(spelt, key=lambda text: (not text.startswith("loss"), "." in text.split("=")[0], text))
    )


def _spelt(value: str) -> str:
    """A number in its plain form.

    >>> _spelt("5e-4"), _spelt("0.0005"), _spelt("128"), _spelt("sigmoid")
    ('0.0005', '0.0005', '128', 'sigmoid')
    """
    try:
        return str(int(value))
    except ValueError:
        pass
    try:
        return repr(float(value))
    except ValueError:
        return value


def _is_rate(override: str) -> bool:
    return override.startswith("optimizer.")


def _rates(overrides: Sequence[str], tuned: dict[str, list[str]]) -> list[str]:
    """The rates of the loss's family, where none is named: part of a run's identity."""
    loss = next(text.removeprefix("loss=") for text in overrides if text.startswith("loss="))
    family = FAMILIES.get(loss, loss).removeprefix("sum_")
    return [] if any(map(_is_rate, overrides)) else tuned.get(family, [])


def _swept(overrides: Sequence[str], given: Sequence[str]) -> str:
    """The values of a combination that its sweep set."""
    pairs = [text.split("=") for text in overrides if text not in given]
    return ", ".join(f"{key.split('.')[-1]}={value}" for key, value in pairs)
