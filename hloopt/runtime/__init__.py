"""What executors share: programs, plans over a device's memory, inputs, the judge of results, timing."""
