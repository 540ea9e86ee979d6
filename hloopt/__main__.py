"""``python -m hloopt``."""

from hloopt.cli.main import main

if __name__ == "__main__":
    main()
