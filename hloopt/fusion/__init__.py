"""Which instructions become one kernel: rules with reasons, strategies, and how it is written down."""
