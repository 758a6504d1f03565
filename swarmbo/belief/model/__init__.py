"""Models of a team's history: beliefs, transforms, splits, failures."""

from swarmbo.belief.model.joint_situation import JointSituation as JointSituation
from swarmbo.belief.model.model import Learned as Learned, Model as Model
