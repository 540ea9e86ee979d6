"""Questions about a module that need more than one instruction; nothing here changes the graph."""
