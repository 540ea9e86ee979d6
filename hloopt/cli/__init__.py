"""The command line: a file for the options of each command; ``actions/`` has what each does."""
