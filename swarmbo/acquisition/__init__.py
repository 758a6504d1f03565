"""Acquisitions: the utility of a query, as local functions over the scopes of a factor graph."""

from swarmbo.acquisition.acquisition import Acquisition as Acquisition
from swarmbo.acquisition.auto import Auto as Auto
from swarmbo.acquisition.box_functions import BeliefFunctions as BeliefFunctions, BoxFunctions as BoxFunctions
from swarmbo.acquisition.chain_acquisition import ChainAcquisition as ChainAcquisition
from swarmbo.acquisition.confidence_bounds import DECHBO as DECHBO, AddGPUCB as AddGPUCB
from swarmbo.acquisition.dumbo import DuMBO as DuMBO
from swarmbo.acquisition.expected_improvement import ExpectedImprovement as ExpectedImprovement
from swarmbo.acquisition.information import DBGPUCB as DBGPUCB, Information as Information, Straddle as Straddle
from swarmbo.acquisition.local_problem import LocalProblem as LocalProblem
from swarmbo.acquisition.local_utility import LocalUtility as LocalUtility, PlaceUtility as PlaceUtility
from swarmbo.acquisition.schedules import Progress as Progress, alpha as alpha, beta as beta
from swarmbo.acquisition.situation import Decision as Decision, Situation as Situation, Travel as Travel
from swarmbo.acquisition.targeted_variance import TargetedVariance as TargetedVariance
from swarmbo.acquisition.thompson import EGPEI as EGPEI, EGPTS as EGPTS, Thompson as Thompson
from swarmbo.acquisition.trust_region import Restarts as Restarts, TrustRegion as TrustRegion
from swarmbo.acquisition.utility import Utility as Utility
