"""HLO text in and out: ``parser.parse_module`` and ``printer.print_module``."""
