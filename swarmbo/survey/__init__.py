"""Surveys from data: a map of samples with its uncertainty, and the next places to sample."""

from swarmbo.boundary.coordinates import Coordinates as Coordinates
from swarmbo.survey.plan import NextPlace as NextPlace, SurveyPlan as SurveyPlan, plan_next as plan_next
from swarmbo.survey.samples import Samples as Samples, read_positions as read_positions, read_samples as read_samples
