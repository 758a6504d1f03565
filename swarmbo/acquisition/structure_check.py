"""Which acquisitions can work on scopes that are learned."""

from swarmbo.acquisition.acquisition import Acquisition
from swarmbo.acquisition.add_gp_ucb import AddGPUCB
from swarmbo.belief.gp.additive_settings import AdditiveGPSettings
from swarmbo.belief.model.joint_situation import OutcomeMode
from swarmbo.belief.structure import SampledStructure
from swarmbo.errors import ConfigError

_AT = "$.belief.structure"


def check_structure(settings: AdditiveGPSettings, acquisition: Acquisition, outcomes: OutcomeMode) -> None:
    """Refuse a structure to be learned where that makes no sense.

    Raises:
        ConfigError: If outcomes are those of given factors, or Add-GP-UCB is to learn groups of its own, or might get
            scopes that overlap.
    """
    structure = settings.structure
    if structure is None:
        return
    if outcomes == "per-factor":
        raise ConfigError("got outcomes per factor; wanted totals: those outcomes are of given factors", at=_AT)
    if isinstance(acquisition, AddGPUCB):
        kind = structure.__struct_config__.tag
        if acquisition.groups == "learned":
            raise ConfigError(f"got {kind!r}, and 'learned' in $.acquisition.groups; wanted one of them", at=_AT)
        is_disjoint = isinstance(structure, SampledStructure) and structure.samples == 1
        if not is_disjoint:
            wanted = "sampled with samples = 1, or kind = 'dec-hbo', where scopes may overlap"
            raise ConfigError(f"got {kind!r}, whose scopes overlap, for Add-GP-UCB; wanted {wanted}", at=_AT)
