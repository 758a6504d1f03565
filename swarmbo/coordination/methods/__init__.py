"""The ways to agree, one file each: settings, and what one agent does."""
