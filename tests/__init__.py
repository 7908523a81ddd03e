"""One package: folders of tests, and what they share in `support`."""
