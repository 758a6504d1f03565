"""Local beliefs that agents fuse by messages: each has its own measurements and its neighbours' messages."""

from swarmbo.belief.fusion.covariance_intersection import CovarianceIntersection as CovarianceIntersection
from swarmbo.belief.fusion.experts import CommitteeFlooding as CommitteeFlooding
from swarmbo.belief.fusion.fused import FusedBelief as FusedBelief
from swarmbo.belief.fusion.fused_view import FusedView as FusedView, exchange as exchange
from swarmbo.belief.fusion.measurement_flooding import MeasurementFlooding as MeasurementFlooding
from swarmbo.belief.fusion.proposal import FusedSettings as FusedSettings, Proposal as Proposal
from swarmbo.belief.fusion.push_sum import PushSum as PushSum
