"""HLO in editors: what ``hloopt lsp`` answers about a text."""
