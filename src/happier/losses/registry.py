"""Every loss by name, with checked options."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, final, get_type_hints

from happier.errors import OptionError, did_you_mean
from happier.losses.attribute_hap import AttributeHAPLoss
from happier.losses.blackbox_ap import BlackboxAPLoss
from happier.losses.csl import CSLLoss
from happier.losses.fast_ap import FastAPLoss
from happier.losses.hap import HAPLoss, SigmoidHAPLoss
from happier.losses.happier_loss import HAPPIERLoss
from happier.losses.himulcon import HiMulConLoss
from happier.losses.margin_softmax import ArcFaceLoss, CosFaceLoss
from happier.losses.multi_similarity import MultiSimilarityLoss
from happier.losses.norm_softmax import ClusterLoss, NormSoftmaxLoss, ProxyNCAPPLoss
from happier.losses.old_options import STEP_OPTIONS
from happier.losses.option_checks import check_type
from happier.losses.proxy_anchor import ProxyAnchorLoss
from happier.losses.ranking import LossEngine
from happier.losses.retrieval_loss import RetrievalLoss
from happier.losses.roadmap import ROADMAPLoss
from happier.losses.smooth_ap import SmoothAPLoss
from happier.losses.sum_over_levels import SumOverLevels
from happier.losses.supervised_rank import SupNDCGLoss, SupRecallLoss
from happier.losses.surrogate import StepSurrogate, Surrogate, surrogate_from_options
from happier.losses.triplet import TripletLoss
from happier.relevance import WeightedAPRelevance
from happier.taxonomy import Taxonomy

# What the taxonomy and the encoder say, not an option.
_GIVEN: Final = ("taxonomy", "num_classes", "dim")

# A surrogate as plain options, each under its own name, for configurations: see `surrogate_from_options`.
_STEP: Final = {"surrogate": None, "preset": "paper", **dict.fromkeys(STEP_OPTIONS)}
_STEP_OR_SIGMOID: Final = {**_STEP, "surrogate": "step"}
_RANK: Final = {"surrogate": None, "tau": 0.01, "rho": 100.0, "delta": 0.05, "start": 0.5, "offset": None}


@final
@dataclass(frozen=True)
class LossEntry:
    """A loss of the registry.

    Attributes:
        make: the class, or the function, that makes it.
        display_name: how it is called in print.
        preset: options that this name sets otherwise than ``make`` does.
        over_levels: one instance for each level, summed.
        fine_only: it uses the finest classes only.
        surrogate: plain options, with their defaults, that stand for ``make``'s argument ``surrogate``.
        takes_attributes: called with rows of attributes ``[B, A]`` instead of labels.
    """

    make: Callable[..., RetrievalLoss]
    display_name: str
    preset: Mapping[str, Any] = field(default_factory=dict)
    over_levels: bool = False
    fine_only: bool = False
    surrogate: Mapping[str, Any] = field(default_factory=dict)
    takes_attributes: bool = False

    @property
    def options(self) -> dict[str, Any]:
        """Name and default of every option."""
        own = {name: entry.default for name, entry in inspect.signature(self.make).parameters.items()}
        known = {**own, **self.surrogate, **self.preset}
        if self.over_levels:
            known |= {"weights": None, "reduction": "mean"}
        return {name: value for name, value in known.items() if name not in _GIVEN}

    @property
    def option_types(self) -> dict[str, Any]:
        """Type hint of every option but the surrogate's own name."""
        known = get_type_hints(self.make.__init__ if inspect.isclass(self.make) else self.make)
        if self.surrogate:
            numbers = get_type_hints(StepSurrogate)
            known |= {"preset": str, **{name: hint | None for name, hint in numbers.items()}}
        if self.over_levels:
            known |= {"weights": Sequence[float] | None, "reduction": str}
        return {name: hint for name, hint in known.items() if name in self.options and name != "surrogate"}

    def build(self, taxonomy: Taxonomy, dim: int, options: Mapping[str, Any]) -> RetrievalLoss:
        """The loss for a training set and an embedding size; options must be known ones."""
        chosen = {**self.preset, **options}
        levels = {
            name: chosen.pop(name) for name in ("weights", "reduction") if self.over_levels and name in chosen
        }
        wanted = inspect.signature(self.make).parameters
        if self.surrogate:
            flat = {name: chosen.pop(name) for name in self.surrogate if name in chosen}
            chosen["surrogate"] = surrogate_from_options(**flat)

        def make(num_classes: int) -> RetrievalLoss:
            given = {"taxonomy": taxonomy, "num_classes": num_classes, "dim": dim}
            return self.make(**{name: value for name, value in given.items() if name in wanted}, **chosen)

        if self.over_levels:
            return SumOverLevels(make, taxonomy.num_classes, **levels)
        return make(taxonomy.num_classes[-1])


