"""``python -m swarmbo`` is the ``swarmbo`` command."""

from swarmbo.cli import main

if __name__ == "__main__":
    main()
