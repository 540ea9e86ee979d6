"""Where buffers lie: when each is needed, and offsets in one arena."""