def weighted_ap_loss(
    taxonomy: Taxonomy,
    *,
    weights: Sequence[float] | None = None,
    surrogate: Surrogate | None = None,
    include_query: bool = False,
    engine: LossEngine | None = None,
) -> HAPLoss:
    """`HAPLoss` with the relevance that makes H-AP a weighted sum of the levels' AP; 1/L each by default."""
    shares = (1 / taxonomy.depth,) * taxonomy.depth if weights is None else tuple(weights)
    relevance = WeightedAPRelevance(shares)
    return HAPLoss(surrogate=surrogate, relevance=relevance, include_query=include_query, engine=engine)


LOSSES: Final[Mapping[str, LossEntry]] = MappingProxyType(
    {
        "happier": LossEntry(HAPPIERLoss, "HAPPIER", surrogate=_STEP_OR_SIGMOID),
        "happier_f": LossEntry(HAPPIERLoss, "HAPPIER_F", preset={"alpha": 5.0}, surrogate=_STEP_OR_SIGMOID),
        "happier_s": LossEntry(
            HAPPIERLoss,
            "HAPPIER_S",
            preset={"surrogate": "sigmoid", "tau": 0.05},
            surrogate=_STEP_OR_SIGMOID,
        ),
        "hap": LossEntry(HAPLoss, "HAP", surrogate=_STEP),
        "hap_sigmoid": LossEntry(SigmoidHAPLoss, "Sigmoid H-AP"),
        "hap_attributes": LossEntry(
            AttributeHAPLoss, "HAP by attributes", surrogate=_STEP, takes_attributes=True
        ),
        "sigma_wap": LossEntry(weighted_ap_loss, "ΣwAP", surrogate=_STEP),
        "cluster": LossEntry(ClusterLoss, "Clustering", fine_only=True),
        "triplet": LossEntry(TripletLoss, "Triplet", fine_only=True),
        "triplet_dw": LossEntry(TripletLoss, "Triplet DW", preset={"mining": "distance"}, fine_only=True),
        "nsm": LossEntry(NormSoftmaxLoss, "NSM", fine_only=True),
        "proxy_nca": LossEntry(ProxyNCAPPLoss, "ProxyNCA++", fine_only=True),
        "smooth_ap": LossEntry(SmoothAPLoss, "Smooth-AP", fine_only=True),
        "roadmap": LossEntry(ROADMAPLoss, "ROADMAP", surrogate=_RANK, fine_only=True),
        "arcface": LossEntry(ArcFaceLoss, "ArcFace", fine_only=True),
        "cosface": LossEntry(CosFaceLoss, "CosFace", fine_only=True),
        "proxy_anchor": LossEntry(ProxyAnchorLoss, "Proxy-Anchor", fine_only=True),
        "multi_similarity": LossEntry(MultiSimilarityLoss, "Multi-Similarity", fine_only=True),
        "fast_ap": LossEntry(FastAPLoss, "FastAP", fine_only=True),
        "softbin_ap": LossEntry(FastAPLoss, "SoftBin-AP", preset={"bins": 19}, fine_only=True),
        "blackbox_ap": LossEntry(BlackboxAPLoss, "Blackbox-AP", fine_only=True),
        "sum_triplet": LossEntry(TripletLoss, "ΣTriplet", over_levels=True),
        "sum_nsm": LossEntry(NormSoftmaxLoss, "ΣNSM", over_levels=True),
        "sum_proxy_nca": LossEntry(ProxyNCAPPLoss, "ΣProxyNCA++", over_levels=True),
        "sum_smooth_ap": LossEntry(SmoothAPLoss, "ΣSmooth-AP", over_levels=True),
        "sum_roadmap": LossEntry(ROADMAPLoss, "ΣROADMAP", over_levels=True, surrogate=_RANK),
        "sum_arcface": LossEntry(ArcFaceLoss, "ΣArcFace", over_levels=True),
        "sum_cosface": LossEntry(CosFaceLoss, "ΣCosFace", over_levels=True),
        "sum_proxy_anchor": LossEntry(ProxyAnchorLoss, "ΣProxy-Anchor", over_levels=True),
        "sum_multi_similarity": LossEntry(MultiSimilarityLoss, "ΣMulti-Similarity", over_levels=True),
        "sum_fast_ap": LossEntry(FastAPLoss, "ΣFastAP", over_levels=True),
        "sum_softbin_ap": LossEntry(FastAPLoss, "ΣSoftBin-AP", preset={"bins": 19}, over_levels=True),
        "sum_blackbox_ap": LossEntry(BlackboxAPLoss, "ΣBlackbox-AP", over_levels=True),
        "csl": LossEntry(CSLLoss, "CSL"),
        "sup_recall": LossEntry(SupRecallLoss, "SupRecall", surrogate=_RANK, fine_only=True),
        "sup_ndcg": LossEntry(SupNDCGLoss, "SupNDCG", surrogate=_RANK),
        "himulcon": LossEntry(HiMulConLoss, "HiMulCon"),
    }
)


