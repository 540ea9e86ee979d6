"""The reference interpreter: the executable definition of every op."""
