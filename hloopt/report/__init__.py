"""What a person sees: tables that fit the terminal, and JSON for scripts."""