def display_name(name: str) -> str:
    """How a loss is called in print; a name that is not in `LOSSES` is returned as it is.

    >>> display_name("proxy_nca"), display_name("my_loss")
    ('ProxyNCA++', 'my_loss')
    """
    return LOSSES[name].display_name if name in LOSSES else name


def takes_attributes(name: str) -> bool:
    """Whether a loss is called with attributes instead of labels; a name that is not in `LOSSES` is not.

    >>> takes_attributes("hap_attributes"), takes_attributes("hap")
    (True, False)
    """
    return name in LOSSES and LOSSES[name].takes_attributes


def build_loss(name: str, *, taxonomy: Taxonomy, dim: int, **options: Any) -> RetrievalLoss:
    """The loss of that name for a training set, with its options checked.

    Args:
        name: a key of `LOSSES`.
        taxonomy: the training set's classes; the loss is then called with rows of ``taxonomy.codes``.
        dim: size of the embeddings.
        options: those of the loss; ``LOSSES[name].options`` lists them with their defaults.

    Raises:
        OptionError: an unknown name or option (the message has the nearest one), or a value of the wrong type
            or out of range.

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
        raise OptionError(f"unknown loss {name!r}{did_you_mean(name, LOSSES)}; one of {', '.join(LOSSES)}")
    entry = LOSSES[name]
    if "form" in options and "engine" in entry.options:
        warnings.warn("form: use engine instead", DeprecationWarning, stacklevel=2)
        options["engine"] = options.pop("form")
    types = entry.option_types
    for option, value in options.items():
        if option not in entry.options:
            raise OptionError(f"loss {name!r} has no option {option!r}{did_you_mean(option, entry.options)}")
        if option in types:
            check_type(option, value, types[option])
    return entry.build(taxonomy, dim, options)
