"""What a team makes of its history before it decides: beliefs, transforms, splits, failures."""

from swarmbo.belief.model.incumbents import incumbent as incumbent
from swarmbo.belief.model.joint_situation import JointSituation as JointSituation, OutcomeMode as OutcomeMode
from swarmbo.belief.model.model import Learned as Learned, Model as Model, learned_belief as learned_belief
