"""What a team believes and decides: its parts, learners, what users tell them, and what telling one another costs."""
