"""What answers the requests of a method: messages between agents, or somebody who sees a whole part."""
