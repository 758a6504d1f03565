"""Models of a team's history: beliefs, transforms, splits, failures."""

from swarmbo.belief.model.incumbents import incumbent as incumbent
from swarmbo.belief.model.joint_situation import JointSituation as JointSituation, OutcomeMode as OutcomeMode
from swarmbo.belief.model.model import Learned as Learned, Model as Model, learned_belief as learned_belief
