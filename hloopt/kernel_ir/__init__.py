"""The kernel IR: a small typed tree between what a kernel computes and its text for a device."""
