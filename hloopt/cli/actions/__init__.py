"""What each command does: loaded when it is called, so that its help need not wait."""
