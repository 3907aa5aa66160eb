"""Every loss by name, with checked options."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, final

from happier.errors import OptionError
from happier.losses.average_precision import ROADMAPLoss, SmoothAPLoss
from happier.losses.csl import CSLLoss
from happier.losses.hap import HAPLoss, SigmoidHAPLoss
from happier.losses.happier_loss import HAPPIERLoss
from happier.losses.himulcon import HiMulConLoss
from happier.losses.levels import SumOverLevels
from happier.losses.loss import RetrievalLoss
from happier.losses.norm_softmax import ClusterLoss, NormSoftmaxLoss, ProxyNCAPPLoss
from happier.losses.options import nearest
from happier.losses.ranking import Form
from happier.losses.supervised_rank import SupNDCGLoss, SupRecallLoss
from happier.losses.triplet import TripletLoss
from happier.relevance import WeightedAPRelevance
from happier.taxonomy import Taxonomy

# What the taxonomy and the encoder say, not an option.
_GIVEN: Final = ("taxonomy", "num_classes", "dim")


@final
@dataclass(frozen=True)
class LossEntry:
    """A loss of the registry.

    Attributes:
        make: the class, or the function, that makes it.
        preset: options that this name sets otherwise than ``make`` does.
        over_levels: one instance for each level, summed.
    """

    make: Callable[..., RetrievalLoss]
    preset: Mapping[str, Any] = field(default_factory=dict)
    over_levels: bool = False

    @property
    def options(self) -> dict[str, Any]:
        """Name and default of every option."""
        known = {
            name: self.preset.get(name, parameter.default)
            for name, parameter in inspect.signature(self.make).parameters.items()
            if name not in _GIVEN
        }
        return {**known, "weights": None} if self.over_levels else known

    def build(self, taxonomy: Taxonomy, dim: int, options: Mapping[str, Any]) -> RetrievalLoss:
        """The loss for a training set and an embedding size; options must be known ones."""
        chosen = {**self.preset, **options}
        weights = chosen.pop("weights", None) if self.over_levels else None
        wanted = inspect.signature(self.make).parameters

        def make(num_classes: int) -> RetrievalLoss:
            given = {"taxonomy": taxonomy, "num_classes": num_classes, "dim": dim}
            return self.make(**{name: value for name, value in given.items() if name in wanted}, **chosen)

        if self.over_levels:
            return SumOverLevels(make, taxonomy.num_classes, weights=weights)
        return make(taxonomy.num_classes[-1])


def weighted_ap_loss(
    taxonomy: Taxonomy,
    *,
    weights: Sequence[float] | None = None,
    preset: str = "paper",
    tau: float | None = None,
    rho: float | None = None,
    delta: float | None = None,
    start: float | None = None,
    offset: float | None = None,
    gamma: float | None = None,
    nu: float | None = None,
    mu: float | None = None,
    hrank: bool | None = None,
    include_query: bool = False,
    form: Form | None = None,
) -> HAPLoss:
    """`HAPLoss` with the relevance that makes H-AP a weighted sum of the levels' AP; 1/L each by default."""
    shares = (1 / taxonomy.depth,) * taxonomy.depth if weights is None else tuple(weights)
    return HAPLoss(
        preset=preset,
        relevance=WeightedAPRelevance(shares),
        tau=tau,
        rho=rho,
        delta=delta,
        start=start,
        offset=offset,
        gamma=gamma,
        nu=nu,
        mu=mu,
        hrank=hrank,
        include_query=include_query,
        form=form,
    )


LOSSES: Final[Mapping[str, LossEntry]] = MappingProxyType(
    {
        "happier": LossEntry(HAPPIERLoss),
        "happier_f": LossEntry(HAPPIERLoss, preset={"alpha": 5.0}),
        "happier_s": LossEntry(HAPPIERLoss, preset={"surrogate": "sigmoid", "tau": 0.05}),
        "hap": LossEntry(HAPLoss),
        "hap_sigmoid": LossEntry(SigmoidHAPLoss),
        "sigma_wap": LossEntry(weighted_ap_loss),
        "cluster": LossEntry(ClusterLoss),
        "triplet": LossEntry(TripletLoss),
        "triplet_dw": LossEntry(TripletLoss, preset={"mining": "distance"}),
        "nsm": LossEntry(NormSoftmaxLoss),
        "proxy_nca": LossEntry(ProxyNCAPPLoss),
        "smooth_ap": LossEntry(SmoothAPLoss),
        "roadmap": LossEntry(ROADMAPLoss),
        "sum_triplet": LossEntry(TripletLoss, over_levels=True),
        "sum_nsm": LossEntry(NormSoftmaxLoss, over_levels=True),
        "sum_proxy_nca": LossEntry(ProxyNCAPPLoss, over_levels=True),
        "sum_smooth_ap": LossEntry(SmoothAPLoss, over_levels=True),
        "sum_roadmap": LossEntry(ROADMAPLoss, over_levels=True),
        "csl": LossEntry(CSLLoss),
        "sup_recall": LossEntry(SupRecallLoss),
        "sup_ndcg": LossEntry(SupNDCGLoss),
        "himulcon": LossEntry(HiMulConLoss),
    }
)


def build_loss(name: str, *, taxonomy: Taxonomy, dim: int, **options: Any) -> RetrievalLoss:
    """The loss of that name for a training set, with its options checked.

    Args:
        name: a key of `LOSSES`.
        taxonomy: the training set's classes; the loss is then called with rows of ``taxonomy.codes``.
        dim: size of the embeddings.
        options: those of the loss; ``LOSSES[name].options`` lists them with their defaults.

    Raises:
        OptionError: an unknown name or option (the message has the nearest one), or a value out of range.

    >>> from happier import Taxonomy
    >>> tree = Taxonomy.from_labels([[0, 0], [0, 1], [1, 2]])
    >>> build_loss("happier", taxonomy=tree, dim=8, alpha=3.0).weight
    0.1
    >>> build_loss("happier", taxonomy=tree, dim=8, alfa=3.0)
    Traceback (most recent call last):
        ...
    happier.errors.OptionError: loss 'happier' has no option 'alfa' (did you mean 'alpha'?)
    """
    if name not in LOSSES:
        raise OptionError(f"unknown loss {name!r}{nearest(name, LOSSES)}; one of {', '.join(LOSSES)}")
    entry = LOSSES[name]
    for option in options:
        if option not in entry.options:
            raise OptionError(f"loss {name!r} has no option {option!r}{nearest(option, entry.options)}")
    return entry.build(taxonomy, dim, options)
